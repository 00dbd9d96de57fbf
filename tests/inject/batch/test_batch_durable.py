"""The results of a batch are true when they are printed, are printed in time, and say after a kill where to resume."""

import os
import pty
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_inject.batch.injector import GROUP
from support.faults.crash.crash_checks import QUEUED, Message, check_queue
from support.faults.crash.crash_model import Crash
from support.faults.crash.crash_place import Place
from support.faults.strace import read_trace, strace_command
from support.faults.traced import run_traced
from support.inject.batches import (
    FORMATS,
    batch_command,
    changed,
    inject_batch,
    letter,
    make_file,
    packed,
    subjects,
    wait_for_lines,
)
from support.inject.injectors import only, queued, states, wrong_inodes
from support.processes.suite import program, wait_until

SYNCS = ("fsync", "fdatasync", "syncfs", "sync")
WHOLE = ("syncfs", "sync")


@pytest.mark.parametrize("form", FORMATS)
def test_a_batch_syncs_each_file_once_and_few_directories_and_says_nothing_before(
    home: Home, tmp_path: Path, form: str
) -> None:
    count = GROUP + 60
    file = make_file(tmp_path / "batch", form, count)
    with file.open("rb") as data:
        command = strace_command(tmp_path / "trace", batch_command(home, form))
        done = subprocess.run(command, stdin=data, stdout=subprocess.PIPE, check=True, timeout=120)

    calls = [call for call in read_trace(tmp_path / "trace") if not call.began]
    assert not any(call.name in WHOLE for call in calls)
    # Each message and envelope, and in two groups each directory of mess/ and todo/.
    assert sum(call.name in SYNCS for call in calls) <= count * 2 + 2 * 2 * 23
    assert done.stdout.count(b"\n") == count
    named = synced = said = 0
    for call in calls:
        if call.name == "linkat" and "/todo/" in call.path(3):
            named += 1
        elif call.name in SYNCS:
            synced = named
        elif call.name == "write" and call.descriptor(0)[0] == 1:
            said += call.data(1).count(b"\n")
            assert said <= synced, "a result was said before its sync"
    assert said == count


@pytest.mark.parametrize("form", FORMATS)
def test_after_kill_9_skip_goes_on_where_the_lines_end(home: Home, tmp_path: Path, form: str) -> None:
    count = GROUP * 8
    file = make_file(tmp_path / "batch", form, count)
    with file.open("rb") as data, (tmp_path / "lines").open("wb") as lines:
        process = subprocess.Popen(batch_command(home, form), stdin=data, stdout=lines)
        wait_until(lambda: (tmp_path / "lines").stat().st_size > 0)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    done = (tmp_path / "lines").read_bytes().count(b"\n")
    assert set(states(home)) <= {2, QUEUED} and wrong_inodes(home) == []
    before = subjects([each.message for each in queued(home)])
    assert before == list(range(1, len(before) + 1)) and done <= len(before) <= done + GROUP

    batch = inject_batch(home, form, file.read_bytes(), "--skip", str(done))

    assert batch.code == 0 and len(batch.lines) == count - done
    found = subjects([each.message for each in queued(home)])
    # The group whose lines were being printed is there twice. Nothing is missing.
    assert set(found) == set(range(1, count + 1)) and len(found) - count == len(before) - done <= GROUP


@pytest.mark.parametrize("form", FORMATS)
def test_a_batch_survives_every_power_cut(tmp_path: Path, form: str) -> None:
    place = Place(tmp_path)
    data = b"".join(packed(form, number) for number in range(1, 6))
    command = [*program("queue-inject"), "--home", place.home.path, "--batch", form]

    def said_is_queued(crash: Crash, found: dict[int, Message]) -> list[str]:
        numbers = [int(line.split()[1].split(b"-")[0]) for line in crash.said.splitlines()]
        return [
            f"ok was said and {number} is not there whole"
            for number in numbers
            if number not in found
            or found[number].state != QUEUED
            or found[number].files["mess"].content.partition(b"\n")[2] not in map(letter, range(1, 6))
        ]

    assert run_traced(place.model, place.trace, command, stdin=data) == 0
    assert check_queue(place.model, place.layout, said_is_queued, most=128) > 100


