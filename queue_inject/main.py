"""queue-inject: a message with its header on stdin, made fit to send, into the queue (qmail-inject(8)).

Exit code 0 says that the message would survive a power cut, 100 that it cannot be sent, 111 that
there is trouble that may pass. Each failure is one line on stderr.
"""

import os
import time
from itertools import chain

from queue_base.control import read_line, read_me
from queue_base.durable import write_all
from queue_base.errors import PERMANENT, TEMPORARY, Failure, Permanent, Temporary, Usage, complain, reason
from queue_base.home import Home, take_help, take_home
from queue_inject.addresses import complete_argument
from queue_inject.compose import Identity, make_author, make_message_id, make_sender, per_recipient, show_address
from queue_inject.draft import explain
from queue_inject.header import HeaderReader
from queue_inject.rewrite import FieldError, Header, missing_fields, rewrite_header
from queue_inject.source import Deadline, Source, guard_descriptors
from queue_inject.writer import mail_date, open_writer
from queue_wire.errors import FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PROGRAM = "queue-inject"
USAGE = "usage: queue-inject [--home HOME] [-aAhHnN] [-f SENDER] [RECIPIENT ...]"
HELP = f"""{USAGE} <message
Completes a message with a header and puts it in the queue.
  -a, -h, -H, -A  recipients: arguments; header; both; arguments, else header (default)
  -f SENDER       envelope sender
  -n, -N          print the message instead; queue it (default)
Exit code 0 queued, 100 it cannot be sent, 111 trouble that may pass.
"""


class Options:
    """mode: one of the letters a, A, h and H, which say whose recipients count; show: print, do not queue."""

    def __init__(self, arguments: list[str]) -> None:
        self.mode = "A"
        self.show = False
        self.sender: bytes | None = None
        self.recipients = [os.fsencode(argument) for argument in self._parse(arguments)]

    def _parse(self, arguments: list[str]) -> list[str]:
        """Take the options as getopt does, letters together or apart; return the rest. Raises Usage."""
        place = 0
        while place < len(arguments):
            letters = arguments[place]
            if letters[:1] != "-" or letters == "-":
                break
            place += 1
            if letters == "--":
                break
            while letters := letters[1:]:
                if letters[0] == "f":
                    if letters == "f":
                        place += 1
                        if place > len(arguments):
                            raise Usage(f"-f needs a sender; {USAGE}")
                    self.sender = os.fsencode(letters[1:] or arguments[place - 1])
                    break
                self._letter(letters[0])
        return arguments[place:]

    def _letter(self, letter: str) -> None:
        if letter in "aAhH":
            self.mode = letter
        elif letter in "nN":
            self.show = letter == "n"
        else:
            raise Usage(f"-{letter} is not an option; {USAGE}")

    def choose(self, arguments: list[bytes], header: list[bytes]) -> list[bytes]:
        """Return the recipients that the message goes to, of those in the arguments and those in the header."""
        if self.mode == "A":
            return arguments or header
        return {"a": arguments, "h": header, "H": arguments + header}[self.mode]


class ControlNames:
    """defaulthost, defaultdomain, plusdomain and idhost: the environment's, else the control file's, else me."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[str, bytes] = {}

    def __call__(self, kind: str) -> bytes:
        """Return the name. Raises Temporary where no file says it."""
        if kind not in self._known:
            name = os.environb.get(b"QMAIL" + kind.upper().encode("ascii")) or read_line(self._home, kind, b"")
            self._known[kind] = name or read_me(self._home)
        return self._known[kind]


def complete(what: str, address: bytes, names: ControlNames) -> bytes:
    """Return an address from the command line made complete. Raises Permanent."""
    try:
        return complete_argument(address, names)
    except FormatError as error:
        shown = address[:80].decode("ascii", "backslashreplace")
        raise Permanent(f"unable to use {what} {shown!r}: {error}; nothing was queued") from error


def read_header(source: Source) -> HeaderReader:
    """Return the header, and as much of the body as came with it. Raises FormatError, QueueTrouble."""
    reader = HeaderReader()
    for data in source:
        if reader.feed(data):
            return reader
    reader.end()
    return reader


def new_fields(header: Header, identity: Identity, names: ControlNames, now: int) -> list[bytes]:
    """Return the fields that the message lacks; `now` in nanoseconds."""
    stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime(now // 10**9)) + f".{now // 1000 % 10**6:06}"
    return missing_fields(
        header,
        mail_date(now // 10**9).encode("ascii"),
        lambda: make_message_id(stamp, os.getpid(), names("idhost")),
        lambda: make_author(identity, names),
    )


def inject(home: Home, options: Options) -> None:
    """Send one message, or print it. Raises a Failure or FormatError."""
    now = time.time_ns()
    deadline = Deadline()
    guard_descriptors(needed=2 if options.show else 1)
    names = ControlNames(home)
    identity = Identity(os.environb)
    sender = options.sender and complete("sender", options.sender, names)
    arguments = [] if options.mode == "h" else [complete("recipient", each, names) for each in options.recipients]
    source = Source(0, "the message on standard input", deadline)
    message = read_header(source)
    header = rewrite_header(message.fields, names, identity.ignored_fields())
    recipients = options.choose(arguments, header.recipients)
    if sender is None and header.return_path is not None:
        sender = per_recipient(header.return_path, identity)
    if sender is None:
        sender = make_sender(identity, names, now // 10**9, os.getpid())
    begin = b"".join([*new_fields(header, identity, names, now), *header.lines, message.body])
    if options.show:
        show(chain((b"Return-Path: <%s>\n" % show_address(sender), begin), source))
    elif not recipients:
        raise Permanent("unable to send the message: it has no recipients; name them as arguments or in To, Cc or Bcc")
    else:
        open_writer(home).put(chain((begin,), source), lambda: (sender, recipients))


def show(message: "Iterable[bytes]") -> None:
    """Print the message on stdout. Raises Temporary."""
    for data in message:
        try:
            write_all(1, data)
        except OSError as error:
            raise Temporary(f"unable to write standard output: {reason(error)}") from error


def main(argv: list[str]) -> int:
    """Return 0, 100 or 111."""
    os.umask(0o027)
    try:
        home, rest = take_home(argv[1:])
        # -h is an option of its own.
        if not take_help(rest, HELP, short=False):
            inject(home, Options(rest))
    except Failure as failure:
        complain(PROGRAM, f"fatal: {failure}")
        return failure.exit_code
    except FormatError as error:
        what = f"parse the {error.field} field" if isinstance(error, FieldError) else "send the message"
        complain(PROGRAM, f"fatal: unable to {what}: {error}; correct it and send again, nothing was queued")
        return PERMANENT
    except BaseException as error:
        explain(PROGRAM, error)
        return TEMPORARY
    return 0
