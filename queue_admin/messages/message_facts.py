"""A message and its recipients as the objects that `--format json` prints: docs/operating.md has the keys."""

from queue_admin.messages.detail import CHANNELS, Detail, look_at_mark, mark_reason
from queue_admin.messages.last_results import DeadNexthops, RecipientState, newest_reason
from queue_admin.messages.stored_mail import StoredMessage
from queue_admin.messages.survey import Snapshot
from queue_admin.printable import one_line, precise, visible
from queue_base.queue.layout import Layout
from queue_wire.files.hold_mark import HoldOrder
from queue_wire.logline import moment


def recipient_facts(recipient: RecipientState) -> dict[str, object]:
    """Return the JSON object for a recipient. `time`, `nexthop` and `reason` are those of its last result, or null."""
    last = recipient.last
    return {
        "address": visible(recipient.address),
        "channel": recipient.channel,
        "done": recipient.done,
        "time": None if last is None else moment(last.when),
        "nexthop": None if last is None else visible(last.nexthop),
        "reason": None if last is None else one_line(last.text),
    }


def message_facts(
    layout: Layout, snapshot: Snapshot, detail: Detail, now: float, dead: DeadNexthops | None = None
) -> dict[str, object]:
    """Return the JSON object for a message, without its recipients. `dead` as in newest_reason."""
    facts: dict[str, object] = {"id": snapshot.long_id, "message": snapshot.message, "state": snapshot.state}
    facts["birth"] = None if snapshot.birth is None else precise(snapshot.birth)
    facts["age"] = None if snapshot.birth is None else max(int(now - snapshot.birth / 1e6), 0)
    facts["bytes"] = snapshot.size
    facts["sender"] = None if detail.sender is None else visible(detail.sender)
    facts["priority"] = detail.priority or None
    for name in CHANNELS:
        channel = detail.channels.get(name)
        facts[name] = {"done": channel.done, "left": channel.left} if channel else {"done": 0, "left": 0}
    left = len(detail.unsorted_left)
    facts["unsorted"] = {"done": len(detail.unsorted) - left, "left": left}
    due = detail.next_attempt()
    facts["next"] = None if due is None else moment(due)
    mark = look_at_mark(layout, "hold", snapshot.message) if snapshot.held else None
    facts["deleted"] = mark is not None and mark.order == HoldOrder.DELETE
    facts["held"] = None if mark is None or facts["deleted"] else visible(mark.reason)
    facts["corrupt"] = visible(mark_reason(layout, "corrupt", snapshot.message)) if snapshot.corrupt else None
    facts["trouble"] = "; ".join(detail.trouble) or None
    facts["last"] = newest_reason(layout, snapshot, detail, dead) or None
    facts["stored"] = None
    return facts


def stored_facts(message: StoredMessage, now: float) -> dict[str, object]:
    """Return the JSON object for a message that is stored for an on-demand domain, without its recipients."""
    first = message.first
    nothing = {"done": 0, "left": 0}
    return {
        "id": first.long_id, "message": first.message, "state": "stored", "birth": precise(first.birth),
        "age": max(int(now - first.birth / 1e6), 0), "bytes": first.size, "sender": visible(first.sender),
        "priority": None, "local": nothing, "remote": {"done": 0, "left": len(message.recipients)},
        "unsorted": nothing, "next": None, "deleted": message.ordered == "delete",
        "held": None if message.held is None else visible(message.held.encode()), "corrupt": None, "trouble": None,
        "last": f"ordered: {message.ordered}" if message.ordered else None, "stored": message.domain.decode(),
    }  # fmt: skip


def stored_recipients(message: StoredMessage) -> list[dict[str, object]]:
    """Return the JSON objects for the recipients of a stored message."""
    same = {"channel": "remote", "done": False, "time": None, "nexthop": None, "reason": None}
    return [{"address": visible(address), **same} for address in message.recipients]
