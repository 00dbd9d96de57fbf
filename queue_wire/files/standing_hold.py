"""queue/holds: standing holds. queue-todo puts each new message that one of them fits on hold as it classifies it.

One a line: words `name=value`, divided by spaces, then `reason=` and the reason to the end of the line. In a value,
`%`, spaces, and bytes that are not printable ASCII are written as %XX. All words of a line must fit a message. Pure.

    uid=1007 reason=script sends spam
    sender=news@example.com domain=example.net reason=complaints, ask Jo
"""

from collections.abc import Iterable
from typing import NamedTuple

from queue_wire.address import address_key, bounce_recipient, domain_of, split_address
from queue_wire.format_error import FormatError, LineError, quoted

HOLDS_MAX = 1000
BYTES_MAX = 1 << 20
_PLAIN = frozenset(range(33, 127)) - {0x25}


class StandingHold(NamedTuple):
    """One hold. Addresses and domains are in lower case; empty, and None for the uid, for what is not given.

    A null sender cannot be chosen.
    """

    sender: bytes = b""
    sender_domain: bytes = b""
    uid: int | None = None
    recipient: bytes = b""
    domain: bytes = b""
    reason: bytes = b""

    @property
    def key(self) -> tuple[bytes | int | None, ...]:
        """What the hold fits; there is one hold for each."""
        return self[:5]


def pack_holds(holds: Iterable[StandingHold]) -> bytes:
    """Return the file."""
    return b"".join(b"%s reason=%s\n" % (describe_hold(hold), hold.reason) for hold in holds)


def describe_hold(hold: StandingHold) -> bytes:
    """Return the words of a hold, without its reason."""
    words = [
        b"%s=%s" % (name, _quote(value))
        for name, value in (
            (b"sender", hold.sender),
            (b"sender-domain", hold.sender_domain),
            (b"uid", b"" if hold.uid is None else b"%d" % hold.uid),
            (b"recipient", hold.recipient),
            (b"domain", hold.domain),
        )
        if value
    ]
    return b" ".join(words)


def unpack_holds(data: bytes) -> list[StandingHold]:
    """Return the holds. Raises LineError."""
    lines = data.split(b"\n")
    if len(lines) > HOLDS_MAX + 1:
        raise FormatError(f"holds: {len(lines)} lines, limit {HOLDS_MAX}")
    return [_unpack_hold(number, line) for number, line in enumerate(lines, 1) if line]


def _unpack_hold(number: int, line: bytes) -> StandingHold:
    words, found, reason = line.partition(b" reason=")
    fields: dict[bytes, bytes] = {}
    for word in words.split(b" "):
        name, equals, value = word.partition(b"=")
        if not equals or name in fields or not value:
            raise LineError(number, f"not name=value: {quoted(word)}")
        fields[name] = _unquote(value)
    uid = fields.pop(b"uid", None)
    if uid is not None and (not uid.isdigit() or len(uid) > 10):
        raise LineError(number, f"not a uid: {quoted(uid)}")
    hold = StandingHold(
        fields.pop(b"sender", b""), fields.pop(b"sender-domain", b""), None if uid is None else int(uid),
        fields.pop(b"recipient", b""), fields.pop(b"domain", b""), reason,
    )  # fmt: skip
    if fields or not found:
        raise LineError(number, f"not a hold: {quoted(line)}")
    return hold


def _quote(value: bytes) -> bytes:
    return b"".join(b"%c" % byte if byte in _PLAIN else b"%%%02X" % byte for byte in value)


def _unquote(value: bytes) -> bytes:
    first, *rest = value.split(b"%")
    try:
        return first + b"".join(bytes([int(part[:2], 16)]) + part[2:] for part in rest)
    except ValueError as error:
        raise FormatError(f"holds: not %XX: {quoted(value)}") from error


class HoldTable:
    """The holds by what they are about, so that a message is compared with few of them."""

    def __init__(self, holds: Iterable[StandingHold] = ()) -> None:
        self._by_key: dict[tuple[str, bytes | int], list[StandingHold]] = {}
        self._others: list[StandingHold] = []
        self.recipients: set[bytes] = set()
        self.domains: set[bytes] = set()
        self.empty = True
        for hold in map(_comparable, holds):
            self.empty = False
            self._place(hold).append(hold)
            self.recipients.update([hold.recipient] if hold.recipient else [])
            self.domains.update([hold.domain] if hold.domain else [])

    def _place(self, hold: StandingHold) -> list[StandingHold]:
        if hold.sender:
            return self._by_key.setdefault(("sender", hold.sender), [])
        if hold.sender_domain:
            return self._by_key.setdefault(("domain", hold.sender_domain), [])
        return self._others if hold.uid is None else self._by_key.setdefault(("uid", hold.uid), [])

    def find(self, sender: bytes, uid: int, seen: "SeenRecipients") -> StandingHold | None:
        """Return a hold that fits a message, None if there is none. `seen` has had all recipients of the message."""
        domain = domain_of(bounce_recipient(sender))
        sender = address_key(sender)
        keys: list[tuple[str, bytes | int]] = [("sender", sender), ("domain", domain), ("uid", uid)]
        for holds in (*(self._by_key.get(key, ()) for key in keys), self._others):
            for hold in holds:
                if hold.sender and hold.sender != sender:
                    continue
                if (hold.sender_domain and hold.sender_domain != domain) or hold.uid not in (None, uid):
                    continue
                if seen.fit(hold):
                    return hold
        return None


def _comparable(hold: StandingHold) -> StandingHold:
    return hold._replace(
        sender=address_key(hold.sender),
        sender_domain=address_key(hold.sender_domain),
        recipient=address_key(hold.recipient),
        domain=address_key(hold.domain),
    )


class SeenRecipients:
    """Which of the recipients and domains that holds are about a message has; memory does not depend on its size."""

    def __init__(self, table: HoldTable) -> None:
        self._table = table
        self._recipients: set[bytes] = set()
        self._domains: set[bytes] = set()

    def add(self, recipients: Iterable[bytes]) -> None:
        """Add recipients of the message."""
        table = self._table
        if not table.recipients and not table.domains:
            return
        for recipient in recipients:
            address = address_key(recipient)
            if address in table.recipients:
                self._recipients.add(address)
            domain = split_address(address)[1]
            if domain in table.domains:
                self._domains.add(domain)

    def fit(self, hold: StandingHold) -> bool:
        """Return whether the recipients fit a hold."""
        if hold.recipient and hold.recipient not in self._recipients:
            return False
        return not hold.domain or hold.domain in self._domains
