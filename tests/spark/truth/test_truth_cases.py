"""Places and forms in which logs come that no simulation has: what is written here by hand is judged by hand."""

import random
from pathlib import Path

import pytest

from queue_base.errors import Permanent
from support.spark.logs.log_files import Files, lines_of, rotated, stamp, write_files
from support.spark.logs.log_lake import Lake
from support.spark.logs.log_reference import read_stream
from support.spark.logs.log_rows import Truth, agree
from support.spark.logs.log_world import World

SECOND = 10**9
BEGIN = 1_700_000_000 * SECOND


def log_of(*texts: str, begin: int = BEGIN) -> bytes:
    """Return a log of these events, a second apart."""
    return b"".join(lines_of((begin + number * SECOND, text) for number, text in enumerate(texts)))


ONE = log_of(
    "new msg 7",
    "info msg 7: bytes 70 from <a@b> qp 8 uid 9",
    "starting delivery 1: msg 7 to remote c@D.example",
    "delivery 1: success: ok/",
    "end msg 7",
)
AGAIN = log_of(
    *("new msg 7", "info msg 7: bytes 71 from <a@b> qp 9 uid 9", "end msg 7"),
    begin=BEGIN + 60 * SECOND,
)
NAMES = [f"{stamp(BEGIN + number)}.s" for number in range(9)]
# By host. What the reference makes of each was looked at when this was written; CASES says the gist of it.
FILES: dict[str, Files] = {
    # multilog has thrown the older files away: the oldest that is left begins inside of a line.
    "oldest-gone": [(NAMES[0], b"om <a@b> qp 1 uid 2\n" + ONE)],
    # A line over four files, with its newline alone in the last.
    "four-files": [(NAMES[0], ONE[:30]), (NAMES[1], ONE[30:35]), (NAMES[2], ONE[35:36]), ("current", ONE[36:])],
    "newline-alone": [(NAMES[0], ONE[:-1]), ("current", b"\n")],
    "cut-in-stamp": [(NAMES[0], ONE + ONE[:1]), (NAMES[1], ONE[1:20]), ("current", ONE[20:])],
    # Cut short, since the next file begins with a line of its own.
    "cut-short": [(NAMES[0], log_of("new msg 5", "end msg 7")[:-3]), ("current", ONE)],
    # Whole but for its newline: a line where the logger has completed the file, else cut short.
    "no-newline": [(NAMES[0], log_of("new msg 5", "end msg 5")[:-1]), ("current", ONE)],
    "no-newline-interrupted": [(NAMES[0][:-1] + "u", log_of("new msg 5", "end msg 5")[:-1]), ("current", ONE)],
    "empty-files": [(NAMES[0], b""), (NAMES[1], ONE), (NAMES[2], b""), ("current", b"")],
    "unfinished": [("current", ONE + log_of("new msg 8", begin=BEGIN + 60 * SECOND)[:-1])],
    "interrupted": [(NAMES[0][:-1] + "u", ONE[:100]), ("current", ONE[100:])],
    "spaces-in-sender": [("current", log_of("info msg 3: bytes 1 from <a> qp 1 uid 2> qp 3 uid 4", "end msg 3"))],
    "garbage-between": [("current", ONE.replace(b"\n", b"\n\xff\xfe\0 x\r\n\n", 1))],
    # A number that is used again though nobody said that its message had ended.
    "used-again": [("current", ONE[: ONE.rindex(b"\n@") + 1] + AGAIN)],
    "said-again-later": [("current", ONE + log_of("end msg 7", "bounce msg 7 qp 5", begin=BEGIN + 60 * SECOND))],
    "all-at-once": [("current", b"".join(stamp(BEGIN).encode() + line[25:] + b"\n" for line in ONE.splitlines()))],
    "stranger": [("current", ONE + log_of("queue-remote: warning: x y", "sh: fatal: z", begin=BEGIN + 60 * SECOND))],
    "far-times": [("current", ONE + b"@ffffffffffffffff00000000 new msg 1\n@4000000065500000ffffffff new msg 1\n")],
    "large-numbers": [("current", log_of("new msg 9223372036854775807", "new msg 9223372036854775808", "new msg 01"))],
}
# By host: outcomes of messages, results of deliveries, how many are pending, and in quarantine.
CASES = {
    "oldest-gone": (["delivered"], ["success"], 0, 1),
    "four-files": (["delivered"], ["success"], 0, 0),
    "newline-alone": (["delivered"], ["success"], 0, 0),
    "cut-in-stamp": (["delivered"], ["success"], 0, 0),
    "cut-short": (["delivered"], ["success"], 1, 1),
    "no-newline": (["delivered", "delivered"], ["success"], 0, 0),
    "no-newline-interrupted": (["delivered"], ["success"], 1, 1),
    "empty-files": (["delivered"], ["success"], 0, 0),
    "unfinished": (["delivered"], ["success"], 0, 0),
    "interrupted": (["delivered"], ["success"], 0, 0),
    "spaces-in-sender": (["delivered"], [], 0, 0),
    "garbage-between": (["delivered"], ["success"], 0, 2),
    "used-again": (["delivered", "lost"], ["success"], 0, 0),
    "said-again-later": (["delivered"], ["success"], 0, 0),
    "all-at-once": (["delivered"], ["success"], 0, 0),
    "stranger": (["delivered"], ["success"], 0, 0),
    "far-times": (["delivered"], ["success"], 0, 2),
    "large-numbers": ([], [], 2, 1),
}