def test_a_producer_that_pauses_gets_its_results_at_once(home: Home) -> None:
    with subprocess.Popen(batch_command(home, "bsmtp"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        for count in (1, 3, 2):
            process.stdin.write(b"".join(packed("bsmtp", number) for number in range(count)))
            process.stdin.write(b"MAIL FROM:<a@b>\r\nRSET\r\n")
            process.stdin.flush()
            assert all(line.startswith(b"ok ") for line in wait_for_lines(process, count))
        process.stdin.write(b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\nhello\r\n")
        process.stdin.close()
        assert wait_for_lines(process, 1) == [b"failed 7: the input ends before the dot that ends it\n"]
        assert process.wait(60) == 100
    assert states(home) == {QUEUED: 6}


def test_a_producer_that_never_pauses_gets_its_results_in_time(home: Home) -> None:
    """A message without end must not delay the results of those before it."""
    with subprocess.Popen(batch_command(home, "bsmtp"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        process.stdin.write(packed("bsmtp", 1) + b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n")
        os.set_blocking(process.stdout.fileno(), False)
        deadline = time.monotonic() + 30
        while not (line := process.stdout.readline()):
            assert time.monotonic() < deadline
            process.stdin.write(b"x" * 1000 + b"\r\n")
            process.stdin.flush()
        assert line.startswith(b"ok ")
        process.stdin.write(b".\r\n")
        process.stdin.close()
        assert process.wait(60) == 0
    assert states(home) == {QUEUED: 2}


def test_only_the_message_under_way_has_a_time_limit(home: Home) -> None:
    change = "import queue_inject.batch.input as i; i.SECONDS = 0.3"
    command = changed(home, change, "netstring")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(packed("netstring", 1))
        process.stdin.flush()
        assert wait_for_lines(process, 1)[0].startswith(b"ok ")
        # There is no time limit between two messages.
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.6)
        process.stdin.write(packed("netstring", 2) + b"10:abc")
        process.stdin.flush()
        error = process.stderr.read()
        assert process.wait(60) == 111
    assert b"took too long; --skip 2 takes what is left" in error and states(home) == {QUEUED: 2}


def test_an_interrupt_leaves_no_piece_and_says_where_to_go_on(home: Home) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(batch_command(home, "mbox"), **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(packed("mbox", 1) + packed("mbox", 2) + b"From x\nTo: b@c\n\n" + b"x" * 200_000)
        process.stdin.flush()
        wait_for_lines(process, 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 111 and b"interrupted; --skip 2 takes what is left" in process.stderr.read()
    assert states(home) == {QUEUED: 2}


def test_an_interrupt_during_a_commit_waits_until_it_is_known_what_is_queued(home: Home, tmp_path: Path) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    os.mkfifo(go_on)
    # The commit stands still before its last sync: the envelopes have their names in todo/ then.
    change = (
        "real = os.fsync\n"
        "def wait(handle):\n"
        "    real(handle)\n"
        f"    if '/todo/' in os.readlink(f'/proc/self/fd/{{handle}}') and not os.path.exists({str(begun)!r}):\n"
        f"        open({str(begun)!r}, 'w').close()\n"
        f"        open({str(go_on)!r}).close()\n"
        "os.fsync = wait"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(changed(home, change, "netstring"), **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(packed("netstring", 1) + packed("netstring", 2))
        process.stdin.flush()
        wait_until(begun.exists, 60, "the commit")
        process.send_signal(signal.SIGINT)
        go_on.open("w").close()
        assert process.wait(60) == 111 and b"interrupted; --skip 2 takes what is left" in process.stderr.read()
    assert states(home) == {QUEUED: 2}


@pytest.mark.parametrize("form", FORMATS)
def test_a_message_larger_than_the_memory_there_is_goes_through(home: Home, form: str) -> None:
    limit = 100 << 20
    line = b"A line of a very long message, one of many.\n"
    body = line * (limit // len(line) + 1)
    data = packed(form, 1, body=body)
    command = batch_command(home, form)
    limits = lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))  # noqa: E731
    done = subprocess.run(command, input=data, stdout=subprocess.PIPE, preexec_fn=limits, timeout=120)

    assert done.returncode == 0 and done.stdout.startswith(b"ok ")
    assert only(home).message == letter(1, body=body)


def test_on_a_terminal_a_bar_shows_how_far_it_is(home: Home, tmp_path: Path) -> None:
    file = make_file(tmp_path / "batch", "mbox", 30)
    terminal, other = pty.openpty()
    with file.open("rb") as data:
        done = subprocess.run(batch_command(home, "mbox"), stdin=data, stdout=subprocess.PIPE, stderr=other, timeout=60)
    os.close(other)
    shown = b""
    try:
        while piece := os.read(terminal, 65536):
            shown += piece
    except OSError:
        pass  # The other end has been closed.
    os.close(terminal)

    assert done.returncode == 0 and done.stdout.count(b"ok ") == 30
    assert b"30 queued" in shown and re.search(rb"#+\]? +100%", shown)


def test_without_a_terminal_no_bar_is_even_loaded(home: Home) -> None:
    script = "import sys; from queue_inject.main import main; code = main(sys.argv)\n"
    script += "print(sorted({'click', 'email', 'asyncio', 'ctypes'} & set(sys.modules)))"
    command = [sys.executable, "-c", script, "--home", home.path, "--batch", "mbox"]
    done = subprocess.run(command, input=packed("mbox", 1), stdout=subprocess.PIPE, check=True, timeout=60)

    assert done.stdout.endswith(b"\n[]\n")
