"""sendmail: the interface that Unix programs call to send mail (sendmail(1) of Sendmail, Postfix and qmail).

A message is completed as by queue-inject and put in the queue, or in maildrop/ if the user may not write to the queue.
Exit code 0 means that it would survive a power cut; the others are those of sysexits.h, with one line on stderr.

The options are those of Sendmail, Postfix and qmail, together or apart as getopt(3) has them. Options about the inner
workings of another program are ignored. Options that ask for something that is not supported, such as another mode,
raise Usage with what to use instead. All arguments after the first recipient are recipients.
"""

import os

from queue_base.errors import Permanent, Usage
from queue_base.home import Home, take_help, take_home
from queue_inject.header.complete_addresses import rewrite_list
from queue_inject.header.completer import ControlNames
from queue_inject.main import Options, inject
from queue_inject.sendmail.author import set_author
from queue_inject.sendmail.exit_codes import PROGRAM, explain_exit
from queue_inject.sendmail.standard_input import read_message
from queue_inject.source import Deadline, TimedSource
from queue_wire.format_error import FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

USAGE = "usage: sendmail [--home HOME] [-ti] [-f SENDER] [-F NAME] [RECIPIENT ...]"
HELP = f"""{USAGE} <message
Puts a message with a header in the queue; the options are those of other sendmails.
  -t             recipients of To, Cc and Bcc too
  -i, -oi        a line with a lone dot does not end the message
  -f, -r SENDER  envelope sender; '' or '<>' is the empty one
  -F NAME        full name, for a From field that is missing
  -B, -N, -R, -V body type and DSN options: checked, and ignored
  -bp, mailq     list the queue (queuectl list)
  -bs            serve SMTP on descriptors 0 and 1, by queue-smtpd
  -q             try all deferred mail now; -qR DOMAIN, -qR RECIPIENT, -qS SENDER, -qI ID: some of it (queuectl flush)
  -bi, newaliases, -v, -o..., -O..., -A, -C, -D, -d, -e, -h, -L, -m, -n, -p, -U, -G, -X, -x: accepted without effect
Exit code 0: queued; 64: wrong usage; 65: wrong message or address; 75: a problem that may pass; others: sysexits.h.
"""
SEND = "send"
LIST = "list"
FLUSH = "flush"
SMTP = "smtp"
NOTHING = "nothing"
# The mode of a program that is called by one of these names.
NAMES = {"mailq": LIST, "newaliases": NOTHING}
_MODES = {"m": SEND, "p": LIST, "s": SMTP, "i": NOTHING}
_STARTED = "the daemons are started by queue-start, under a supervisor"
_ROUTE = "queuectl route says where mail for an address goes"
_HOSTS = "queuectl destinations lists the hosts that mail goes to"
_REFUSED = {"d": _STARTED, "D": _STARTED, "l": _STARTED, "t": _ROUTE, "v": _ROUTE, "h": _HOSTS, "H": _HOSTS}
_IGNORED = "EGJTUcmnsvx"
_IGNORED_VALUE = "ACDLehp"
_VALUE = "BFNORVXbfor"
_SELECTED = {"I": "a long id", "R": "a domain or an address", "S": "an address"}
ENVELOPE_ID_MAX = 100
# An argument with one of these is a list, as in a header field: cron has MAILTO=ann,bob, others have <ann@host>.
_LIST_SIGNS = b' \t\r\n,;:<>()"\\'


class SendmailOptions(Options):
    """work: one of the modes above; dot_ends: whether a line with a lone dot ends the message.

    sender, recipients: as they were written; full_name: that of -F; flush: the arguments of `queuectl flush`.
    """

    def __init__(self, name: str, arguments: list[str]) -> None:
        super().__init__([])
        self.mode = "a"
        # As in Postfix: with -t, programs name some recipients in the header and as arguments.
        self.unique = True
        self.work = NAMES.get(name, SEND)
        self.dot_ends = True
        self.full_name: bytes | None = None
        self.flush: list[str] = []
        self._arguments = arguments
        self._place = 0
        self._parse_options()
        self.recipients = [os.fsencode(argument) for argument in arguments[self._place :]]
        if self.work == SEND and self.mode == "a" and not self.recipients:
            raise Usage(f"no recipients: name them as arguments, or in the header with -t; {USAGE}")
        if self.work == FLUSH and self.recipients:
            raise Usage(f"-q takes no recipients: {arguments[self._place]!a}; -qR chooses by recipient")

    def _parse_options(self) -> None:
        while self._place < len(self._arguments):
            letters = self._arguments[self._place]
            if letters[:1] != "-" or letters == "-":
                return
            self._place += 1
            if letters == "--":
                return
            if letters.startswith("--"):
                raise Usage(f"{ascii(letters)[1:-1]} is not an option; {USAGE}")
            while letters := letters[1:]:
                if self._option(letters[0], letters[1:]):
                    break

    def _option(self, letter: str, rest: str) -> bool:
        """Parse one option; return whether `rest`, the rest of its argument, was its value."""
        if letter == "q":
            self._queue_run(rest)
        elif letter in _VALUE:
            self._value(letter, self._next(letter, rest))
        elif letter in _IGNORED_VALUE:
            self._next(letter, rest)
        elif letter == "t":
            self.mode = "H"
        elif letter == "i":
            self.dot_ends = False
        elif letter == "I":
            self.work = NOTHING
        elif letter not in _IGNORED and letter != "d":
            raise Usage(f"-{ascii(letter)[1:-1]} is not an option; {USAGE}")
        # -d is debugging in Sendmail, with a level or without.
        return letter in _VALUE or letter in _IGNORED_VALUE or letter in "qd"

    def _next(self, letter: str, rest: str) -> str:
        if rest:
            return rest
        self._place += 1
        if self._place > len(self._arguments):
            raise Usage(f"-{letter} needs a value; {USAGE}")
        return self._arguments[self._place - 1]

    def _value(self, letter: str, value: str) -> None:
        if letter in "fr":
            self.sender = os.fsencode(value)
        elif letter == "F":
            self.full_name = os.fsencode(value)
        elif letter == "b":
            self._set_work(value[:1])
        elif letter == "o":
            if value[:1] == "i":
                self.dot_ends = False
        elif letter == "O":
            if value.lower() in ("ignoredots", "ignoredots=true"):
                self.dot_ends = False
        else:
            check_value(letter, value)

    def _set_work(self, mode: str) -> None:
        if mode in _REFUSED:
            raise Usage(f"-b{mode} is not done here: {_REFUSED[mode]}")
        if mode not in _MODES:
            raise Usage(f"-b{ascii(mode)[1:-1]} is not an option; {USAGE}")
        self.work = _MODES[mode]

    def _queue_run(self, value: str) -> None:
        self.work = FLUSH
        if not value:
            self.flush = ["--all"]
            return
        kind, what = value[0], value[1:]
        if kind not in _SELECTED:
            own = "queue-send tries deferred mail by itself, as control/retryschedule says"
            raise Usage(f"-q{ascii(value)[1:-1]} is not done here: {own}; -q alone tries all of it now")
        what = what or self._next("q" + kind, "")
        if not what.strip("@") or (kind == "S" and "@" not in what[1:-1]):
            raise Usage(f"-q{kind} needs {_SELECTED[kind]}")
        selector = {"S": "--sender", "R": "--recipient" if "@" in what.lstrip("@") else "--domain"}
        # An id comes last, after --, so that it is never mistaken for an option.
        self.flush = ["--", what] if kind == "I" else [f"{selector[kind]}={what.lstrip('@')}"]


