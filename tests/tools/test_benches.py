"""Every bench runs: with a size so small that its figures say nothing, and it prints all of them. So none can rot.

A bench that is not in SIZES fails a test: it wants an entry.
"""

import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from support.tools import missing, need, need_private_mounts, need_tracing

BENCH = Path(__file__).resolve().parents[2] / "bench"
NAMES = sorted(path.name for path in BENCH.iterdir() if path.is_file() and not path.suffix)
# The words of a run, HERE being a directory; what it says at last, as a pattern; the commands that it needs.
SIZES: dict[str, tuple[str, str, list[str]]] = {
    "admin": (
        "--messages 100 --split 3 --running --only stat,top --dir HERE",
        r"queuectl list --sender oth.*exit code 1, 0 lines",
        [],
    ),
    "classify": (
        "--messages 30 --rounds 1 --split 3 --dir HERE",
        r"median \d+ messages/s",
        [],
    ),
    "counts": ("--messages 20 --tries 1 --dir HERE", r"\d+ over the bounds", ["smtp-sink", "strace"]),
    "fair": (
        "--messages 20 --runs 1 --dir HERE",
        r"5 messages: [\d.]+ s alone, [\d.]+ s beside: [\d.]+ x \(goal 1.15\)",
        ["smtp-sink"],
    ),
    "inject": (
        "--disk HERE --dir HERE --loop 1 --batch 20 --memory 20 --slow 1 --dirty 1 --together 1,2 --rounds 1",
        r"batch netstring, memory +\d+ kB after 1 messages, \d+ after 20",
        ["strace"],
    ),
    "inject-startup": ("--runs 2 --dir HERE", r"sendmail[a-z, ]* +[\d.]+ ms +ratio +[\d.]+, goal 1.4 or less", []),
    "million": ("--messages 50 --idle 0.1 --dir HERE", r"idle, it takes [\d.]+ % of a CPU \(goal 0\)", []),
    "ondemand": (
        "--records 200 --domains 3 --recipients 20 --appended 20 --messages 20 --rounds 1 --seconds 1 --dir HERE",
        r"queue-todo, idle: \d+ MB and [\d.]+ % of a CPU with the store, \d+ MB and [\d.]+ % of a CPU without",
        ["smtp-sink", "strace"],
    ),
    "queues": (
        "--rounds 1 --seconds 0.5 --iops 5000 --connections 2 --writers 2 --dir HERE",
        r"queue-inject: ratio [\d.]+ \(goal 1.8\)",
        ["mkfs.ext4", "losetup"],
    ),
    "remote": ("--messages 20 --runs 1 --dir HERE", r"best \d+ deliveries/s, goal 5000", ["smtp-sink"]),
    "remote-turns": ("--size 100000 --dir HERE", r"goal 20 ms, missed by \d+", []),
    "repair": (
        "--messages 50 --split 3 --collide --new-split 5 --dir HERE",
        r"messages with their numbers: 50, with an envelope: 50, split 5",
        [],
    ),
    "report": ("--sizes 0.1 --dir HERE", r"  a batch +[\d.]+ s .* the middle of \d+", ["java"]),
    "run": (
        "--only drain --messages 20 --rounds 1 --on tmpfs --dir HERE",
        r"  memory, at most, MB +[\d.]+ +[\d.]+ +[\d.]+  less",
        ["postfix", "smtp-sink", "strace", "unshare"],
    ),
    "scrape": (
        "--messages 20 --rounds 1 --every 0.1 --dir HERE",
        r"scrapes that queue-send answered: [1-9]\d*",
        ["smtp-sink"],
    ),
    "simulate": (
        "--messages 2000 --destinations 200 --hours 0.2",
        r"  (met   |MISSED)  99 % of normal mail behind bulk .* 1 s: [\d.]+; no bulk over its 125 places meanwhile: 0",
        [],
    ),
    "slow-clients": (
        "--clients 5 --messages 5 --seconds 0.1",
        r"ratio of the medians [\d.]+ \(goal 2 or less\)",
        [],
    ),
    "users": ("--lines 50 --lookups 10", r"lookup, catchall: \d+ us, opening the file included", []),
    "worst-turn": (
        "--recipients 200 --messages 2 --seconds 60 --dir HERE relay",
        r"  another user's mail waits \d+ ms at the 99th percentile of \d+, \d+ at most",
        [],
    ),
}
# They take long. tests/bench/test_counting.py runs `counts` in every run.
LONG = ("admin", "counts", "fair", "inject", "inject-startup", "million", "ondemand", "queues", "remote-turns",
        "run")  # fmt: skip
