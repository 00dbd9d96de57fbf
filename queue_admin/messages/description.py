"""Everything about one message as `queuectl show` tells it: as lines for people, or as an object. Reads only."""

import os
import time
from collections.abc import Iterator, Sequence

from queue_admin.messages.admin_client import QUERY_WAIT, NoAnswer, SchedulerQueries, ask_for_runs
from queue_admin.messages.detail import CHANNELS, Detail, failures, injector_uid, mark_reason, read_done_marks
from queue_admin.messages.last_results import RecipientState, recipient_states
from queue_admin.messages.message_facts import message_facts, recipient_facts, stored_facts, stored_recipients
from queue_admin.messages.stored_mail import StoredMessage
from queue_admin.messages.survey import FILE_KINDS, Snapshot, read_head
from queue_admin.printable import one_line, span, visible, word
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_base.queue.layout import Layout
from queue_wire.admin.cause import LIFE
from queue_wire.admin.cause import describe as describe_cause
from queue_wire.admin.ondemand_socket import NO_LINE, RUNNING, WHEN, RunRequest
from queue_wire.ids import pack_queue_id
from queue_wire.logline import moment

HEADER_MAX = 65536
NEWLINE = b"\n"


def describe(
    home: Home, layout: Layout, snapshot: Snapshot, stored: Sequence[StoredMessage] = ()
) -> Iterator[str]:
    """Yield the lines of the description. `stored`: where it is stored for other recipients."""
    detail = Detail(layout, snapshot, read_done_marks(layout))
    now = time.time()
    yield f"message: {pack_queue_id(home.name, snapshot.long_id)}"
    yield f"state: {snapshot.state}"
    if snapshot.birth is not None:
        yield f"birth: {moment(snapshot.birth / 1e6)}, {span(now - snapshot.birth / 1e6)} ago"
    if snapshot.size is not None:
        yield f"bytes: {snapshot.size}"
    yield f"files: {' '.join(_files(layout, snapshot))}"
    uid = injector_uid(layout, snapshot, detail)
    if uid is not None:
        yield f"injected by uid: {uid}"
    if detail.sender is not None:
        yield f"sender: <{word(detail.sender)}>"
    if detail.priority:
        yield f"priority: {detail.priority}"
    for name, kind in (("hold", "held"), ("corrupt", "corrupt")):
        if getattr(snapshot, kind):
            yield f"{kind}: {visible(mark_reason(layout, name, snapshot.message))}"
    for trouble in detail.trouble:
        yield f"unreadable: {trouble}"
    yield from _now(home, snapshot, detail)
    yield from _recipients(detail, list(recipient_states(layout, snapshot, detail)), now)
    for address, text in failures(layout, snapshot.message):
        yield f"failed: <{word(address)}>: {one_line(text)}"
    yield from _stored(home, stored, now)
    yield from _header(layout.mess(snapshot.message))


def describe_stored(home: Home, stored: Sequence[StoredMessage]) -> Iterator[str]:
    """Yield the lines about a message that is only stored, for on-demand domains."""
    first, now = stored[0].first, time.time()
    yield f"message: {pack_queue_id(home.name, first.long_id)}"
    yield "state: stored"
    yield f"birth: {moment(first.birth / 1e6)}, {span(now - first.birth / 1e6)} ago"
    yield f"bytes: {first.size}"
    yield f"files: {' '.join(each.path for each in stored)}"
    yield f"sender: <{word(first.sender)}>"
    yield from _stored(home, stored, now)
    yield from _header(f"{home.queue}/{stored[0].path}")


def describe_stored_as_facts(home: Home, stored: Sequence[StoredMessage]) -> dict[str, object]:
    """Return the JSON object about such a message; `stored` has the domains."""
    facts = stored_facts(stored[0], time.time())
    facts["id"] = pack_queue_id(home.name, stored[0].long_id)
    facts["remote"] = {"done": 0, "left": sum(len(each.recipients) for each in stored)}
    facts["stored"] = [each.domain.decode() for each in stored]
    facts["uid"] = None
    facts["files"] = [each.path for each in stored]
    facts["now"] = [f"{each.domain.decode()}: {_waits_for(home, each)}" for each in stored]
    facts["recipients"] = [recipient for each in stored for recipient in stored_recipients(each)]
    facts["failed"] = []
    return facts


def _stored(home: Home, stored: Sequence[StoredMessage], now: float) -> Iterator[str]:
    for each in stored:
        since = each.first.since
        when = f"since {moment(since)}, {span(now - since)} ago; " if since else ""
        yield f"stored for {each.domain.decode()}: {when}{_waits_for(home, each)}"
        for address in each.recipients:
            yield f"  pending <{word(address)}>"