@pytest.mark.parametrize("host", list(FILES))
def test_the_reference_has_the_gist_of_it(host: str) -> None:
    truth = read_stream(FILES[host], host, "main")
    outcomes, results = [str(row.outcome) for row in truth.messages], [str(row.result) for row in truth.deliveries]
    assert (sorted(outcomes), results, len(truth.waiting), len(truth.quarantine)) == CASES[host]


def test_hard_cases_make_what_the_reference_reads_in_them(tmp_path: Path) -> None:
    expected = Truth()
    for host, files in FILES.items():
        write_files(tmp_path / "logs" / host / "main", files)
        expected.add(read_stream(files, host, "main"))
    lake = Lake(tmp_path / "lake")
    lake.feed(tmp_path / "logs")
    agree(expected, lake.truth())


def test_a_directory_of_logs_is_one_stream_wherever_it_lies(tmp_path: Path) -> None:
    expected = Truth()
    for place, host, queue in (
        ("a/main/log/main", "a", "main"),
        ("b/main", "b", "main"),
        ("b/other", "b", "other"),
        ("[odd] %41 *?/ä queue", "[odd] %41 *?", "ä queue"),
    ):
        world = World(5, host, queue).run(40)
        write_files(tmp_path / "logs" / place, rotated(world.lines, random.Random(place), 3))
        expected.add(world.truth)
    lake = Lake(tmp_path / "lake")
    lake.feed(tmp_path / "logs")
    agree(expected, lake.truth())


def test_logs_without_host_or_queue_in_the_path_have_what_is_given(tmp_path: Path) -> None:
    write_files(tmp_path / "flat", [("current", ONE)])
    write_files(tmp_path / "hosts" / "h", [("current", ONE)])
    lake = Lake(tmp_path / "lake")
    lake.feed(tmp_path / "flat")
    lake.feed(tmp_path / "hosts", queue="q2")
    found = {(row.host, row.queue) for row in lake.truth().messages}
    assert found == {("localhost", "queue"), ("h", "q2")}


@pytest.mark.parametrize(
    "line",
    [
        b"Nov 20 19:20:11 host qmail: 1700000000.500000 new msg 5\n",
        b"new msg 5\n",
        b"1700000000.500000 new msg 5\n",
        b"2026-11-20_19:20:11.00000 new msg 5\n",
    ],
)
def test_files_without_stamps_are_refused_by_name(tmp_path: Path, line: bytes) -> None:
    write_files(tmp_path / "logs" / "h" / "q", [("current", line * 20)])
    with pytest.raises(Permanent, match=r"h/q/current.*@4000000"):
        Lake(tmp_path / "lake").feed(tmp_path / "logs")


def test_two_directories_for_one_stream_are_refused(tmp_path: Path) -> None:
    for place in ("h/q/log/main", "h/q/main"):
        write_files(tmp_path / "logs" / place, [("current", ONE)])
    with pytest.raises(Permanent, match="h/q"):
        Lake(tmp_path / "lake").feed(tmp_path / "logs")


def test_a_log_that_was_doubled_in_a_later_batch_counts_once(tmp_path: Path) -> None:
    world = World(8, "h", "q").run(120)
    text = b"".join(lines_of(world.lines))
    half = text.index(b"\n", len(text) // 2) + 1
    lake = Lake(tmp_path / "lake")
    for number, piece in enumerate((text[:half], text[:half], text)):
        write_files(tmp_path / str(number) / "h" / "q", [(NAMES[number], piece)])
        lake.feed(tmp_path / str(number))
    agree(world.truth, lake.truth())
