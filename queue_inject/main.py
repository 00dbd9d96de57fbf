"""queue-inject: reads a message with a header on stdin, completes the header, and queues it (qmail-inject(8)).

Exit code 0 means that the message would survive a power cut, 100 that it cannot be sent, 111 that there is a problem
that may pass. Each failure is one line on stderr.
"""

import os
import time

from queue_base.durable import write_all
from queue_base.errors import PERMANENT, TEMPORARY, Failure, Permanent, Temporary, Usage, complain, explain, reason
from queue_base.home import Home, take_help, take_home
from queue_inject.header.completer import Completer
from queue_inject.header.fields import HeaderReader
from queue_inject.source import Deadline, TimedSource, guard_descriptors
from queue_inject.writers import PRIORITY, open_writer
from queue_wire.format_error import FieldError, FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROGRAM = "queue-inject"
USAGE = "usage: queue-inject [--home HOME] [--priority CLASS] [-aAhHnN] [-f SENDER] [RECIPIENT ...]"
HELP = f"""{USAGE} <message
Completes the header of a message and puts the message in the queue.
  -a, -h, -H, -A  recipients: arguments; header; both; arguments, or the header if there are none (default)
  -f SENDER       envelope sender
  -n, -N          print the message instead; queue it (default)
  --priority CLASS  the class of the message, one of control/priorities (default normal, bulk)
  --batch FORMAT  many messages: mbox, mboxo, bsmtp, netstring; see --batch --help
Exit code 0: queued; 100: the message cannot be sent; 111: a problem that may pass.
"""


class Options:
    """mode: a, h, H or A; sender: that of -f; recipients: the other arguments; show: print the message and do not queue
    it; unique: remove repeated recipients.
    """

    def __init__(self, arguments: list[str]) -> None:
        self.mode = "A"
        self.show = False
        self.unique = False
        self.sender: bytes | None = None
        self.recipients = [os.fsencode(argument) for argument in self._parse(arguments)]

    def _parse(self, arguments: list[str]) -> list[str]:
        """Parse options as getopt(3) does, letters together or apart. Return the other arguments. Raises Usage."""
        place = 0
        while place < len(arguments):
            letters = arguments[place]
            if letters[:1] != "-" or letters == "-":
                break
            place += 1
            if letters == "--":
                break
            if letters.startswith("--"):
                raise Usage(f"{letters} is not an option; {USAGE}")
            while letters := letters[1:]:
                if letters[0] == "f":
                    if letters == "f":
                        place += 1
                        if place > len(arguments):
                            raise Usage(f"-f needs a sender; {USAGE}")
                    self.sender = os.fsencode(letters[1:] or arguments[place - 1])
                    break
                self._set_letter(letters[0])
        return arguments[place:]

    def _set_letter(self, letter: str) -> None:
        if letter in "aAhH":
            self.mode = letter
        elif letter in "nN":
            self.show = letter == "n"
        else:
            raise Usage(f"-{letter} is not an option; {USAGE}")


def read_header(source: "Iterable[bytes]") -> HeaderReader:
    """Read the header, and the part of the body that arrives with it. Raises FormatError, QueueTrouble."""
    reader = HeaderReader()
    for data in source:
        if reader.feed(data):
            return reader
    reader.end()
    return reader


def inject(home: Home, options: Options, message: "Iterable[bytes] | None" = None, program: str = PROGRAM) -> None:
    """Queue one message, or print it. None is standard input. Raises a Failure or FormatError."""
    now = time.time_ns()
    deadline = Deadline()
    guard_descriptors(needed=2 if options.show else 1)
    completer = Completer(home, options.mode, options.sender, options.recipients, options.unique)
    source = iter(TimedSource(0, "the message on standard input", deadline) if message is None else message)
    reader = read_header(source)
    header = completer.complete(reader.fields, now)
    begin = header.text + reader.body
    if options.show:
        # Imported here because a message that is queued does not need it.
        from queue_wire.address import quote_address

        show(whole(b"Return-Path: <%s>\n%s" % (quote_address(header.sender), begin), source))
    elif not header.recipients:
        raise Permanent(f"unable to send the message: {reader.lacks_recipients}")
    else:
        open_writer(home, filters=True).put(whole(begin, source), lambda: (header.sender, header.recipients))
        for error in header.unread:
            complain(program, f"warning: unable to parse {error.where}: {error}; sent to those that can be read")


def whole(begin: bytes, rest: "Iterable[bytes]") -> "Iterator[bytes]":
    """Yield a message of which the beginning has been read."""
    yield begin
    yield from rest


def show(message: "Iterable[bytes]") -> None:
    """Print the message on stdout. Raises Temporary."""
    for data in message:
        try:
            write_all(1, data)
        except OSError as error:
            raise Temporary(f"unable to write standard output: {reason(error)}") from error


def take_priority(arguments: list[str]) -> list[str]:
    """Return the arguments without a leading `--priority CLASS`. What is queued, also by a filter, has the class then.

    Raises Usage.
    """
    if not arguments or not arguments[0].startswith("--priority"):
        return arguments
    option, equals, name = arguments[0].partition("=")
    rest = arguments[1:]
    if option == "--priority" and not equals and rest:
        name, rest = rest[0], rest[1:]
    if option != "--priority" or not name:
        raise Usage(f"--priority needs a class; {USAGE}")
    os.environ[PRIORITY] = name
    return rest


def run_batch(home: Home, arguments: list[str]) -> None:
    """Queue a batch, or print its help. Raises a Failure."""
    # Imported here because a single message does not need it.
    from queue_inject.batch.main import BATCH_HELP, BatchOptions, inject_batch

    if take_help(arguments[-1:], BATCH_HELP, short=False):
        return
    batch = BatchOptions(arguments)
    options = Options(take_priority(batch.rest))
    batch.check(options.show)
    guard_descriptors(needed=2)
    completer = None
    if not batch.has_envelopes:
        completer = Completer(home, options.mode, options.sender, options.recipients, options.unique)
    inject_batch(open_writer(home, filters=True), batch, completer)


def explain_format(error: FormatError) -> str:
    """Return the error message for a message that cannot be sent as it is."""
    what = f"parse {error.where}" if isinstance(error, FieldError) else "send the message"
    return f"unable to {what}: {error}; correct it and send again, nothing was queued"


def main(argv: list[str]) -> int:
    """Return 0, 100 or 111."""
    os.umask(0o027)
    try:
        home, rest = take_home(argv[1:])
        rest = take_priority(rest)
        if rest[:1] and rest[0].startswith(("--batch", "--skip")):
            run_batch(home, rest)
        # -h is an option of its own.
        elif not take_help(rest, HELP, short=False):
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
