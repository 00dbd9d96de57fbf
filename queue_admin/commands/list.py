"""queuectl list: one line per message, as text or JSON. Reads only."""

import json
import time

import click

from queue_admin.messages.detail import CHANNELS, Detail, mark_reason, read_done_marks
from queue_admin.messages.survey import Snapshot, Stray, look, survey
from queue_admin.printable import span, visible, word
from queue_admin.system_accounts import be_owner
from queue_base.home import find_home
from queue_base.layout import Layout, open_layout
from queue_base.marks_file import LeftMarks
from queue_wire.logline import moment

CHOICES = ["queued", "classified", "incoming", "unknown"]


@click.command("list")
@click.option("--state", type=click.Choice(CHOICES), help="Only messages in this state.")
@click.option("--held", is_flag=True, help="Only messages that are on hold.")
@click.option("--corrupt", is_flag=True, help="Only corrupt messages.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def command(context: click.Context, state: str | None, held: bool, corrupt: bool, form: str) -> None:
    """List the messages in the queue, one per line.

    It needs no lock and changes nothing.

    \b
    Columns: id, state, age, bytes, <sender>, then recipients done/left for each
    channel (`local 1/0 remote 0/2`; `all 0/3` before classification), and the next
    attempt. Then, if they apply: held, corrupt, unreadable, each with the reason.
    With --format json each line is one object.

    \b
    Examples:
      queuectl list
      queuectl list --state queued
      queuectl list --held --format json
    """
    home = find_home(context.obj)
    be_owner(home)
    layout = open_layout(home.queue)
    now = time.time()
    marks = read_done_marks(layout)
    for found in survey(layout):
        if isinstance(found, Stray):
            if not (state or held or corrupt):
                print(stray_line(found, form))
        elif (state in (None, found.state)) and (found.held or not held) and (found.corrupt or not corrupt):
            line = message_line(layout, found, marks, form, now)
            if line:
                print(line)


def stray_line(stray: Stray, form: str) -> str:
    """Return the line for a name that belongs to no message."""
    path = visible(stray.path.encode("utf-8", "surrogateescape"))
    return json.dumps({"stray": path, "trouble": stray.reason}) if form == "json" else f"- stray {path}: {stray.reason}"


def message_line(layout: Layout, snapshot: Snapshot, marks: LeftMarks | None, form: str, now: float) -> str:
    """Return the line for a message, empty if it is gone by now."""
    detail = Detail(layout, snapshot, marks)
    if detail.trouble:
        # The message may have been classified or finished since the look. Look again.
        again = look(layout, snapshot.message)
        if again is None:
            return ""
        snapshot, detail = again, Detail(layout, again, marks)
    facts = message_facts(layout, snapshot, detail, now)
    return json.dumps(facts) if form == "json" else _text(snapshot, detail, facts, now)


def message_facts(layout: Layout, snapshot: Snapshot, detail: Detail, now: float) -> dict[str, object]:
    """Return the JSON object for a message. Times are in seconds since the epoch, birth in microseconds."""
    facts: dict[str, object] = {"id": snapshot.long_id, "message": snapshot.message, "state": snapshot.state}
    facts["birth"] = snapshot.birth
    facts["age"] = None if snapshot.birth is None else max(int(now - snapshot.birth / 1e6), 0)
    facts["bytes"] = snapshot.size
    facts["sender"] = None if detail.sender is None else visible(detail.sender)
    for name in CHANNELS:
        channel = detail.channels.get(name)
        facts[name] = {"done": channel.done, "left": channel.left} if channel else {"done": 0, "left": 0}
    left = len(detail.unsorted_left)
    facts["unsorted"] = {"done": len(detail.unsorted) - left, "left": left}
    due = detail.next_attempt()
    facts["next"] = None if due is None else int(due)
    facts["held"] = visible(mark_reason(layout, "hold", snapshot.message)) if snapshot.held else None
    facts["corrupt"] = visible(mark_reason(layout, "corrupt", snapshot.message)) if snapshot.corrupt else None
    facts["trouble"] = "; ".join(detail.trouble) or None
    return facts


def _text(snapshot: Snapshot, detail: Detail, facts: dict[str, object], now: float) -> str:
    age = "-" if snapshot.birth is None else span(now - snapshot.birth / 1e6)
    size = "-" if snapshot.size is None else str(snapshot.size)
    sender = "-" if detail.sender is None else f"<{word(detail.sender)}>"
    parts = [snapshot.long_id, snapshot.state, age, size, sender]
    if detail.unsorted:
        left = len(detail.unsorted_left)
        parts.append(f"all {len(detail.unsorted) - left}/{left}")
    parts += [f"{name} {channel.done}/{channel.left}" for name, channel in detail.channels.items()]
    due = detail.next_attempt()
    if due is not None and not snapshot.held:
        parts.append("next now" if due <= now else f"next {moment(due)}")
    parts += [f"{name}: {facts[name]}" for name in ("held", "corrupt") if facts[name] is not None]
    if facts["trouble"]:
        parts.append(f"unreadable: {facts['trouble']}")
    return " ".join(parts)
