"""From lines to rows: the matcher of one stream.

What is the same for all lines is done by numpy, a block at a time: stamps, repeats, and statuses, a third of all lines.
A plain loop then takes the other lines in the order of the log, and the statuses that say that nothing is in flight.
"""

from collections import Counter

import numpy as np

from queue_report.match import smtp_log
from queue_report.match.block import Block
from queue_report.match.found import to_rows
from queue_report.match.grammar import FITS, SAFE_DIGITS, counted_as, first_word, parse_event
from queue_report.match.lines import Lines
from queue_report.match.quarantine import Quarantine
from queue_report.match.repeats import Prints, Repeats, Seen, Times
from queue_report.match.rows import NAMES, Rows, fill
from queue_report.match.rules import Found, Rules
from queue_report.match.stamps import IS_STAMPED
from queue_report.match.state import State, add_words
from queue_report.match.statuses import Levels, Statuses
from queue_report.match.text import escape

_START, _DONE, _NEW, _INFO, _END = range(1, 6)
# The first bytes of an event say which of these kinds it is, if it is one of them.
_HEADS = {b"start": _START, b"deliv": _DONE, b"new m": _NEW, b"info ": _INFO, b"end m": _END}
_RESULTS = {b"success": "success", b"failure": "failure", b"deferral": "deferral"}
# Kinds with a rule of their name that come by parse_event.
_RULED = frozenset(("new", "info", "start", "mangled", "bounce", "triple", "hold", "delete", "release", "end", "alert"))
_ONDEMAND = frozenset(f"ondemand_{word}" for word in ("stored", "done", "stays", "requeued", "started", "ended"))
# All kinds of the grammar; those that no rule above takes are counted, no more.
TAKEN = frozenset((
    *_RULED, *_ONDEMAND, *smtp_log.RULED, *smtp_log.COUNTED, "smtp_start", "smtp_gone", "tcpserver",
    "status", "exiting", "done", "corrupt", "dest", "delay", "requeue", "ondemand", "inflow", "config", "warning",
))  # fmt: skip

# How the trouble of a stream begins that is a bug here, not a log that cannot be read.
UNMATCHED = "unable to match"
# What a rule raises that fails on what it was given.
BUGS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, AssertionError)


class Unmatched(Exception):
    """A line that the rules fail on: a bug. It costs its stream, and the others go on."""

    def __init__(self, line: bytes, error: Exception) -> None:
        super().__init__(f"{UNMATCHED} line {escape(line[:400]).decode()}: {name_bug(error)}")


def name_bug(error: Exception) -> str:
    """Return what a bug's exception says, in one line."""
    return f"{type(error).__name__}: {error}".replace("\n", " ")


