"""A story that is told once for every point at which a daemon can be killed, and what must be true at its end.

A story puts mail into a home on which the suite runs. After each kill the suite is started again, as a supervisor
would, until the queue is empty. A story is made anew, with a name of its own, for each run.
"""

import re
import secrets
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol

from support.control import files
from support.killing import MAIN, Point, all_points, died, drive, read_lines, settle, traced_suite
from support.sink import Sink
from support.site import Site, mail_site
from support.suite import Suite

AT_ONCE = 4  # Runs at the same time: for much of its time one waits.
_ENQUEUE_STARTED = re.compile(r"^(clone3?|vfork)\(.*VFORK.*= \d+$")
_RECORD_GONE = re.compile(r'^unlink\(".*/bounce/\d+"\) += 0$')
_MESSAGE_ID = re.compile(rb"^Message-ID: (.*)$", re.IGNORECASE | re.MULTILINE)
_BUG = re.compile("corrupt |Traceback|.*internal error")


class Told(NamedTuple):
    """A run: its points, how many kills there were, and how many of those where a bounce may be sent again.

    `traces` has the calls of the traced thread, one list for each point.
    """

    points: tuple[Point, ...]
    traces: list[list[str]]
    kills: int
    in_window: int
    bounces: int
    wrong: list[str]


class Story(Protocol):
    """What happens in a run, and what is true at its end."""

    def begin(self, site: Site, suite: Suite) -> None:
        """Put mail in, and do what else is to be done while a daemon is killed."""

    def resume(self, site: Site, suite: Suite) -> None:
        """Do what is left, after a restart."""

    def judge(self, site: Site, kills: int) -> Iterable[str]:
        """Return what is wrong at the end, but for the number of bounces."""

    @property
    def most_bounces(self) -> int:
        """Return how many bounces there are without a kill."""


def tell(make: Callable[[str], Story], sink: Sink, points: tuple[Point, ...]) -> Told:
    """Run a story with a kill at each point, one after the other, and then until the queue is empty.

    A point whose number is 0 is never reached: its thread is only traced.
    """
    story = make(secrets.token_hex(4))
    log: list[str] = []
    traces: list[list[str]] = []
    with mail_site() as site, tempfile.TemporaryDirectory() as directory:
        prepare(site, sink)
        for point in points:
            trace = Path(directory, f"trace{len(traces)}")
            with traced_suite(site.home, trace, point) as suite:
                (story.resume if traces else story.begin)(site, suite)
                drive(suite, lambda: files(site.home) == [])
            log += suite.lines
            traces.append(read_lines(trace))
        while files(site.home):
            with Suite(site.home) as suite:
                story.resume(site, suite)
                drive(suite, lambda: files(site.home) == [])
                suite.kill()
                settle(suite)
            log += suite.lines
        kills = sum(map(died, traces))
        windows = sum(map(in_window, points, traces))
        wrong = [*story.judge(site, kills), *filter(_BUG.match, log)]
        count = len(bounces(site))
        if count > story.most_bounces + windows:
            wrong.append(f"{count} bounces, at most {story.most_bounces + windows} expected")
        return Told(points, traces, kills, windows, count, wrong)


def prepare(site: Site, sink: Sink) -> None:
    """Give ann and clara a maildir each, and nobody else."""
    (site.mail.alias / ".qmail-default").unlink()
    site.user_maildir("ann")
    site.user_maildir("clara")
    site.route(sink.port)


def in_window(point: Point, lines: list[str]) -> bool:
    """Return whether queue-send was killed with queue-enqueue started and the record of the failures still there."""
    started = sum(bool(_ENQUEUE_STARTED.match(line)) for line in lines)
    gone = sum(bool(_RECORD_GONE.match(line)) for line in lines)
    return point.thread == MAIN and died(lines) and started > gone


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
    make: Callable[[str], Story], sink: Sink, thread: str, *, before: tuple[Point, ...] = (), since: str = ""
) -> list[Point]:
    """Run a story; return every point of a thread in it, in the run after those that end at the points `before`.

    With `since` only what comes after the first call that matches it.
    """
    told = tell(make, sink, (*before, Point(thread, "", 0, False)))
    assert not told.wrong, told.wrong
    assert told.kills == len(before)
    return all_points(told.traces[-1], thread, since)


def tell_all(make: Callable[[str], Story], sink: Sink, runs: list[tuple[Point, ...]]) -> list[Told]:
    """Run a story once for each series of points, some at the same time; return all of them, in order.

    A run that does not come to its end is one in which something was wrong, too.
    """

    def one(points: tuple[Point, ...]) -> Told:
        try:
            return tell(make, sink, points)
        except AssertionError as error:
            return Told(points, [], len(points), 0, 0, [str(error)])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, runs))


def problems(told: list[Told]) -> list[str]:
    """Return what was wrong in any run, also that nobody was killed in it, for a person."""
    found = []
    for each in told:
        wrong = [*each.wrong, *["nobody was killed"] * (each.kills < len(each.points))]
        found += [f"{'; '.join(map(str, each.points))}: {trouble}" for trouble in wrong]
    return found
