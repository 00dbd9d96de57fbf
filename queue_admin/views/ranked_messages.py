"""Rankings of the messages in the queue, by what a key of RANKINGS says of each. It reads only what the key needs."""

from collections.abc import Callable, Iterable, Iterator

from queue_admin.views.age_table import shape_domain
from queue_admin.views.queue_walk import WalkedMessage
from queue_admin.views.ranking import Ranking, reason_key
from queue_wire.files.last_result import short_reason

UNKNOWN = b"(unknown)"
FIRST = b"(the first class)"
UNTRIED = b"(none: not deferred yet, or its destination is dead)"


def _by_domain(message: WalkedMessage) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for recipient in message.recipients:
        domain = shape_domain(recipient)
        found[domain] = found.get(domain, 0) + 1
    return found


def _by_sender(message: WalkedMessage) -> dict[bytes, int]:
    sender = message.sender()
    return _whole(UNKNOWN if sender is None else sender or b"<>", message)


def _by_sender_domain(message: WalkedMessage) -> dict[bytes, int]:
    sender = message.sender()
    return _whole(UNKNOWN if sender is None else shape_domain(sender), message)


def _by_uid(message: WalkedMessage) -> dict[bytes, int]:
    uid = message.uid()
    return _whole(UNKNOWN if uid is None else b"%d" % uid, message)


def _by_priority(message: WalkedMessage) -> dict[bytes, int]:
    priority = message.priority()
    return _whole(UNKNOWN if priority is None else priority.encode() or FIRST, message)


def _by_reason(message: WalkedMessage) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for text in message.last_texts():
        key = reason_key(short_reason(text))
        found[key] = found.get(key, 0) + 1
    return found or _whole(UNTRIED, message)


def _whole(key: bytes, message: WalkedMessage) -> dict[bytes, int]:
    return {key: sum(1 for _ in message.recipients)}


RANKINGS: dict[str, Callable[[WalkedMessage], dict[bytes, int]]] = {
    "domain": _by_domain,
    "sender": _by_sender,
    "sender-domain": _by_sender_domain,
    "uid": _by_uid,
    "priority": _by_priority,
    "reason": _by_reason,
}


def rank(messages: Iterable[WalkedMessage], by: str, ranking: Ranking) -> Iterator[None]:
    """Count messages; yield after each."""
    keys_of = RANKINGS[by]
    for message in messages:
        keys = keys_of(message)
        if keys:
            ranking.add(keys, message.size())
        yield
