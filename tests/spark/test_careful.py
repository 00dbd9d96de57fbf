"""Lines that are there twice are looked for only where something is doubtful; then they are, and all is as it must be.

Looking for them takes long, and hardly a log has any. match is called once for a log that has none, and calls itself,
carefully, where it has seen a doubtful line.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pyspark.sql import SparkSession

from spark.windows import match
from support.spark.log_files import lines_of, write_files
from support.spark.log_lake import Lake
from support.spark.log_reference import read_stream
from support.spark.log_rows import Truth, agree

pytestmark = pytest.mark.together

Log: TypeAlias = list[tuple[int, str]]
SECOND = 10**9
BEGIN = 1_700_000_000 * SECOND
IDLE, BUSY = "status: local 0/10 remote 0/20", "status: local 1/10 remote 1/20"


def life(message: int, delivery: int, result: str) -> list[str]:
    """Return what is said of a message with two recipients, the numbers of whose deliveries begin at `delivery`."""
    texts = [
        f"new msg {message}",
        f"info msg {message}: bytes {70 + message} from <s@a.example> qp {message + 1000} uid 9",
        f"starting delivery {delivery}: msg {message} to remote r@D.example",
        f"starting delivery {delivery + 1}: msg {message} to local l@here.example",
        BUSY,
        f"delivery {delivery + 1}: success: did_1+0+0/",
        f"delivery {delivery}: {result}: said_so/",
        IDLE,
        f"bounce msg {message} qp {message + 2000}",
        f"end msg {message}",
    ]
    # A crash comes when both are in flight.
    cut = {"failure": 10, "crash": 5, "deferral": 8}.get(result)
    return texts[:cut] if cut else [*texts[:8], texts[9]]


def calm_log() -> Log:
    """Return a log with a line a second and nothing odd: results of each kind, a crash, a stop, some left in flight."""
    texts = [IDLE, *life(401, 1, "success"), *life(402, 3, "failure"), *life(403, 5, "crash")]
    texts += [IDLE, *life(404, 1, "success"), *life(405, 3, "deferral"), *life(401, 5, "success"), "status: exiting"]
    texts += [IDLE, *life(406, 1, "failure"), *life(402, 3, "crash")]
    return [(BEGIN + number * SECOND, text) for number, text in enumerate(texts)]


def place(log: Log, text: str) -> int:
    """Return where the first line is that begins so."""
    return next(number for number, line in enumerate(log) if line[1].startswith(text))


def said_twice(text: str, later: int = 0) -> Callable[[Log], Log]:
    """Return what puts a line there once more, `later` lines behind it."""

    def change(log: Log) -> Log:
        at = place(log, text)
        return [*log[: at + 1 + later], log[at], *log[at + 1 + later :]]

    return change


def step_back(log: Log) -> Log:
    at = place(log, "info msg 404")
    return [*log[:at], *((time - 3600 * SECOND, text) for time, text in log[at:])]


def say_samples_at_once(log: Log) -> Log:
    at = place(log, BUSY)
    return [*log[:at], *((log[at][0], text) for text in (BUSY, IDLE.replace("0/20", "1/20")) * 3), *log[at + 1 :]]


DOUBTFUL: dict[str, Callable[[Log], Log]] = {
    "chunk": lambda log: log[:25] + log[8:25] + log[25:],
    "new": said_twice("new msg 404"),
    "info, later": said_twice("info msg 404", 3),
    "start": said_twice("starting delivery 2: msg 404"),
    "result": said_twice("delivery 3: failure"),
    "result, of a number that is used again": said_twice("delivery 1: success", 30),
    "bounce": said_twice("bounce msg 402"),
    "end, later": said_twice("end msg 401", 40),
    "first status, with deliveries in flight": said_twice(IDLE, 4),
    "last status, with deliveries in flight": lambda log: [*log, log[place(log, "status: exiting") + 1]],
    "first status, with nothing behind it": lambda log: log[:5] + log[:1],
    "clock": step_back,
    "samples of one stamp": say_samples_at_once,
}


class Matching:
    """match.match, noting of each call whether it was careful; `always`: let each be."""

    def __init__(self, patch: pytest.MonkeyPatch, always: bool = False) -> None:
        self.calls: list[bool] = []
        self._always = always
        self._match = match.match
        patch.setattr(match, "match", self)

    def __call__(self, *given: Any, careful: bool = False) -> match.Matched:
        careful = careful or any(given[6:])
        self.calls.append(careful)
        run: Callable[..., match.Matched] = self._match
        return run(*given[:6], careful or self._always)


def read(spark: SparkSession, directory: Path, log: Log) -> Truth:
    """Return the tables of a log."""
    write_files(directory / "logs" / "h" / "q", [("current", b"".join(lines_of(log)))])
    lake = Lake(spark, directory / "lake")
    assert lake.feed(directory / "logs")
    return lake.truth()


def expected(log: Log) -> Truth:
    return read_stream([("current", b"".join(lines_of(log)))], "h", "q")


# Each is a batch matched twice, some seconds: a line of each of the three that look for them runs always.
ALWAYS = ("start", "end, later", "first status, with nothing behind it")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(change, id=name, marks=[] if name in ALWAYS else [pytest.mark.exhaustive])
        for name, change in DOUBTFUL.items()
    ],
)
def test_a_log_with_a_doubtful_line_is_read_again_carefully(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Log], Log]
) -> None:
    log = change(calm_log())
    matching = Matching(monkeypatch)
    agree(expected(log), read(spark, tmp_path, log))
    assert matching.calls == [False, True]


@pytest.mark.parametrize("always", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_a_log_without_one_is_read_once_and_carefully_would_be_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, always: bool
) -> None:
    log = calm_log()
    matching = Matching(monkeypatch, always)
    agree(expected(log), read(spark, tmp_path, log))
    assert matching.calls == [False]


def test_all_of_a_message_in_one_nanosecond_is_not_doubtful(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = calm_log()
    begin = place(log, "new msg 404")
    log = [(log[begin][0] if begin <= number < begin + 9 else time, text) for number, (time, text) in enumerate(log)]
    matching = Matching(monkeypatch)
    agree(expected(log), read(spark, tmp_path, log))
    assert matching.calls == [False]
