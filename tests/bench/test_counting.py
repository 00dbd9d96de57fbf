"""What bench/counts reads from strace, its bounds, and the daemons within them."""

import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from counting.bounds import Counts, combine, compare, pack_bounds, per_message, unpack_bounds
from counting.trace import Calls, count_calls
from support.tools import need, need_tracing

BENCH = Path(__file__).resolve().parents[2] / "bench"
TRACE = """\
1 execve("/x/python3", ["python3", "-I", "/x/bin/queue-start", "--home", "/h"], 0x7ffc /* 20 vars */) = 0
1 clone(child_stack=NULL, flags=SIGCHLD) = 2
2 execve("/x/python3", ["/x/python3", "/x/bin/queue-todo", "--home", "/h"], 0x7ffc /* 20 vars */) = 0
3 futex(0x7f, FUTEX_WAIT, 0, NULL <unfinished ...>
2 openat(AT_FDCWD, "/h/queue/info/1/1", O_RDONLY) = -1 ENOENT (No such file or directory)
2 clone3({flags=CLONE_VM|CLONE_THREAD}, 88 => {parent_tid=[3]}, 88) = 3
3 <... futex resumed>) = -1 EAGAIN (Resource temporarily unavailable)
3 fsync(5) = 0
1 execve("/x/python3", ["/x/python3", "/x/bin/queue-send"], 0x7ffc /* 20 vars */) = 0
1 write(1, "queue-clean = -1", 16) = 16
1 poll([{fd=3, events=POLLIN}], 1, -1 <unfinished ...>
1 <... poll resumed>) = 1
--- SIGCHLD {si_signo=SIGCHLD} ---
+++ exited with 0 +++
"""


def test_a_call_belongs_to_the_program_that_its_process_ran_and_a_threads_to_its_process() -> None:
    (found,) = count_calls([TRACE.splitlines()])
    assert found["queue-start"] == Calls(2, 0, 0, 0)
    # The thread's first call came before the line that says whose thread it is.
    assert found["queue-todo"] == Calls(4, 1, 1, 1)
    assert found["queue-send"] == Calls(3, 0, 0, 0)
    assert "queue-clean" not in found


def test_calls_of_processes_that_run_no_program_of_the_suite_do_not_count() -> None:
    assert count_calls([['7 execve("/bin/sh", ["sh"], 0x1 /* 2 vars */) = 0', "7 read(0, ..., 1) = 0"]]) == [{}]


def test_the_calls_of_each_part_count_in_it_and_programs_are_known_from_those_before() -> None:
    lines = TRACE.splitlines()
    for cut in range(len(lines)):
        one, two = count_calls([lines[:cut], lines[cut:]])
        (whole,) = count_calls([lines])
        for name, calls in whole.items():
            nothing = Calls(0, 0, 0, 0)
            parts = zip(one.get(name, nothing), two.get(name, nothing), strict=True)
            assert tuple(map(sum, parts)) == calls, (cut, name)


def test_waiting_for_a_thread_is_no_call() -> None:
    (found,) = count_calls([[line for line in TRACE.splitlines() if "futex" not in line]])
    assert found == count_calls([TRACE.splitlines()])[0]


@pytest.mark.parametrize(
    ("call", "counts"),
    [("newfstatat", 1), ("stat", 1), ("statx", 1), ("openat2", 1), ("unlink", 1), ("renameat2", 1), ("utimensat", 1),
     ("fchmod", 1), ("read", 0), ("close", 0), ("pwrite64", 0), ("epoll_pwait", 0), ("sendto", 0)],
)  # fmt: skip
def test_calls_for_files_are_those_that_name_one_or_ask_about_one(call: str, counts: int) -> None:
    lines = ['9 execve("/x/bin/queue-todo", ["queue-todo"], 0x1 /* 2 vars */) = 0', f'9 {call}(3, "/h", 0) = 0']
    assert count_calls([lines])[0]["queue-todo"].files == counts


def test_what_a_message_costs_is_what_a_drain_costs_divided_by_its_messages() -> None:
    assert per_message(Calls(2000, 300, 50, 0), 10, 100) == Counts(20.0, 3.0, 0.5, 0.0, 0.1)


def test_bounds_are_kept_in_a_file_as_they_are() -> None:
    found = {"queue-send": Counts(20.0, 2.0, 0.5, 4.25, 0.1)}
    assert unpack_bounds(pack_bounds(found, 300)) == found


def test_what_is_a_little_more_than_recorded_passes_and_what_is_much_more_is_named() -> None:
    recorded = {"queue-send": Counts(20.0, 2.0, 1.0, 4.0, 0.1)}
    assert compare({"queue-send": Counts(24.0, 2.3, 1.2, 5.0, 0.3)}, recorded) == []
    assert compare({"queue-send": Counts(30.0, 2.0, 1.0, 4.0, 0.1)}, recorded) == [
        "queue-send: 30.00 calls a message, at most 25.50"
    ]
    assert compare({"queue-send": Counts(20.0, 3.0, 1.0, 4.0, 0.1)}, recorded) == [
        "queue-send: 3.00 files a message, at most 2.35"
    ]
    assert compare({"queue-send": Counts(20.0, 2.0, 1.4, 4.0, 0.1)}, recorded) == [
        "queue-send: 1.40 syncs a message, at most 1.25"
    ]
    assert compare({"queue-new": Counts(1.0, 0.0, 0.0, 0.0, 0.0)}, recorded) == ["queue-new: no bounds are recorded"]


def test_several_measurements_are_combined_figure_by_figure() -> None:
    found = [{"queue-send": Counts(float(calls), 1.0, 2.0, 4.0, 1.0 / calls)} for calls in (20, 10, 50)]
    assert combine(min, found) == {"queue-send": Counts(10.0, 1.0, 2.0, 4.0, 0.02)}
    assert combine(statistics.median, found) == {"queue-send": Counts(20.0, 1.0, 2.0, 4.0, 0.05)}


@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_message_costs_no_more_calls_and_syncs_than_is_recorded() -> None:
    need("smtp-sink")
    need_tracing()
    done = subprocess.run(
        [sys.executable, str(BENCH / "counts")], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nbench/counts --record renews the bounds"
    assert done.stdout.endswith("\n0 over the bounds\n") and done.stderr == ""
