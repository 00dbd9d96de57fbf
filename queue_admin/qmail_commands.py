"""qmail-qstat and qmail-qread: the queue in the forms of qmail's programs, for what reads those. They read only.

qmail-qstat also serves an account that may ask queue-send for counts alone (`Home.counts`).
"""

import os
import time
from collections.abc import Callable, Iterator

from queue_admin.commands.state.stat import count_messages
from queue_admin.messages.admin_client import NoAnswer, SchedulerQueries, may_ask_counts_alone
from queue_admin.messages.detail import CHANNELS, read_detail, read_done_marks
from queue_admin.messages.survey import Stray, survey
from queue_admin.system_accounts import be_owner
from queue_base.errors import TEMPORARY, Failure, Temporary, Usage, complain
from queue_base.home import Home, take_help, take_home, take_queue
from queue_base.queue.layout import open_layout

_USAGE = "usage: {program} [--home HOME] [--queue NAME]"
_QSTAT = """
Prints how many messages are in the queue, and how many of them are not classified yet, as qmail's program of that name.
An account that may read counts alone gets what queue-send knows: a message with local and remote recipients counts
twice then. Exit code 0: done; 100: wrong usage; 111: the queue cannot be read.
"""
_QREAD = """
Prints the classified messages in the queue with their recipients, as qmail's program of that name.
Exit code 0: done; 100: wrong usage; 111: the queue cannot be read.
"""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SEEN = bytes(byte if 32 <= byte <= 126 else ord("_") for byte in range(256))


def qstat_lines(home: Home) -> Iterator[str]:
    """Yield the two lines, of all queues together. Raises Failure."""
    counts = [_known_counts(one) if may_ask_counts_alone(one) else _counts(one) for one in home.each()]
    yield f"messages in queue: {sum(messages for messages, _ in counts)}"
    yield f"messages in queue but not yet preprocessed: {sum(queued for _, queued in counts)}"


def _counts(home: Home) -> tuple[int, int]:
    totals = count_messages(open_layout(home.queue))
    return totals.messages, totals.states["queued"]


def _known_counts(home: Home) -> tuple[int, int]:
    try:
        with SchedulerQueries(home, only_counts=True) as queries:
            figures = queries.figures()
    except NoAnswer as error:
        raise Temporary(f"unable to count messages: {error}") from error
    marked = {each.labels[0]: int(each.number) for each in figures if each.name == b"marked"}
    announced = marked.pop(b"announced", 0)
    waiting = sum(int(each.number) for each in figures if each.name == b"messages")
    return waiting + sum(marked.values()), announced


def qread_lines(home: Home) -> Iterator[str]:
    """Yield the lines of all queues, one after the other. Raises Failure."""
    for one in home.each():
        layout = open_layout(one.queue)
        marks = read_done_marks(layout)
        for snapshot in survey(layout):
            if isinstance(snapshot, Stray) or "info" not in snapshot.files:
                continue
            found = read_detail(layout, snapshot, marks)
            if found is None:
                continue
            snapshot, detail = found
            born = time.gmtime((snapshot.birth or 0) // 1_000_000)
            when = f"{born.tm_mday} {_MONTHS[born.tm_mon - 1]} {time.strftime('%Y %H:%M:%S', born)} GMT"
            bouncing = " bouncing" if "bounce" in snapshot.files else ""
            yield f"{when}  #{snapshot.message}  {snapshot.size or 0}  <{_seen(detail.sender or b'')}> {bouncing}"
            for name in CHANNELS:
                recipients = detail.channels[name].recipients if name in detail.channels else []
                yield from (f"{'  done' if done else ''}\t{name}\t{_seen(address)}" for done, address in recipients)


def _seen(data: bytes) -> str:
    return data.translate(_SEEN).decode("ascii")


def _main(argv: list[str], text: str, lines: Callable[[Home], Iterator[str]]) -> int:
    program = os.path.basename(argv[0])
    usage = _USAGE.format(program=program)
    try:
        home, rest = take_queue(*take_home(argv[1:]))
        if take_help(rest, usage + text):
            return 0
        if rest:
            raise Usage(f"it takes no arguments; {usage}")
        be_owner(home)
        for line in lines(home):
            print(line)
    except Failure as error:
        complain(program, f"fatal: {error}")
        return error.exit_code
    except BrokenPipeError:
        return TEMPORARY
    return 0


def qstat_main(argv: list[str]) -> int:
    """Print the counts; return the exit code: 0, 100 or 111."""
    return _main(argv, _QSTAT, qstat_lines)


def qread_main(argv: list[str]) -> int:
    """Print the messages; return the exit code: 0, 100 or 111."""
    return _main(argv, _QREAD, qread_lines)
