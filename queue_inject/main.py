"""queue-inject: a message with its header on stdin, made fit to send, into the queue (qmail-inject(8)).

Exit code 0 says that the message would survive a power cut, 100 that it cannot be sent, 111 that
there is trouble that may pass. Each failure is one line on stderr.
"""

import os
import time
from itertools import chain

from queue_base.draft import explain
from queue_base.durable import write_all
from queue_base.errors import PERMANENT, TEMPORARY, Failure, Permanent, Temporary, complain, reason
from queue_base.home import Home, take_help, take_home
from queue_inject.header.complete import Completer
from queue_inject.header.compose import show_address
from queue_inject.header.header import HeaderReader
from queue_inject.header.rewrite import FieldError
from queue_inject.opening import open_writer
from queue_inject.options import USAGE, Options
from queue_inject.source import Deadline, Source, guard_descriptors
from queue_wire.format_error import FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PROGRAM = "queue-inject"
HELP = f"""{USAGE} <message
Completes a message with a header and puts it in the queue.
  -a, -h, -H, -A  recipients: arguments; header; both; arguments, else header (default)
  -f SENDER       envelope sender
  -n, -N          print the message instead; queue it (default)
  --batch FORMAT  many messages: mbox, mboxo, bsmtp, netstring; --batch --help says more
Exit code 0 queued, 100 it cannot be sent, 111 trouble that may pass.
"""


def read_header(source: "Iterable[bytes]") -> HeaderReader:
    """Return the header, and as much of the body as came with it. Raises FormatError, QueueTrouble."""
    reader = HeaderReader()
    for data in source:
        if reader.feed(data):
            return reader
    reader.end()
    return reader


def inject(home: Home, options: Options, message: "Iterable[bytes] | None" = None) -> None:
    """Send one message, or print it; None is standard input. Raises a Failure or FormatError."""
    now = time.time_ns()
    deadline = Deadline()
    guard_descriptors(needed=2 if options.show else 1)
    completer = Completer(home, options)
    source = iter(Source(0, "the message on standard input", deadline) if message is None else message)
    reader = read_header(source)
    done = completer.complete(reader.fields, now)
    begin = done.header + reader.body
    if options.show:
        show(chain((b"Return-Path: <%s>\n" % show_address(done.sender), begin), source))
    elif not done.recipients:
        raise Permanent("unable to send the message: it has no recipients; name them as arguments or in To, Cc or Bcc")
    else:
        open_writer(home, filters=True).put(chain((begin,), source), lambda: (done.sender, done.recipients))


def show(message: "Iterable[bytes]") -> None:
    """Print the message on stdout. Raises Temporary."""
    for data in message:
        try:
            write_all(1, data)
        except OSError as error:
            raise Temporary(f"unable to write standard output: {reason(error)}") from error


def explain_format(error: FormatError) -> str:
    """Return why a message cannot be sent as it is."""
    what = f"parse {error.where}" if isinstance(error, FieldError) else "send the message"
    return f"unable to {what}: {error}; correct it and send again, nothing was queued"


def main(argv: list[str]) -> int:
    """Return 0, 100 or 111."""
    os.umask(0o027)
    try:
        home, rest = take_home(argv[1:])
        if rest[:1] and rest[0].startswith(("--batch", "--skip")):
            # Imported here because one message needs nothing of it.
            from queue_inject.batch.main import main as inject_batch

            return inject_batch(home, rest)
        # -h is an option of its own.
        if not take_help(rest, HELP, short=False):
            inject(home, Options(rest))
    except Failure as failure:
        complain(PROGRAM, f"fatal: {failure}")
        return failure.exit_code
    except FormatError as error:
        complain(PROGRAM, f"fatal: {explain_format(error)}")
        return PERMANENT
    except BaseException as error:
        explain(PROGRAM, error)
        return TEMPORARY
    return 0
