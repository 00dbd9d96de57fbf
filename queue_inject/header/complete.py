"""Makes messages fit to send: what one process, with its options and its identity, does to each (qmail-inject(8)).

`Completer` is made once and used for one message or many; only the control files are read, each once.
"""

import os
import time

from queue_base.control import read_line, read_me
from queue_base.errors import Permanent
from queue_base.home import Home, trusted_variable
from queue_base.writer import mail_date
from queue_inject.header.addresses import complete_argument
from queue_inject.header.compose import Identity, make_author, make_message_id, make_sender, per_recipient
from queue_inject.header.header import Field
from queue_inject.header.rewrite import missing_fields, rewrite_header
from queue_inject.options import Options
from queue_wire.format_error import FormatError


class ControlNames:
    """defaulthost, defaultdomain, plusdomain and idhost: the environment's, else the control file's, else me."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[str, bytes] = {}

    def __call__(self, kind: str) -> bytes:
        """Return the name. Raises Temporary where no file says it."""
        if kind not in self._known:
            variable = kind.upper().encode("ascii")
            name = os.environb.get(b"QUEUE_" + variable) or os.environb.get(b"QMAIL" + variable)
            self._known[kind] = name or read_line(self._home, kind, b"") or read_me(self._home)
        return self._known[kind]


def complete(what: str, address: bytes, names: ControlNames) -> bytes:
    """Return an address from the command line made complete. Raises Permanent."""
    try:
        return complete_argument(address, names)
    except FormatError as error:
        shown = address[:80].decode("ascii", "backslashreplace")
        raise Permanent(f"unable to use {what} {shown!r}: {error}; nothing was queued") from error


class Completed:
    """A message fit to send: `header` is all of its fields, without the empty line; the envelope has no recipients
    where neither arguments nor fields name any.
    """

    __slots__ = ("header", "recipients", "sender")

    def __init__(self, header: bytes, sender: bytes, recipients: list[bytes]) -> None:
        self.header = header
        self.sender = sender
        self.recipients = recipients


class Completer:
    """Raises Permanent for an address in the options that cannot be one, Temporary where a control file fails."""

    def __init__(self, home: Home, options: Options) -> None:
        self._options = options
        self._names = ControlNames(home)
        self._identity = Identity(os.environb)
        self._ignored = self._identity.ignored_fields()
        self._sender = options.sender and complete("sender", options.sender, self._names)
        named = [] if options.mode == "h" else options.recipients
        self._arguments = [complete("recipient", each, self._names) for each in named]
        self._default_sender: bytes | None = None
        self._author: bytes | None = None
        self._stamp = 0
        self._lists: frozenset[bytes] = frozenset()
        path = trusted_variable("QUEUE_MFTFILE") or trusted_variable("QMAILMFTFILE")
        if path:
            # Imported here because few have such a file.
            from queue_inject.header.followup import read_lists

            self._lists = read_lists(path)

    def complete(self, fields: list[Field], now: int) -> Completed:
        """Return the message that these fields make, `now` being nanoseconds since the epoch.

        Raises FieldError, FormatError, and Temporary where a control file fails.
        """
        header = rewrite_header(fields, self._names, self._ignored)
        recipients = self._options.choose(self._arguments, header.recipients)
        sender = self._sender
        if sender is None:
            if header.return_path is not None:
                sender = per_recipient(header.return_path, self._identity)
            else:
                sender = self._make_sender(now)
        added = missing_fields(
            header, lambda: self._make_date(now), lambda: self._make_message_id(now), self._make_author
        )
        if self._lists and not header.resent and b"mail-followup-to" not in header.seen:
            from queue_inject.header.followup import followup_field

            added.append(followup_field(header.named, self._lists))
        return Completed(b"".join(added + header.lines), sender, recipients)

    def _make_sender(self, now: int) -> bytes:
        sender = self._default_sender
        if sender is None:
            sender = make_sender(self._identity, self._names, now // 10**9, os.getpid())
            # Letter m makes one for each message.
            if b"m" not in self._identity.letters:
                self._default_sender = sender
        return sender

    def _make_author(self) -> bytes:
        if self._author is None:
            self._author = make_author(self._identity, self._names)
        return self._author

    def _make_date(self, now: int) -> bytes:
        return mail_date(now // 10**9).encode("ascii")

    def _make_message_id(self, now: int) -> bytes:
        # No two messages of a process have the same, even where its clock stands still or is set back.
        self._stamp = stamp = max(self._stamp + 1, now // 1000)
        second, microsecond = divmod(stamp, 10**6)
        text = time.strftime("%Y%m%d%H%M%S", time.gmtime(second)) + f".{microsecond:06}"
        return make_message_id(text, os.getpid(), self._names("idhost"))