CPU = ("--messages 20 --tries 1 --cpu 1,2 --dir HERE", r" +2( +\d+){10}", ["smtp-sink"])
BACKLOG = (
    "--sizes , --backlog 100 --no-reports --dir HERE",
    r"backlog: [\d.]+ times a calm log of its size, by the byte",
    ["java"],
)
# Words that make no sense for any bench; what each has beside them is in its own entry.
WRONG = {
    "admin": ["--messages 0", "--split x", "--dir /nowhere"],
    "classify": ["--messages 0", "--announce --messages 12000", "--dir /nowhere"],
    "counts": ["--messages 0", "--tries no", "--cpu 1,0", "--dir /nowhere"],
    "fair": ["--messages 0", "--runs x", "--dir /nowhere"],
    "inject": ["--loop -1", "--slow 0", "--together ,", "--disk /nowhere"],
    "inject-startup": ["--runs 0", "200"],
    "million": ["--messages many", "--idle nan", "--dir /nowhere"],
    "ondemand": ["--records 0", "--group x", "--ext4 /nowhere"],
    "queues": ["--rounds 0", "--iops 0", "--seconds nan", "--dir /nowhere"],
    "remote": ["--messages 0", "--connections 0", "--size 1.5"],
    "remote-turns": ["--size 0", "--dir /nowhere"],
    "repair": ["--messages 0", "--dir /nowhere"],
    "report": ["--sizes 1,x", "--backlog -5"],
    "run": ["--only drain,no-such-experiment", "--rounds 0", "--on floppy", "--dir /nowhere"],
    "scrape": ["--messages 0", "--rounds x", "--every 0", "--dir /nowhere"],
    "simulate": ["--messages 0", "--hours inf"],
    "slow-clients": ["--clients 0", "--clients 100000000", "--seconds nan"],
    "users": ["--lines 0", "100000"],
    "worst-turn": ["--recipients 0", "--seconds nan", "no-such-scenario"],
}


def run(name: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a bench under this interpreter; return its end."""
    return subprocess.run(
        [sys.executable, str(BENCH / name), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "110"},
        timeout=1800,
    )


def run_here(name: str, words: str) -> tuple[object, str, str]:
    """Run a bench in this process; return the exit code, and what is on stdout and stderr.

    What benches import takes up to a second in a process of its own.
    """
    out, errors = io.StringIO(), io.StringIO()
    kept = sys.argv[:], sys.path[:]
    sys.argv[:] = [str(BENCH / name), *words.split()]
    sys.path.insert(0, str(BENCH))
    code: object = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            runpy.run_path(str(BENCH / name), run_name="__main__")
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv[:], sys.path[:] = kept
    return code, out.getvalue(), errors.getvalue()


def test_every_bench_has_its_entry() -> None:
    assert list(SIZES) == NAMES == list(WRONG)
    assert all(os.access(BENCH / name, os.X_OK) for name in NAMES)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.exhaustive] * (name in LONG)) for name in NAMES if name != "report"],
)
def test_a_bench_runs_and_prints_its_figures(name: str, tmp_path: Path) -> None:
    if name in ("queues", "run"):
        need_private_mounts()
    if name == "queues" and not Path("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device").exists():
        missing("the block controller of cgroup v1")
    if name in ("counts", "ondemand"):
        need_tracing()
    goes_well(name, SIZES[name], tmp_path)


@pytest.mark.exhaustive
def test_the_cpu_time_with_several_queue_remotes_is_measured(tmp_path: Path) -> None:
    goes_well("counts", CPU, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [SIZES["report"], BACKLOG], ids=["calm", "backlog"])
def test_the_bench_of_the_reports_runs_and_prints_its_figures(size: tuple[str, str, list[str]], tmp_path: Path) -> None:
    goes_well("report", size, tmp_path)


def goes_well(name: str, size: tuple[str, str, list[str]], place: Path) -> None:
    """Run a bench in a directory; fail where it does not come to its end, or leaves something behind."""
    words, last, commands = size
    for command in commands:
        need(command)
    place.chmod(0o755)
    done = run(name, *words.replace("HERE", str(place)).split())
    # 1 is a goal that is missed, and a traceback as well.
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    assert re.fullmatch(last, done.stdout.splitlines()[-1]), done.stdout
    assert os.listdir(place) == []


@pytest.mark.parametrize("name", NAMES)
def test_help_is_the_docstring_and_words_that_make_no_sense_are_a_usage_error_and_exit_100(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    code, out, errors = run_here(name, "--help")
    assert (code, errors) == (0, "")
    assert out.startswith(f"usage: bench/{name} [-h]") and "\noptions:\n" in out
    # Its docstring, from its first line to its last.
    source = (BENCH / name).read_text().split('"""')[1].strip()
    assert source in out and "usage:" not in source
    assert max(map(len, out.splitlines())) <= 120
    for words in ["--no-such-option", *WRONG[name]]:
        code, out, errors = run_here(name, words)
        assert (code, out) == (100, ""), words
        first, second = errors.split("\n", 1)
        assert first.startswith(f"bench/{name}: fatal: ") and second.startswith(f"usage: bench/{name} [-h]"), words


def test_a_program_that_a_bench_lacks_is_named_in_one_line_and_exit_111() -> None:
    script = "from usage import run; from support.tools import need; run(lambda: len(need('no-such-command')))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(BENCH), str(BENCH.parent / "tests"), str(BENCH.parent)])},
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (111, "")
    assert done.stderr == "bench/-c: fatal: needs no-such-command: apt-get install no-such-command\n"
