"""A log of queue-send that grows message by message, for tests of what a lake has after each build."""

import os
from pathlib import Path

from queue_report.schema.columns import COLUMNS
from support.spark.logs.log_files import stamp
from support.spark.logs.log_lake import Lake

BEGIN = 1_700_000_000  # 2023-11-14
LINES = 4  # Of each message.


def open_message(number: int, at: int) -> str:
    """Return the line by which a message of that number begins, at a Unix time."""
    return f"{stamp(at * 10**9)} new msg {number}\n"


def end_message(number: int, at: int) -> str:
    """Return the lines of a message's one delivery, and its end."""
    return "".join(
        f"{stamp(at * 10**9 + step)} {text}\n"
        for step, text in enumerate((
            f"starting delivery {number}: msg {number} to remote r@b.example",
            f"delivery {number}: success: ok/",
            f"end msg {number}",
        ), 1)
    )  # fmt: skip


class GrowingLog:
    """The log of a queue: messages 0, 1, 2, ..., a second each. One is always open: the last."""

    def __init__(self, directory: Path, begin: int = BEGIN) -> None:
        self.directory, self.ended = directory, 0
        self._begin = begin
        directory.mkdir(parents=True)
        self.write(open_message(0, begin))

    def grow(self, count: int = 1) -> None:
        """End the open message, and open the next: so often."""
        for number in range(self.ended, self.ended + count):
            at = self._begin + number + 1
            self.write(end_message(number, at) + open_message(number + 1, at))
        self.ended += count

    def write(self, text: str) -> None:
        with (self.directory / "current").open("a") as file:
            file.write(text)

    def rotate(self) -> None:
        """Have a new `current`, as multilog does."""
        name = stamp((self._begin + self.ended) * 10**9 + 999)
        os.rename(self.directory / "current", self.directory / f"{name}.s")
        (self.directory / "current").touch()


def numbers(lake: Lake, host: str = "a") -> tuple[list[int], list[int]]:
    """Return the messages of a host that have ended, and those that are open."""
    ended, opened = (
        sorted(row["id"] for row in lake.rows(table) if row["host"] == host) for table in ("messages", "pending")
    )
    return ended, opened


def assert_exact(lake: Lake, count: int, host: str = "a") -> None:
    """Check that each line of the log of a host's one queue counts once, where so many messages have ended."""
    assert numbers(lake, host) == (list(range(count)), [count])
    for table, rows in (("deliveries", count), ("lines", LINES * count + 1), ("streams", 1), ("quarantine", 0)):
        assert len([row for row in lake.rows(table) if row["host"] == host]) == rows, table


def same_rows(one: Path, two: Path) -> None:
    """Check that two lakes have the same rows, but for what is known of their files."""
    for table in COLUMNS:
        if table != "streams":
            rows = [sorted(map(repr, Lake(lake).rows(table))) for lake in (one, two)]
            assert rows[0] == rows[1], table
