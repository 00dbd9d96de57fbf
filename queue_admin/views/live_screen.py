"""The lines of `queuectl top --watch`: two readings of each queue, and a ranking, as text for a terminal. Pure.

What comes first matters most: the lines that do not fit are left out at the bottom. Each is cut to the width.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from queue_admin.metrics.reading import Reading
from queue_admin.printable import size_text, span, visible
from queue_wire.admin.figure import Figure
from queue_wire.logline import moment

DESTINATIONS = 8
CHANNELS = (b"local", b"remote")


class LiveQueue(NamedTuple):
    """A queue that is shown; `name` is empty if it is the only one. `before` is an earlier reading, for the rates."""

    name: str
    path: str
    reading: Reading
    before: Reading | None


def live_lines(queues: Sequence[LiveQueue], ranking: Sequence[str], width: int, height: int) -> list[str]:
    """Return at most `height` lines of at most `width` characters."""
    lines: list[str] = []
    for reading, before, head in ((each.reading, each.before, _head(each)) for each in queues):
        same_run = before is not None and before.number(b"started") == reading.number(b"started")
        lines.append(head)
        if reading.figures:
            lines += _rates(reading, before if same_run else None)
            lines += _messages(reading)
        else:
            lines.append(reading.trouble)
    lines += ["", *_processes(queues)]
    lines += _destinations(queues, max(2, min(DESTINATIONS, (height - len(lines)) // 2 - 2)))
    if ranking:
        lines += ["", *ranking]
    return [line[:width] for line in lines[:height]]


def _head(one: LiveQueue) -> str:
    reading, queue = one.reading, f"{one.name}: {one.path}" if one.name else one.path
    if not reading.figures:
        return f"{queue}  {moment(int(reading.at))}"
    up = span(reading.at - reading.number(b"started"))
    marks = "  mail is REFUSED" * reading.refused or "  injectors wait" * reading.slow
    backlog = "" if reading.number(b"read") else "  the backlog is being read"
    free = "" if reading.disk is None else f"  {size_text(reading.disk.free)} free"
    return f"{queue}  {moment(int(reading.at))}  up {up}{free}{marks}{backlog}"


def rate(reading: Reading, before: Reading | None, name: bytes, *labels: bytes) -> float | None:
    """Return by how much a figure has grown a second; None if there is no earlier reading of this run."""
    if before is None or reading.at <= before.at:
        return None
    return max(0.0, reading.number(name, *labels) - before.number(name, *labels)) / (reading.at - before.at)


def _rates(reading: Reading, before: Reading | None) -> Iterator[str]:
    ways = (("in", b"arrived"), ("out", b"ended"))
    words = [f"{text} {_number(rate(reading, before, name))}/s" for text, name in ways]
    for result in (b"success", b"deferral", b"failure"):
        each = [rate(reading, before, b"results", channel, result) for channel in CHANNELS]
        known = [one for one in each if one is not None]
        words.append(f"{result.decode()} {_number(sum(known) if known else None)}/s")
    worst = reading.number(b"turn-recent") * 1000
    yield "rates    " + "  ".join(words) + f"  worst turn {worst:.1f} ms"


def _messages(reading: Reading) -> Iterator[str]:
    for channel in CHANNELS:
        counts = "  ".join(
            f"{state} {reading.number(b'messages', channel, state.encode()):.0f}"
            for state in ("active", "new", "on-disk", "deferred")
        )
        in_flight, most = reading.number(b"running", channel), reading.number(b"running-limit", channel)
        dead = reading.number(b"dead", channel)
        known = reading.number(b"destinations", channel)
        yield (
            f"{channel.decode():<8} {counts}  in flight {in_flight:.0f}/{most:.0f}"
            f"  destinations {known:.0f}, dead {dead:.0f}"
        )
    marked = [f"{state} {reading.number(b'marked', state.encode()):.0f}" for state in MARKS]
    yield "also     " + "  ".join(marked)


MARKS = ("held", "corrupt", "announced", "bouncing", "removing")


def _processes(queues: Sequence[LiveQueue]) -> Iterator[str]:
    yield f"{'process':<14}{'pid':>9}{'CPU %':>8}{'MB':>8}{'up':>9}"
    for name, _, reading, before in queues:
        old = {each.pid: each for each in before.processes} if before is not None else {}
        for each in reading.processes:
            known = old.get(each.pid)
            percent = None
            if known is not None and before is not None and reading.at > before.at:
                percent = 100 * max(0.0, each.cpu - known.cpu) / (reading.at - before.at)
            shown = _number(percent)
            line = f"{each.program:<14}{each.pid:>9}{shown:>8}{each.memory / 1e6:>8.0f}{span(each.age):>9}"
            yield f"{line}  {name}".rstrip()


def _destinations(queues: Sequence[LiveQueue], most: int) -> Iterator[str]:
    dead = _most(queues, b"suspended")
    names = {(one.name, each.labels) for one, each in dead}
    waiting = [(one, each) for one, each in _most(queues, b"waiting") if (one.name, each.labels) not in names]
    if waiting:
        yield ""
        yield f"{'waiting':>8}{'in flight':>11}{'window':>8}  destination"
    for one, each in waiting[:most]:
        in_flight, window = (one.reading.number(name, *each.labels) for name in (b"in-flight", b"window"))
        yield f"{each.number:>8.0f}{in_flight:>11.0f}{window:>8.0f}  {_place(one, each)}"
    if dead:
        yield ""
        yield f"{'waiting':>8}{'deferred':>10}  dead destination, and why"
    for one, each in dead[:most]:
        why = one.reading.reasons.get(each.labels, b"")
        place = _place(one, each) + (f": {visible(why)}" if why else "")
        yield f"{one.reading.number(b'waiting', *each.labels):>8.0f}{each.number:>10.0f}  {place}"


def _most(queues: Sequence[LiveQueue], name: bytes) -> list[tuple[LiveQueue, Figure]]:
    """Return the figures of a name, the largest first, each with its queue."""
    found = [(one, each) for one in queues for each in one.reading.figures if each.name == name]
    return sorted(found, key=lambda pair: (-pair[1].number, pair[1].labels))


def _place(one: LiveQueue, figure: Figure) -> str:
    channel, nexthop = figure.labels
    shown = visible(nexthop) if channel == b"remote" else f"{visible(nexthop)} (local)"
    return f"{shown}, {one.name}" if one.name else shown


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"
