"""A week under watch: run as a program, it watches a log that grows by a minute's lines a minute, by its own clock.

The clock goes on as soon as somebody waits for it, so a week takes as long as its batches. The log is a pure function
of the minute; what is on the disk tells which minute it is, so a program that was killed is simply run again. It is
rotated each hour, as multilog does it, and no more than KEPT old files stay.

Words: the directory, the minutes. It prints its first minute, what watch prints, and at each WEIGHED minute the bytes
of memory that it has.

A third word, in how many minutes the log is rotated, has it run again and again, killed before the first change of the
disk that it makes, before the second, and so on, until one run comes to the end. Each minute's lines come in two pieces
then, the first of which ends inside a line. It prints before how many changes it was killed, and what the run prints
that was not.
"""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from queue_report.lake.build import Order
from queue_report.watch.clock import Wish
from queue_report.watch.lake_work import LakeWork
from queue_report.watch.memory import SYSTEM_MEMORY, resident
from queue_report.watch.watch import Watch
from support.spark.runner import InProcess

ROOT = Path(__file__).resolve().parents[3]
BEGIN = 1_767_225_600  # 2026-01-01
HOUR = 60
KEPT = 20
WEIGHED = 240
WEEK = 7 * 24 * 60
# A message is tried a second time, and ends, so many minutes after it came.
RETRY = 45


def minute_of_log(minute: int) -> bytes:
    """Return the lines of a minute: a status, messages that come and go at once, and one that is deferred for a while.

    The log is busy for 50 minutes of each hour. Each message has a number that was used by others before.
    """
    events = ["status: local 0/10 remote 0/20"] if minute % (12 * HOUR) == 0 else []
    if minute % HOUR < 50:
        for number in (1, 2):
            delivery = 10 * minute + number
            message = 100 + number
            events += [
                f"new msg {message}",
                f"info msg {message}: bytes {1000 + minute} from <s{minute % 7}@here.example> qp {minute} uid 1000",
                f"starting delivery {delivery}: msg {message} to remote r{number}@d{minute % 11}.example",
                f"delivery {delivery}: success: 192.0.2.1_accepted_message./Remote_host_said:_250_ok_{minute}/",
                f"end msg {message}",
            ]
        events += [*_come(minute), f"delivery {10 * minute + 3}: deferral: Connection_timed_out._(#4.4.1)/"]
    if minute >= RETRY and (minute - RETRY) % HOUR < 50:
        message, delivery = _held(minute - RETRY), 10 * minute + 4
        events += [
            f"starting delivery {delivery}: msg {message} to remote x@slow.example",
            f"delivery {delivery}: success: 192.0.2.2_accepted_message./",
            f"end msg {message}",
        ]
    stamps = (f"@{(1 << 62) + 10 + BEGIN + 60 * minute:016x}{1000 * place:08x}" for place in range(len(events)))
    return "".join(f"{stamp} {event}\n" for stamp, event in zip(stamps, events, strict=True)).encode()


def _held(minute: int) -> int:
    return 1000 + minute % (2 * HOUR)


def _come(minute: int) -> list[str]:
    message = _held(minute)
    return [
        f"new msg {message}",
        f"info msg {message}: bytes 77 from <slow@here.example> qp {minute} uid 1001",
        f"starting delivery {10 * minute + 3}: msg {message} to remote x@slow.example",
    ]


def hours(minutes: int) -> Iterator[bytes]:
    """Yield the log by hours, each what one file has."""
    for first in range(0, minutes, HOUR):
        yield b"".join(minute_of_log(minute) for minute in range(first, min(first + HOUR, minutes)))


