"""The edge of a segment: what depends on what was before it, and what is open after it."""

from collections import Counter
from dataclasses import dataclass, field

from spark.match.found import to_rows
from spark.match.ondemand_log import put_on_top
from spark.match.opening import Call, Opening
from spark.match.repeats import Repeats
from spark.match.rows import Rows
from spark.match.rules import Found, Rules
from spark.match.state import State, add_words


@dataclass
class _Beginning:
    """What depends on what was open before a segment that was matched without knowing it: see Opening and Repeats.

    first: stamp and print of the first line. lowest: the earliest stamp that came twice or late.
    """

    calls: list[Call]
    assumed: list[int]
    claimed: list[int]
    level_begun: bool
    dying_known: bool
    first: tuple[int | None, int | None]
    lowest: int | None


@dataclass
class Edge:
    """What `join` needs of a segment; it can be pickled.

    earliest, latest: stamps of its lines (Unix nanoseconds), None where no line has one. counts: lines by kind, those
    that could not be read as `quarantine`, repeats as `repeated`; `join` puts some right. unknown: of those that could
    not be read the first words that no kind of line has. state: what is open after the segment, where its beginning
    was known; else None.
    """

    host: str
    queue: str
    earliest: int | None = None
    latest: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    state: State | None = None
    # Of a segment whose beginning was known: a line may be a repeat of one before it. Of others: their own state.
    doubtful: bool = False
    inner: State | None = None
    beginning: _Beginning | None = None


def make_edge(rules: Rules, repeats: Repeats, counts: Counter[str], unknown: Counter[str]) -> Edge:
    """Return the edge of a segment that has been matched by these."""
    state = rules.state
    latest = state.stamps.latest if repeats.earliest is not None else None
    edge = Edge(state.host, state.queue, repeats.earliest, latest, counts, unknown, doubtful=repeats.doubtful)
    if not isinstance(rules, Opening):
        edge.state = state
        add_words(state.unknown, unknown)
        return edge
    edge.inner = state
    edge.beginning = _Beginning(
        rules.calls, rules.assumed, rules.claimed, rules.level_begun, rules.dying_known,
        (repeats.first_ns, repeats.first_print), repeats.lowest,
    )  # fmt: skip
    return edge


def fits(state: State, edge: Edge) -> bool:
    """Return whether a segment's rows stand where `state` was before it.

    They do not if a line may have been read before (its stamp is not later than all before), or if the segment took a
    message or a delivery for new that was open. Then match the segment again, with the state before it and `seen`.
    """
    if edge.beginning is None:
        return not edge.doubtful
    begun = edge.beginning
    if _overlaps(state, edge, begun):
        return False
    if any(number in state.deliveries for number in begun.claimed):
        return False
    if len(begun.assumed) < len(state.messages):
        return not any(number in state.messages for number in begun.assumed)
    return state.messages.keys().isdisjoint(begun.assumed)


def _overlaps(state: State, edge: Edge, begun: _Beginning) -> bool:
    """Return whether a line of the segment may be one that was there before."""
    before = state.stamps
    if edge.earliest is None or before.latest is None or edge.earliest > before.latest:
        return False
    time, print_ = begun.first
    if edge.earliest < before.latest or time != edge.earliest or begun.lowest == time:
        return True
    # The first lines have the last stamp before. They go on with that run, if it was the only one with this stamp.
    return before.run_ns != time or not before.run_fresh or before.last_print == print_


def join(state: State, edge: Edge) -> tuple[Rows, State]:
    """Return the rows that are left, and the state after the segment. Both `state` and `edge` are used up."""
    found, place = Found(), {"host": edge.host, "queue": edge.queue}
    if edge.beginning is None or edge.inner is None:
        return to_rows(found, place), edge.state if edge.state is not None else state
    begun, inner = edge.beginning, edge.inner
    add_words(state.unknown, edge.unknown)
    rules = Rules(state, found, edge.counts)
    for name, *given in begun.calls:
        getattr(rules, name)(*given)
    state.messages.update(inner.messages)
    state.deliveries.update(inner.deliveries)
    state.bounces.update(inner.bounces)
    state.sessions.update(inner.sessions)
    for key, one in inner.stored.items():
        put_on_top(state.stored, key, one)
    state.runs.update(inner.runs)
    if begun.level_begun:
        state.level = inner.level
    if begun.dying_known:
        state.dying = inner.dying
    if inner.last_ns is not None:
        state.last_ns = inner.last_ns
    if edge.latest is not None:
        # Where the segment fits, nothing before it has a later stamp, and a run that goes on was fresh.
        state.stamps = inner.stamps
    return to_rows(found, place), state