def check_value(letter: str, value: str) -> None:
    """Raise Usage if the value of -B, -N, -R, -V (RFC 3461, RFC 6152) or -X is wrong."""
    words = value.lower().split(",")
    if letter == "B" and words[0] in ("7bit", "8bitmime") and len(words) == 1:
        return
    if letter == "N" and (words == ["never"] or all(word in ("success", "failure", "delay") for word in words)):
        return
    if letter == "R" and words[0] in ("full", "hdrs") and len(words) == 1:
        return
    if letter == "V" and 0 < len(value) <= ENVELOPE_ID_MAX and all("!" <= sign <= "~" for sign in value):
        return
    if letter == "X" and value[0:1] != "V":
        return
    needs = {
        "B": "needs 7BIT or 8BITMIME",
        "N": "needs never, or a list of success, failure and delay with commas",
        "R": "needs full or hdrs",
        "V": f"needs an envelope id: 1 to {ENVELOPE_ID_MAX} printable ASCII characters without spaces",
        "X": "is not done here: a sender for each recipient is -f NAME-@HOST-@[]",
    }
    raise Usage(f"-{letter} {needs[letter]}, and not {value[:120]!a}" if letter != "X" else f"-XV {needs['X']}")


def parse_addresses(what: str, text: bytes, home: Home, sender: bool = False) -> list[bytes]:
    """Return the addresses of an argument. One that is not a list is returned as it is. Raises Permanent."""
    if len(text.translate(None, _LIST_SIGNS)) == len(text):
        return [text]
    try:
        return rewrite_list(text, ControlNames(home), sender=sender)[1]
    except FormatError as error:
        shown = text[:80].decode("ascii", "backslashreplace")
        raise Permanent(f"unable to use {what} {shown!r}: {error}; nothing was queued") from error


def send(home: Home, options: SendmailOptions) -> None:
    """Send the message on standard input. Raises a Failure or FormatError."""
    if options.sender is not None:
        senders = parse_addresses("sender", options.sender, home, sender=True)
        if len(senders) > 1:
            raise Usage(f"-f takes one address, and {options.sender[:120]!a} has {len(senders)}")
        options.sender = senders[0] if senders else b""
    options.recipients = [each for text in options.recipients for each in parse_addresses("recipient", text, home)]
    set_author(os.environb, options.sender, options.full_name)
    inject(home, options, read_input(options.dot_ends), PROGRAM)


def read_input(dot_ends: bool) -> "Iterator[bytes]":
    """Yield the message on standard input. Nothing is read before the first piece is asked for."""
    yield from read_message(TimedSource(0, "the message on standard input", Deadline()), dot_ends)


def run(home: Home, options: SendmailOptions) -> int:
    """Do what the options ask for; return the exit code. Raises a Failure or FormatError."""
    # What few callers need is imported here.
    if options.work == LIST:
        from queue_inject.sendmail.mailq import list_queue

        return list_queue(home)
    if options.work == FLUSH:
        from queue_inject.sendmail.mailq import flush_queue

        return flush_queue(home, options.flush)
    if options.work == SMTP:
        from queue_inject.sendmail.smtp_dialogue import serve_smtp

        return serve_smtp(home)
    # newaliases does nothing: there is no alias database, alias/ is read at each delivery.
    if options.work != NOTHING:
        send(home, options)
    return 0


def main(argv: list[str]) -> int:
    """Return an exit code of sysexits.h."""
    os.umask(0o027)
    try:
        home, rest = take_home(argv[1:])
        if take_help(rest, HELP, short=False):
            return 0
        return run(home, SendmailOptions(os.path.basename(argv[0]), rest))
    except BaseException as error:
        return explain_exit(error)
