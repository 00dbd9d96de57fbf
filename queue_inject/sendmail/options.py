"""sendmail's command line: the options of Sendmail, Postfix and qmail, together or apart as getopt has them.

Options that say how another program works inside are taken and ignored; those that ask for something that is not
done here (another mode, for one) raise Usage with what to use instead. What comes after the first recipient is
a recipient.
"""

import os

from queue_base.errors import Usage
from queue_inject.options import Options

USAGE = "usage: sendmail [--home HOME] [-ti] [-f SENDER] [-F NAME] [RECIPIENT ...]"
SEND = "send"
LIST = "list"
FLUSH = "flush"
SMTP = "smtp"
NOTHING = "nothing"
# A program that is called by one of these names works in that mode.
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


class SendmailOptions(Options):
    """work: one of the modes above; dot_ends: whether a line with a lone dot ends the message.

    sender is as it was written, and so are the recipients; full_name is -F's; flush are queuectl flush's arguments.
    """

    def __init__(self, name: str, arguments: list[str]) -> None:
        super().__init__([])
        self.mode = "a"
        self.work = NAMES.get(name, SEND)
        self.dot_ends = True
        self.full_name: bytes | None = None
        self.flush: list[str] = []
        self._arguments = arguments
        self._place = 0
        self._take_options()
        self.recipients = [os.fsencode(argument) for argument in arguments[self._place :]]
        if self.work == SEND and self.mode == "a" and not self.recipients:
            raise Usage(f"no recipients: name them as arguments, or in the header with -t; {USAGE}")
        if self.work == FLUSH and self.recipients:
            raise Usage(f"-q takes no recipients: {arguments[self._place]!a}; -qR chooses by recipient")

    def choose(self, arguments: list[bytes], header: list[bytes]) -> list[bytes]:
        """Return each recipient once, as Postfix does: with -t, programs name some in both places."""
        return list(dict.fromkeys(super().choose(arguments, header)))

    def _take_options(self) -> None:
        while self._place < len(self._arguments):
            letters = self._arguments[self._place]
            if letters[:1] != "-" or letters == "-":
                return
            self._place += 1
            if letters == "--":
                return
            while letters := letters[1:]:
                if self._option(letters[0], letters[1:]):
                    break

    def _option(self, letter: str, rest: str) -> bool:
        """Take one option; return whether `rest`, what follows in its argument, was its value."""
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
        # -d is Sendmail's debugging, with its level or without.
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
        # An id goes last, after --, so that none is taken for an option.
        self.flush = ["--", what] if kind == "I" else [f"{selector[kind]}={what.lstrip('@')}"]


def check_value(letter: str, value: str) -> None:
    """Raise Usage where a value of -B, -N, -R, -V (RFC 3461, RFC 6152) or -X breaks its syntax."""
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