class GrowingLog:
    """The log on the disk; it grows from whatever a program that was killed has left."""

    def __init__(self, place: Path, rotated: int = HOUR) -> None:
        self.place, self._rotated = place, rotated
        place.mkdir(parents=True, exist_ok=True)
        (place / "current").touch()

    def minute(self) -> int:
        """Return the first minute that is not wholly there."""
        first = minute = self._first()
        size = (self.place / "current").stat().st_size
        while minute < first + self._rotated and size >= len(minute_of_log(minute)):
            size -= len(minute_of_log(minute))
            minute += 1
        return minute

    def grow(self, minute: int, wholly: bool = True) -> None:
        """Write what is missing of a minute, or of its first half, all those before being there."""
        current = self.place / "current"
        first = minute // self._rotated * self._rotated
        if first > self._first():
            current.rename(self.place / f"@{(1 << 62) + 10 + BEGIN + 60 * first:016x}00000000.s")
            current.touch()
            for old in sorted(self.place.glob("@*.s"))[:-KEPT]:
                old.unlink()
        before = b"".join(minute_of_log(each) for each in range(first, minute))
        lines = minute_of_log(minute)
        with open(current, "ab") as file:
            file.write((before + (lines if wholly else lines[: len(lines) // 2]))[file.tell() :])

    def _first(self) -> int:
        """Return the minute that `current` begins with: the newest rotated file has it in its name."""
        (self.place / "current").touch()
        names = sorted(path.name for path in self.place.glob("@*.s"))
        return (int(names[-1][1:17], 16) - (1 << 62) - 10 - BEGIN) // 60 if names else 0


class LogClock:
    """A clock that goes on at once when somebody waits; a minute's lines are in the log when it has passed.

    It asks for the end at the second wait with the whole log there: a batch has read it meanwhile.
    What was killed before its last batch was in the lake has that batch once more.
    """

    def __init__(self, log: GrowingLog, minutes: int, pieces: int = 1) -> None:
        self._log, self._minutes, self._pieces = log, minutes, pieces
        self._minute = log.minute()
        self._piece = 0
        self._is_whole = False
        self._begun = time.monotonic()
        self._slept = 0.0

    def now(self) -> float:
        return self._slept + time.monotonic() - self._begun

    def wait(self, until: float) -> Wish:
        self._slept += max(until - self.now(), 0.0)
        if self._is_whole:
            return Wish.STOP
        if self._minute < self._minutes:
            self._grow()
        self._is_whole = self._minute >= self._minutes
        return Wish.TIME

    def _grow(self) -> None:
        self._piece += 1
        self._log.grow(self._minute, self._piece == self._pieces)
        if self._piece < self._pieces:
            return
        self._piece = 0
        self._minute += 1
        if self._minute % WEIGHED == 0:
            print(f"memory: {self._minute} {resident(os.getpid())}", flush=True)


class DeathAt:
    """Kills this process (SIGKILL) before the change of the disk with a number: it counts all calls that make one.

    What delta-rs writes is not counted: an entry of its log, which is there as a whole or not at all.
    """

    CALLS = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link")

    def __init__(self, number: int) -> None:
        self._left = number
        sys.addaudithook(self._hear)
        sync = os.fsync

        def counted(descriptor: int) -> None:
            self._count()
            sync(descriptor)

        os.fsync = counted  # type: ignore[assignment]

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in self.CALLS or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            self._count()

    def _count(self) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)


def watch(top: Path, minutes: int, log: Path, rotated: int | None = None) -> "subprocess.Popen[bytes]":
    """Run the program; what it prints goes to the end of `log`."""
    words = [sys.executable, "-m", "support.spark.watched_week", str(top), str(minutes)]
    words += [] if rotated is None else [str(rotated)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/spark:{ROOT}/tests", SYSTEM_MEMORY[0]: SYSTEM_MEMORY[1]}
    with open(log, "ab") as out:
        return subprocess.Popen(words, env=environment, stdout=out, stderr=out)


def run(top: Path, minutes: int, rotated: int = HOUR, pieces: int = 1) -> None:
    log = GrowingLog(top / "logs" / "mx1" / "q", rotated)
    work = LakeWork(Order(str(top / "logs"), str(top / "lake")), None, 2 << 30, None)
    work._sessions = InProcess()  # type: ignore[assignment]
    clock = LogClock(log, minutes, pieces)
    print(f"begun: {log.minute()}", flush=True)
    Watch(work, clock, 60.0, sys.stdout).run()


def run_killed(top: Path, minutes: int, rotated: int) -> None:
    """Run in children that are killed before their first change of the disk, their second, …; one comes to the end."""
    for number in itertools.count(1):
        child = os.fork()
        if not child:
            DeathAt(number)
            run(top, minutes, rotated, pieces=2)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != -signal.SIGKILL:
            print(f"killed: {number - 1}", flush=True)
            sys.exit(status)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    directory, numbers = Path(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    if len(numbers) == 1:
        run(directory, numbers[0])
    else:
        run_killed(directory, *numbers)
