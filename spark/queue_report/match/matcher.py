"""From lines to rows: the matcher of one stream.

What is the same for all lines is done by numpy, a block at a time: stamps, repeats, and statuses, a third of all lines.
A plain loop then takes the other lines in the order of the log, and the statuses that say that nothing is in flight.
"""

import numpy as np

from queue_report.match import send_log
from queue_report.match.block import Block, Lines
from queue_report.match.found import Found
from queue_report.match.grammar import HEAD, first_word, parse_event, quick
from queue_report.match.levels import Levels
from queue_report.match.repeats import Repeats, Seen
from queue_report.match.rows import TEXT_MAX, Rows, fill
from queue_report.match.stamps import IS_STAMPED
from queue_report.match.state import State
from queue_report.match.text import escape
from queue_report.schema.columns import UNREADABLE

# What a rule raises that fails on what it was given.
BUGS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, AssertionError)


class Unmatched(Exception):
    """A line that the rules fail on: a bug. It costs its stream, and the others go on."""

    def __init__(self, line: bytes, error: Exception) -> None:
        super().__init__(f"unable to match line {escape(line[:400]).decode()}: {name_bug(error)}")


def name_bug(error: Exception) -> str:
    """Return what a bug's exception says, in one line."""
    return f"{type(error).__name__}: {error}".replace("\n", " ")


# The lines that are most, by the first bytes of an event.
_QUICK = dict(
    quick(rule) for rule in (send_log.start, send_log.done, send_log.new, send_log.info, send_log.end)
)  # fmt: skip


class Matcher:
    """Matches the lines of a stream, which come in the order of the log.

    state: what is open before them; the matcher changes it. seen: the lines that were read before; asked only about
    stamps that are not later than all before. counts: lines by kind, those that could not be read as `quarantine`,
    repeats as `repeated`.
    """

    def __init__(self, state: State, seen: Seen) -> None:
        self._place = {"host": state.host, "queue": state.queue}
        self._found = Found()
        self.counts = self._found.counts
        self._state = state
        self._repeats = Repeats(state.stamps, seen)
        self._levels = Levels()

    def feed(self, lines: Lines) -> Rows:
        """Return the rows that are complete now."""
        if not len(lines.starts):
            return {}
        block = Block(lines)
        if lines.torn:
            for number in range(len(block.starts)):
                self._refuse(block, number, "cut short")
            return self._found.take(self._place)
        if not block.has_stamp.all():
            for number in np.flatnonzero(~block.has_stamp).tolist():
                stamped = IS_STAMPED.match(block.line(number)) is not None
                self._refuse(block, number, "stamp out of range" if stamped else "not stamped")
            block.keep(block.has_stamp)
        if len(block.starts):
            block.read_texts()
            repeats = self._repeats.find(block.times, block.prints, block.line)
            if repeats is not None:
                self.counts["repeated"] += int(repeats.sum())
                block.keep(~repeats)
        if len(block.starts):
            self._match(block)
        rows = self._found.take(self._place)
        if len(block.times):
            columns = {"time_ns": block.times, "print": block.prints}
            rows["lines"] = fill("lines", columns, self._place, len(block.times))
        return rows

    def _refuse(self, block: Block, number: int, reason: str) -> None:
        """Add a line that could not be read to the quarantine."""
        self.counts[UNREADABLE] += 1
        time_ns = int(block.times[number]) if block.has_stamp[number] else None
        # A character has four bytes at most; what is cut in two here is behind the last that is kept.
        text = escape(block.line(number)[: 4 * TEXT_MAX + 4]).decode()[:TEXT_MAX]
        row = {"file": block.file, "line": block.line_number(number), "time_ns": time_ns}
        self._found.rows["quarantine"].append(row | {"reason": reason, "text": text})

    def _match(self, block: Block) -> None:
        """Apply the rules to a block of stamped lines."""
        state, found, times, texts = self._state, self._found, block.times.tolist(), block.events()
        self._levels.tidy()
        is_status = block.find_texts(b"status: ")
        statuses = np.flatnonzero(is_status)
        levels = self._levels.number_texts([texts[place] for place in statuses.tolist()])
        statuses, levels = statuses[levels >= 0], levels[levels >= 0]
        idle = statuses[self._levels.are_idle(levels)]
        # The loop sees all lines but the statuses of deliveries in flight.
        is_status[:] = False
        is_status[statuses] = True
        is_status[idle] = False
        idle_places = set(idle.tolist())
        ends: list[tuple[int, int]] = []  # Where a run has ended, and when.
        strangers: set[int] = set()  # Lines that are not the queue's own.
        tally = {name: 0 for name, _, _ in _QUICK.values()}
        quick_of = _QUICK.get
        number = 0
        try:
            for number in np.flatnonzero(~is_status).tolist():
                text = texts[number]
                known = quick_of(text[:HEAD])
                if known is not None:
                    name, fits, apply = known
                    match = fits(text)
                    if match is not None:
                        tally[name] += 1
                        apply(state, found, times[number], *match.groups())
                        continue
                elif number in idle_places:
                    if state.deliveries:
                        # It crashed, and nobody knows when; what was seen last held until its last line.
                        last = self._last_before(number, times, strangers)
                        ends.append((number, times[number] if last is None else last))
                        send_log.crash(state, found)
                    continue
                event = parse_event(text)
                if event is None:
                    strangers.add(number)
                    self._refuse(block, number, "not a line of the log")
                    word = first_word(text)
                    if word is not None:
                        state.add_unknown(word)
                    continue
                kind, values = event
                found.counts[kind.name] += 1
                if not kind.own:
                    strangers.add(number)
                if kind.rule is send_log.exiting:
                    ends.append((number, times[number]))
                if kind.rule is not None:
                    kind.rule(state, found, times[number], *values)
        except BUGS as error:
            raise Unmatched(block.line(number), error) from error
        state.note_tries()
        found.counts.update(tally)
        found.counts["status"] += len(statuses)
        self._levels.add(state, found, statuses, block.times[statuses], levels, ends)
        state.last_ns = self._last_before(len(times), times, strangers)

    def _last_before(self, number: int, times: list[int], strangers: set[int]) -> int | None:
        """Return the stamp of the queue's last line before one of a block; None where it is not known."""
        number -= 1
        while number in strangers:
            number -= 1
        return times[number] if number >= 0 else self._state.last_ns
