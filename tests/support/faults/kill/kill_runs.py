"""A story that is told once for every point at which a daemon can be killed, and what must be true at its end.

A story puts mail into a home on which the suite runs. After each kill the suite is started again, as a supervisor
would, until the queue is empty. A story is made anew, with a name of its own, for each run.

How often a thread makes a call differs from run to run: queue-clean removes together what has come together, and the
loop takes what is there in each of its turns. So a point may not be reached; then its run is repeated some times.
"""

import re
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol

from support.faults.kill.killing import (
    CLEAN,
    KEEPER,
    KEEPER_DISK,
    MAIN,
    TODO,
    Point,
    all_points,
    died,
    drive,
    loop_trace,
    read_lines,
    settle,
    traced_suite,
)
from support.processes.forked import BIN
from support.processes.suite import Suite
from support.send.control import files
from support.servers.smtp.sink import Sink
from support.site import Site, mail_site

AT_ONCE = 4  # Runs at the same time: for much of its time one waits.
TRIES = 6  # Runs for a point that is not reached.
UNREACHED = 0.1  # The share of a test's points that need not be reached in any of them: none of fewer than ten.
_ENQUEUE_STARTED = re.compile(r"^clone3?\(.*VFORK.*= \d+$")
_ENQUEUE_STARTING = re.compile(r"^clone3?\(.*VFORK(?!.*= -?\d)")
_RECORD_GONE = re.compile(r'^unlink\(".*/bounce/\d+"\) += 0$')
_STORED = re.compile(r"^write\(.*\.cluster>")
_MESSAGE_ID = re.compile(rb"^Message-ID: (.*)$", re.IGNORECASE | re.MULTILINE)
_NEW = re.compile(r"new msg (\d+)$")
_INFO = re.compile(r"info msg (\d+): ")
_ABOUT = re.compile(r"(?:starting delivery \d+:|bounce|end) msg (\d+)\b")
_BUG = re.compile("corrupt |Traceback|.*internal error")


class Told(NamedTuple):
    """A run: its points, how many kills there were, and how many bounces may have been sent again after them.

    `traces` has the calls of the traced thread, one list for each point.
    """

    points: tuple[Point, ...]
    traces: list[list[str]]
    kills: int
    in_window: int
    bounces: int
    wrong: list[str]

    @property
    def reached(self) -> bool:
        """Whether there was a kill at each of its points."""
        return self.kills == len(self.points)


class Story(Protocol):
    """What happens in a run, and what is true at its end. `most_bounces`: how many there are without a kill."""

    most_bounces: int

    def prepare(self, site: Site) -> None:
        """Put into the home what is there before the first start: nothing, unless a story says otherwise."""
        return

    def begin(self, site: Site, suite: Suite) -> None:
        """Put mail in, and do what else is to be done while a daemon is killed."""

    def resume(self, site: Site, suite: Suite) -> None:
        """Do what is left, after a restart: nothing, unless a story says otherwise."""
        return

    def judge(self, site: Site, kills: int) -> Iterable[str]:
        """Return what is wrong at the end, but for the number of bounces."""


def tell(
    make: Callable[[str], Story],
    sink: Sink,
    points: tuple[Point, ...],
    programs: Path = BIN,
    classifyafter: str = "",
) -> Told:
    """Run a story with a kill at each point, one after the other, and then until the queue is empty.

    A point whose number is 0 is never reached: its thread is only traced. `programs` are those before the last kill.
    `classifyafter` is a control file's value, by default what the home has.
    """
    story = make(secrets.token_hex(4))
    log: list[str] = []
    traces: list[list[str]] = []
    windows = 0
    with mail_site() as site, tempfile.TemporaryDirectory() as directory:
        prepare(site, sink)
        if classifyafter:
            site.control("classifyafter", classifyafter)
        story.prepare(site)
        for point in points:
            trace = Path(directory, f"trace{len(traces)}")
            with traced_suite(site.home, trace, point, programs) as suite:
                (story.resume if traces else story.begin)(site, suite)
                drive(suite, lambda: is_over(site))
            log += suite.lines
            traces.append(read_lines(trace))
            windows += in_window(point, traces[-1], read_lines(loop_trace(trace, point)))
        while files(site.home):
            with Suite(site.home) as suite:
                story.resume(site, suite)
                drive(suite, lambda: is_over(site))
                suite.kill()
                settle(suite)
            log += suite.lines
        kills = sum(map(died, traces))
        wrong = [*story.judge(site, kills), *filter(_BUG.match, log), *untold(log)]
        count = len(bounces(site))
        if count > story.most_bounces + windows:
            wrong.append(f"{count} bounces, at most {story.most_bounces + windows} expected")
        return Told(points, traces, kills, windows, count, wrong)


