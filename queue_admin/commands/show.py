"""queuectl show ID: one message as it is on disk, and what queue-send does with it. Reads only."""

import os
import shutil
import sys
import time
from collections.abc import Iterator

import click

from queue_admin.messages.admin_client import NoAnswer, SchedulerQueries
from queue_admin.messages.detail import CHANNELS, Detail, failures, mark_reason, read_done_marks
from queue_admin.messages.survey import Snapshot, look, open_regular, read_head
from queue_admin.printable import span, visible, word
from queue_admin.system_accounts import be_owner
from queue_base.errors import Permanent, Temporary, Usage, reason
from queue_base.home import Home, find_home
from queue_base.layout import Layout, open_layout
from queue_wire.admin.cause import describe as describe_cause
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_long_id
from queue_wire.logline import moment

HEADER_MAX = 65536
NEWLINE = b"\n"
KINDS = ("mess", "intd", "todo", "info", "local", "remote", "bounce")


@click.command("show")
@click.argument("name", metavar="ID")
@click.option("--raw", is_flag=True, help="Print only the message, byte for byte.")
@click.pass_context
def command(context: click.Context, name: str, raw: bool) -> None:
    """Show everything about one message.

    That is its state, files and envelope, what queue-send does with it now or why it waits, each recipient, the
    failures so far, and its header.
    ID is a long id as `queuectl list` prints it, or a bare inode number. A long id never names a later message with
    the same inode number.

    \b
    Examples:
      queuectl show 457-h5x3k2j1z9
      queuectl show --raw 457 >message
    """
    home = find_home(context.obj)
    be_owner(home)
    layout = open_layout(home.queue)
    snapshot = find_message(layout, name)
    if raw:
        _copy(layout.mess(snapshot.message))
        return
    for line in describe(home, layout, snapshot):
        print(line)


def find_message(layout: Layout, name: str) -> Snapshot:
    """Return the message with an id. Raises Usage if the id is invalid, Permanent if there is no such message."""
    try:
        message, birth = unpack_long_id(name)
    except FormatError as error:
        raise Usage(f"unable to find message: {error}") from error
    snapshot = look(layout, message)
    if snapshot is None:
        raise Permanent(f"unable to find message {name}: no such message")
    if birth is not None and snapshot.birth != birth:
        raise Permanent(f"unable to find message {name}: no such message (inode reused by {snapshot.long_id})")
    return snapshot


def describe(home: Home, layout: Layout, snapshot: Snapshot) -> Iterator[str]:
    """Yield the lines of the description."""
    detail = Detail(layout, snapshot, read_done_marks(layout))
    now = time.time()
    yield f"message: {snapshot.long_id}"
    yield f"state: {snapshot.state}"
    if snapshot.birth is not None:
        yield f"birth: {moment(snapshot.birth / 1e6)}, {span(now - snapshot.birth / 1e6)} ago"
    if snapshot.size is not None:
        yield f"bytes: {snapshot.size}"
    yield f"files: {' '.join(_files(layout, snapshot))}"
    if detail.uid is not None:
        yield f"injected by uid: {detail.uid}"
    if detail.sender is not None:
        yield f"sender: <{word(detail.sender)}>"
    for name, kind in (("hold", "held"), ("corrupt", "corrupt")):
        if getattr(snapshot, kind):
            yield f"{kind}: {visible(mark_reason(layout, name, snapshot.message))}"
    for trouble in detail.trouble:
        yield f"unreadable: {trouble}"
    yield from _now(home, snapshot, detail)
    yield from _recipients(detail, now)
    for address, text in failures(layout, snapshot.message):
        yield f"failed: <{word(address)}>: {visible(text.replace(NEWLINE, b' / '))}"
    yield from _header(layout, snapshot)


def _now(home: Home, snapshot: Snapshot, detail: Detail) -> Iterator[str]:
    """Yield queue-send's answer: what it does with the message, or why the message waits."""
    if not (snapshot.presence.todo or snapshot.presence.info):
        return  # It is still being injected; queue-send does not know it yet.
    try:
        with SchedulerQueries(home) as queries:
            for cause in queries.why(snapshot.long_id, detail):
                channel = f"{cause.channel.decode('ascii')}: " if cause.channel else ""
                yield f"now: {channel}{describe_cause(cause)}"
    except NoAnswer as error:
        yield f"now: {error}"


def _recipients(detail: Detail, now: float) -> Iterator[str]:
    if detail.unsorted:
        left = len(detail.unsorted_left)
        yield f"recipients, not yet classified: {len(detail.unsorted) - left} done, {left} left"
        yield from _each(detail.unsorted)
    for name in CHANNELS:
        channel = detail.channels.get(name)
        if channel is None:
            continue
        due = channel.next_attempt
        when = "" if not channel.left else "; next attempt now" if due <= now else f"; next attempt {moment(due)}"
        yield f"{name}: {channel.done} done, {channel.left} left{when}"
        yield from _each(channel.recipients)


def _each(recipients: list[tuple[bool, bytes]]) -> Iterator[str]:
    return (f"  {'done' if done else 'pending'} <{word(address)}>" for done, address in recipients)


def _files(layout: Layout, snapshot: Snapshot) -> list[str]:
    own = {"todo": layout.todo, "intd": layout.intd, "bounce": layout.bounce}
    message, presence = snapshot.message, snapshot.presence
    paths = {kind: own[kind](message) if kind in own else layout.hashed(kind, message) for kind in KINDS}
    return [os.path.relpath(path, layout.queue) for kind, path in paths.items() if getattr(presence, kind)]


def _header(layout: Layout, snapshot: Snapshot) -> Iterator[str]:
    try:
        data = read_head(layout.mess(snapshot.message), HEADER_MAX)
    except OSError:
        return
    yield "header:"
    for line in (NEWLINE + data).split(NEWLINE * 2, 1)[0].removesuffix(NEWLINE).split(NEWLINE)[1:]:
        yield "  " + visible(line.replace(b"\t", b" "))


def _copy(path: str) -> None:
    sys.stdout.flush()
    try:
        source = open_regular(path)
    except OSError as error:
        raise Temporary(f"unable to read {path}: {reason(error)}") from error
    with os.fdopen(source, "rb") as message:
        shutil.copyfileobj(message, sys.stdout.buffer, 1 << 20)