class Matcher:
    """Matches the lines of a stream, which come in the order of the log.

    state: what is open before them; the matcher changes it. seen: the lines that were read before; asked only about
    stamps that are not later than all before. counts: lines by kind, those that could not be read as `quarantine`,
    repeats as `repeated`.
    """

    def __init__(self, state: State, seen: Seen) -> None:
        self.counts: Counter[str] = Counter()
        self._place = {"host": state.host, "queue": state.queue}
        self._found = Found()
        self._rules = Rules(state, self._found, self.counts)
        self._state = state
        self._repeats = Repeats(state.stamps, seen)
        self._statuses = Statuses()

    def feed(self, lines: Lines) -> Rows:
        """Return the rows that are complete now."""
        if not len(lines.starts):
            return dict.fromkeys(NAMES)
        block = Block(lines)
        bad = Quarantine(lines, self._place)
        if lines.torn:
            self.counts["quarantine"] += len(lines.starts)
            for number, (time, has) in enumerate(zip(block.times.tolist(), block.has_stamp.tolist(), strict=True)):
                bad.add(block, number, "cut short", time if has else None)
            return self._rows(bad, block.times[:0], block.prints[:0])
        if not block.has_stamp.all():
            unread = np.flatnonzero(~block.has_stamp).tolist()
            self.counts["quarantine"] += len(unread)
            for number in unread:
                stamped = IS_STAMPED.match(block.line(number)) is not None
                bad.add(block, number, "stamp out of range" if stamped else "not stamped", None)
            block.keep(block.has_stamp)
        if not len(block.starts):
            return self._rows(bad, block.times, block.prints)
        block.read_texts()
        repeats = self._repeats.find(block.times, block.prints, block.line)
        if repeats is not None:
            self.counts["repeated"] += int(repeats.sum())
            block.keep(~repeats)
        if len(block.starts):
            self._match(block, bad)
        return self._rows(bad, block.times, block.prints)

    def _match(self, block: Block, bad: Quarantine) -> None:
        """Apply the rules to a block of stamped lines."""
        rules, times, texts = self._rules, block.times.tolist(), block.events()
        levels = Levels(self._statuses, rules, block, texts)
        new, info, start, done, end = rules.new, rules.info, rules.start, rules.done, rules.end
        fits_start, fits_done, fits_new = FITS["start"], FITS["done"], FITS["new"]
        fits_info, fits_end = FITS["info"], FITS["end"]
        starts = results = news = infos = ends = 0
        head_of = _HEADS.get
        strangers: set[int] = set()  # Lines that are not the queue's own.
        number = 0
        try:
            for number in levels.lines_for_rules():
                text = texts[number]
                kind = head_of(text[:5])
                # What does not fit, or has a number of so many digits that it may be too large, is looked at below.
                if kind == _DONE:
                    if (match := fits_done(text)) is not None:
                        delivery, result, reason = match.groups()
                        if len(delivery) <= SAFE_DIGITS:
                            results += 1
                            done(times[number], int(delivery), _RESULTS[result], reason)
                            continue
                elif kind == _START:
                    if (match := fits_start(text)) is not None:
                        delivery, message, address = match.groups()
                        if len(delivery) <= SAFE_DIGITS and len(message) <= SAFE_DIGITS:
                            starts += 1
                            start(times[number], int(delivery), int(message), address)
                            continue
                elif kind == _NEW:
                    if (match := fits_new(text)) is not None and len(text) <= SAFE_DIGITS + 8:
                        news += 1
                        new(times[number], int(match[1]))
                        continue
                elif kind == _INFO:
                    if (match := fits_info(text)) is not None:
                        message, size, sender, qp, uid = match.groups()
                        if max(len(message), len(size), len(qp), len(uid)) <= SAFE_DIGITS:
                            infos += 1
                            info(times[number], int(message), int(size), sender, int(qp), int(uid))
                            continue
                elif kind == _END:
                    if (match := fits_end(text)) is not None and len(text) <= SAFE_DIGITS + 8:
                        ends += 1
                        end(times[number], int(match[1]))
                        continue
                elif levels.is_level(number):
                    if not rules.is_idle():
                        levels.advance(number)
                        rules.idle(times[number], self._last_before(number, times, strangers), levels.take(number))
                    continue
                self._rare(block, number, times[number], text, levels, strangers, bad)
            levels.advance(None)
        except BUGS as error:
            raise Unmatched(block.line(number), error) from error
        for name, count in (("start", starts), ("done", results), ("new", news), ("info", infos), ("end", ends)):
            self.counts[name] += count
        self.counts["status"] += levels.count
        self._state.last_ns = self._last_before(len(times), times, strangers)

    def _last_before(self, number: int, times: list[int], strangers: set[int]) -> int | None:
        """Return the stamp of the queue's last line before one of a block; None where it is not known."""
        number -= 1
        while number in strangers:
            number -= 1
        return times[number] if number >= 0 else self._state.last_ns

    def _rare(
        self, block: Block, number: int, at: int, text: bytes, levels: Levels, strangers: set[int],
        bad: Quarantine,
    ) -> None:  # fmt: skip
        """Take a line of a kind that few lines have, or of none."""
        event = parse_event(text)
        if event is None:
            strangers.add(number)
            self.counts["quarantine"] += 1
            self._count_unknown(text)
            bad.add(block, number, "not a line of the log", at)
            return
        kind, values = event
        if kind not in TAKEN and not kind.startswith("foreign "):
            strangers.add(number)
            self.counts["quarantine"] += 1
            bad.add(block, number, f"no rule for {kind}", at)
            return
        if kind.startswith("foreign "):
            strangers.add(number)
            kind = counted_as(kind)
            self.counts[kind] += 1
            if kind != "config":
                self._found.alerts.append((at, kind, bytes(values[0])))
            return
        self.counts[counted_as(kind)] += 1
        if kind.startswith("smtp_") or kind == "tcpserver":
            strangers.add(number)
            if kind == "smtp_start":
                self._rules.smtp_start(at, *map(int, values))
            elif kind == "smtp_gone":
                self._rules.smtp_gone(at, int(values[0]))
            elif kind in smtp_log.RULED:
                self._rules.smtp_line(kind, at, int(values[0]), *values[1:])
            return
        if kind == "alert" or kind == "warning":
            self._found.alerts.append((at, kind, bytes(values[0])))
        if kind in _ONDEMAND:
            getattr(self._rules, kind)(at, *values)
        elif kind == "exiting":
            levels.advance(number)
            self._rules.exiting(at)
        elif kind == "done":
            delivery, result, reason = values
            self._rules.done(at, int(delivery), _RESULTS[bytes(result)], bytes(reason))
        elif kind in _RULED:
            getattr(self._rules, kind)(at, *values)

    def _count_unknown(self, text: bytes) -> None:
        word = first_word(text)
        if word is not None:
            add_words(self._state.unknown, {word: 1})

    def _rows(self, bad: Quarantine, times: Times, prints: Prints) -> Rows:
        """Return what was found."""
        rows = to_rows(self._found, self._place)
        self._found.clear()
        rows["quarantine"] = bad.rows()
        if len(times):
            rows["lines"] = fill("lines", {"time_ns": times, "print": prints}, self._place, len(times))
        return rows