def _waits_for(home: Home, message: StoredMessage) -> str:
    """Return what a stored message waits for."""
    if message.ordered:
        return f"ordered: {message.ordered}, which queue-ondemand has not done yet"
    if message.held is not None:
        return f"held: {visible(message.held.encode())}"
    try:
        [answer] = ask_for_runs(home, [RunRequest(WHEN, message.domain)], QUERY_WAIT)
    except Temporary:
        return "queue-ondemand does not run, or does not answer"
    if answer.word == RUNNING:
        return "what is stored for the domain is being delivered"
    if answer.text == NO_LINE:
        name = message.domain.decode()
        return f"{name} has no line in control/ondemand any more; queuectl requeue sends it by normal routing"
    if answer.text.isdigit():
        return f"waits for its host to ask, or the next probe in {span(int(answer.text))}"
    return "waits for its host to ask; no probe is planned"


def describe_as_facts(home: Home, layout: Layout, snapshot: Snapshot) -> dict[str, object]:
    """Return the JSON object: that of list, with the recipients and what `now:`, `life:` and `failed:` lines say."""
    detail = Detail(layout, snapshot, read_done_marks(layout))
    facts = message_facts(layout, snapshot, detail, time.time())
    facts["id"] = pack_queue_id(home.name, snapshot.long_id)
    facts["uid"] = injector_uid(layout, snapshot, detail)
    facts["files"] = _files(layout, snapshot)
    found = list(_now(home, snapshot, detail))
    for kind in ("now", "life"):
        facts[kind] = [line.removeprefix(f"{kind}: ") for line in found if line.startswith(kind)]
    facts["recipients"] = [recipient_facts(each) for each in recipient_states(layout, snapshot, detail)]
    facts["failed"] = [
        {"address": visible(address), "reason": one_line(text)}
        for address, text in failures(layout, snapshot.message)
    ]
    return facts


def _now(home: Home, snapshot: Snapshot, detail: Detail) -> Iterator[str]:
    """Yield queue-send's answer: what it does with the message, or why the message waits."""
    if not {"todo", "info"}.intersection(snapshot.files):
        return  # It is still being injected; queue-send does not know it yet.
    try:
        with SchedulerQueries(home) as queries:
            for cause in queries.why(snapshot.long_id, detail):
                channel = f"{cause.channel.decode('ascii')}: " if cause.channel else ""
                yield f"{'life' if cause.kind == LIFE else 'now'}: {channel}{describe_cause(cause)}"
    except NoAnswer as error:
        yield f"now: {error}"


def _recipients(detail: Detail, states: list[RecipientState], now: float) -> Iterator[str]:
    if detail.unsorted:
        left = len(detail.unsorted_left)
        yield f"recipients, not yet classified: {len(detail.unsorted) - left} done, {left} left"
        yield from _each(states, "unsorted")
    for name in CHANNELS:
        channel = detail.channels.get(name)
        if channel is None:
            continue
        due = channel.next_attempt
        when = "" if not channel.left else "; next attempt now" if due <= now else f"; next attempt {moment(due)}"
        yield f"{name}: {channel.done} done, {channel.left} left{when}"
        yield from _each(states, name)


def _each(states: list[RecipientState], channel: str) -> Iterator[str]:
    for each in states:
        if each.channel != channel:
            continue
        yield f"  {'done' if each.done else 'pending'} <{word(each.address)}>"
        if each.last is not None:
            text = one_line(each.last.text)
            yield f"    {moment(each.last.when)} {visible(each.last.nexthop)}: {text}"


def _files(layout: Layout, snapshot: Snapshot) -> list[str]:
    own = {"todo": layout.todo, "intd": layout.intd, "bounce": layout.bounce}
    message = snapshot.message
    paths = {kind: own[kind](message) if kind in own else layout.hashed(kind, message) for kind in FILE_KINDS}
    return [os.path.relpath(path, layout.queue) for kind, path in paths.items() if kind in snapshot.files]


def _header(path: str) -> Iterator[str]:
    try:
        data = read_head(path, HEADER_MAX)
    except OSError:
        return
    yield "header:"
    for line in (NEWLINE + data).split(NEWLINE * 2, 1)[0].removesuffix(NEWLINE).split(NEWLINE)[1:]:
        yield "  " + visible(line.replace(b"\t", b" "))