def untold(log: list[str]) -> Iterator[str]:
    """Yield the lines about messages whose own lines the log has not: they would have left todo/ before those."""
    known: set[str] = set()
    for line in log:
        if found := _NEW.match(line):
            known.discard(found[1])
        elif found := _INFO.match(line):
            known.add(found[1])
        elif (found := _ABOUT.match(line)) and found[1] not in known:
            yield f"without new and info before it: {line}"


def prepare(site: Site, sink: Sink) -> None:
    """Give ann and clara a maildir each, and nobody else."""
    (site.mail.alias / ".qmail-default").unlink()
    site.user_maildir("ann")
    site.user_maildir("clara")
    site.route(sink.port)


def is_over(site: Site) -> bool:
    """Return whether the queue is empty."""
    # Two looks: in the first a bounce may come where it has looked, and its message go where it has not.
    return not files(site.home) and not files(site.home)


def in_window(point: Point, lines: list[str], loop: list[str]) -> int:
    """Return how many bounces were on their way when queue-send was killed, which will be sent once more.

    Those are the messages whose queue-enqueue was started, by the trace `loop`, and whose record of the failures was
    still there. There can be more than one: a bounce may fail, and its own bounce be started, before the loop hears
    that the queue-enqueue of the first has ended. Then the failed bounce is told of once more, and so is its own
    repetition.

    When queue-ondemand is killed, `loop` is its own trace. It has one bounce of a domain on its way, until the records
    are marked. What it has stored, and queue-send has not heard of, is stored once more, and so may be returned twice.
    """
    if not died(lines) or (point.thread in (CLEAN, TODO) and not point.everybody):
        return 0  # When another daemon is killed, queue-send waits for what is on its way.
    if point.thread in (KEEPER, KEEPER_DISK):
        bounces = any(_ENQUEUE_STARTED.match(line) or _ENQUEUE_STARTING.match(line) for line in loop)
        return int(bounces or any(map(_STORED.match, lines)))
    started = sum(bool(_ENQUEUE_STARTED.match(line)) for line in loop)
    if point.thread != MAIN:
        # A kill of another thread may come in the middle of this call, when the child is already there.
        started += sum(bool(_ENQUEUE_STARTING.match(line)) for line in loop)
    return started - sum(bool(_RECORD_GONE.match(line)) for line in loop)


def bounces(site: Site) -> dict[bytes, bytes]:
    """Return the bounces that ann got, by their Message-ID: a second copy of one is no second bounce."""
    found = {}
    for path in (site.mail.alias / "ann" / "new").iterdir():
        content = path.read_bytes()
        header = _MESSAGE_ID.search(content)
        assert header is not None, content
        found[header[1]] = content
    return found


def find_points(
    make: Callable[[str], Story],
    sink: Sink,
    thread: str,
    *,
    before: tuple[Point, ...] = (),
    since: tuple[str, ...] = (),
    programs: Path = BIN,
    classifyafter: str = "",
) -> list[Point]:
    """Run a story; return every point of a thread in it, in the run after those that end at the points `before`.

    With `since` only what comes after calls have matched all of it. A run in which one of `before` was not reached is
    repeated.
    """
    for _ in range(TRIES):
        told = tell(make, sink, (*before, Point(thread, "", 0, False)), programs, classifyafter)
        assert not told.wrong, told.wrong
        if told.kills == len(before):
            break
    assert told.kills == len(before), f"not reached in {TRIES} runs: {'; '.join(map(str, before))}"
    return all_points(told.traces[-1], thread, since)


def tell_all(
    make: Callable[[str], Story], sink: Sink, runs: list[tuple[Point, ...]], classifyafter: str = ""
) -> list[Told]:
    """Run a story for each series of points, some at the same time; return all of them, in order.

    A run in which a point was not reached is repeated. One that does not come to its end is one in which something
    was wrong, too.
    """

    def one(points: tuple[Point, ...]) -> Told:
        try:
            told = tell(make, sink, points, classifyafter=classifyafter)
            for _ in range(1, TRIES):
                if told.reached or told.wrong:
                    break
                told = tell(make, sink, points, classifyafter=classifyafter)
            return told
        except AssertionError as error:
            return Told(points, [], len(points), 0, 0, [str(error)])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, runs))


def problems(told: list[Told]) -> list[str]:
    """Return what was wrong in any run, and which points were not reached if they are too many, for a person."""
    unreached = [each for each in told if not each.reached]
    too_many = len(unreached) > int(UNREACHED * len(told))
    found = []
    for each in told:
        wrong = [*each.wrong, *["nobody was killed"] * (too_many and not each.reached)]
        found += [f"{'; '.join(map(str, each.points))}: {trouble}" for trouble in wrong]
    return found


def figures(told: list[Told]) -> str:
    """Return how many runs had their kills, and how many had not, for a person."""
    reached = sum(each.reached for each in told)
    windows = sum(each.in_window for each in told)
    return f"{reached} of {len(told)} points reached; {windows} bounces on their way at a kill"
