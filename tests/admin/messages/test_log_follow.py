"""queuectl log --follow: each new line once and in order, however the logger turns its files, and no busy loop."""

import gzip
import json
import os
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Of what pyinotify imports.
    from queue_admin.logs import log_files, log_follower
    from queue_admin.messages.survey import open_regular
from queue_admin.commands.messages import log as log_command
from queue_admin.logs.log_files import LogDirectory, SystemdJournal
from queue_admin.logs.log_follower import DirectoryFollower, follow
from queue_base.errors import Temporary
from queue_wire.files.stamp import pack_stamp
from queue_wire.ids import pack_long_id
from support.processes.forked import BIN, Forked, fork_piped
from support.processes.suite import wait_until
from support.queues.listed_queue import BIRTH, Queue
from support.tools import need

START = BIRTH * 1000  # Nanoseconds.
SECOND = 10**9


def every(line: bytes) -> bool:
    return True


def taken(follower: log_follower.LogFollower) -> list[bytes]:
    return [text for _, text in follower.lines(every)]


class Logger:
    """Writes numbered lines into a directory as loggers do; the time goes on by a second with each."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.count = 0
        (top / "current").touch()

    @property
    def now(self) -> int:
        return START + self.count * SECOND

    def write(self, text: bytes = b"") -> None:
        self.count += 1
        with (self.top / "current").open("ab") as file:
            file.write(pack_stamp(self.now) + b" " + (text or b"%d" % self.count) + b"\n")

    def turn(self, packed: bool = False) -> None:
        name = f"{pack_stamp(self.now + 1).decode()}.s"
        if packed:
            # As with multilog's ! and svlogd's processor: another file takes the place of the one that was written.
            (self.top / name).write_bytes(gzip.compress((self.top / "current").read_bytes()))
            (self.top / "current").unlink()
        else:
            (self.top / "current").rename(self.top / name)
        (self.top / "current").touch()


@given(st.lists(st.sampled_from(["write", "write", "write", "turn", "pack", "read"]), max_size=25), st.integers(0, 9))
def test_each_line_comes_once_and_in_order_however_the_files_are_turned(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], before: int
) -> None:
    logger = Logger(tmp_path_factory.mktemp("log"))
    for number in range(before):
        logger.write()
        if number % 3 == 2:
            logger.turn(packed=number % 2 == 0)
    found = []
    with closing(DirectoryFollower(LogDirectory(str(logger.top)), START)) as follower:
        for step in [*steps, "read"]:
            if step == "write":
                logger.write()
            elif step == "read":
                found += taken(follower)
            else:
                # A name is the time of the last line, so that there is one for each file.
                logger.write()
                logger.turn(packed=step == "pack")
    assert found == [b"%d" % number for number in range(1, logger.count + 1)]


def test_files_that_are_filled_while_the_directory_is_read_are_read_in_order_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger, opened = Logger(tmp_path), open_regular
    logger.write()

    def open_and_turn(path: str) -> int:
        handle = opened(path)
        if logger.count < 6:
            for _ in range(2):
                logger.write()
                logger.turn()
        return handle

    monkeypatch.setattr(log_files, "open_regular", open_and_turn)
    assert [text for _, text in LogDirectory(str(tmp_path)).lines(0, every)] == [b"1", b"2", b"3"]
    found = []
    with closing(DirectoryFollower(LogDirectory(str(tmp_path)), START)) as follower:
        for _ in range(3):
            found += taken(follower)
            logger.write()
        found += taken(follower)
    assert found == [b"%d" % number for number in range(1, logger.count + 1)]


def test_a_line_comes_when_it_is_whole_and_an_emptied_file_is_read_from_its_begin(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"no stamp, and its time is not known\n" + pack_stamp(START) + b" old\n" + pack_stamp(START))
    with closing(follow(LogDirectory(str(path)), START)) as follower:
        assert taken(follower) == [b"old"]
        with path.open("ab") as file:
            file.write(b" half")
            file.flush()
            assert taken(follower) == []
            file.write(b" and half\nno stamp\n")
        assert taken(follower) == [b"half and half", b"no stamp"]
        path.write_bytes(b"from the begin\n")
        assert taken(follower) == [b"from the begin"]
        path.rename(tmp_path / "log.1")
        assert taken(follower) == []
        path.write_bytes(b"of the next file\n")
        assert taken(follower) == [b"of the next file"]
        with path.open("ab") as file:
            file.write(b"x" * 200_000 + b"\n")
        assert sum(map(len, taken(follower))) == 200_000


def test_waiting_takes_no_time_of_the_processor_and_ends_with_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    (tmp_path / "other").touch()
    with closing(follow(LogDirectory(str(path)), START)) as follower:
        assert taken(follower) == []
        (tmp_path / "other").write_bytes(b"not ours\n")
        used, begun = time.process_time(), time.monotonic()
        follower.wait(0.3)
        assert time.monotonic() - begun >= 0.3
        assert time.process_time() - used < 0.1
        path.write_bytes(b"a line\n")
        begun = time.monotonic()
        follower.wait(60)
        assert time.monotonic() - begun < 30
        assert taken(follower) == [b"a line"]


def test_without_inotify_the_file_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follower, "LOOK_EVERY", 0.01)
    follower = DirectoryFollower(LogDirectory(str(tmp_path / "missing" / "log")), START)
    begun = time.monotonic()
    follower.wait(60)
    assert time.monotonic() - begun < 30


# The journal


@contextmanager
def journalctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Iterator[SystemdJournal]:
    program = tmp_path / "bin" / "journalctl"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    yield SystemdJournal("queue.service")


def entry(seconds: int, text: str) -> bytes:
    facts = {"__REALTIME_TIMESTAMP": str(BIRTH + seconds * 10**6), "MESSAGE": text}
    return json.dumps(facts).encode() + b"\n"


def test_the_journal_is_followed_by_journalctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = f'echo "$@" >{tmp_path}/words\nexec cat {fifo}'
    with (
        journalctl(tmp_path, monkeypatch, script) as journal,
        closing(follow(journal, START)) as follower,
        fifo.open("wb", buffering=0) as entries,
    ):
        entries.write(entry(-1, "earlier") + entry(1, "new msg 457")[:-9])
        follower.wait(60)
        assert taken(follower) == []
        entries.write(entry(1, "new msg 457")[-9:] + b"no entry\n" + entry(2, "end msg 457"))
        follower.wait(60)
        assert taken(follower) == [b"new msg 457", b"end msg 457"]
        words = (tmp_path / "words").read_text()
        assert "--follow --no-tail" in words and "--unit=queue.service" in words
        entries.close()
        follower.wait(60)
        with pytest.raises(Temporary, match="journalctl ended with 0"):
            taken(follower)


# The command


@contextmanager
def following(queue: Queue, *words: str) -> Iterator[Forked]:
    process = fork_piped("queuectl", [str(BIN / "queuectl"), "--home", queue.home.path, "log", "--follow", *words])
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def next_line(process: Forked) -> str:
    """Return the next line without its time."""
    assert process.stdout is not None
    return process.stdout.readline().decode().rstrip("\n").partition(" ")[2]


@pytest.mark.parametrize("logger", ["multilog", "svlogd"])
def test_a_message_is_followed_through_files_that_a_logger_turns_until_its_end(
    queue: Queue, tmp_path: Path, logger: str
) -> None:
    need(logger)
    message = queue.classified(remote=b"Tc@d\0")
    top = tmp_path / "log"
    top.mkdir()
    (top / "config").write_text("s4096\nn20\n")
    words = {"multilog": ["multilog", "t", "s4096", "n20", str(top)], "svlogd": ["svlogd", "-t", str(top)]}[logger]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as log:
        assert log.stdin is not None
        wait_until((top / "current").exists, why="the log")
        with following(queue, pack_long_id(message, BIRTH), "--logs", str(top)) as process:
            expected = []
            for number in range(5):
                lines = [f"starting delivery {number}: msg {message} to remote c@d", f"delivery {number}: deferral: x/"]
                for line in lines:
                    log.stdin.write(f"{line}\n".encode() + b"filler, of another message\n" * 100)
                    log.stdin.flush()
                expected += lines
                assert [next_line(process), next_line(process)] == lines
            assert len(list(top.glob("@*"))) > 1
            os.unlink(queue.layout.hashed("info", message))
            os.unlink(queue.layout.hashed("remote", message))
            os.unlink(queue.layout.mess(message))
            log.stdin.write(f"end msg {message}\n".encode())
            log.stdin.flush()
            assert next_line(process) == f"end msg {message}"
            output, errors = process.communicate()
            assert (process.wait(), output) == (0, b""), errors


def test_the_bounce_of_a_message_is_named_after_its_end(
    queue: Queue, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    texts = ("new msg 457", "bounce msg 457 qp 77", "end msg 457", "new msg 460", "info msg 460: bytes 9 from <> qp 77")
    lines = [pack_stamp(START + number) + b" " + text.encode() for number, text in enumerate(texts)]
    log.write_bytes(b"\n".join(lines) + b" uid 7\n")
    assert queue.run("log", "-f", pack_long_id(457, BIRTH), "--logs", str(log), "--format", "json") == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("line") for line in shown] == ["new msg 457", "bounce msg 457 qp 77", "end msg 457", None]
    assert shown[-1] == {"bounce": pack_long_id(460, BIRTH)}


def test_a_message_that_is_stored_on_demand_is_followed_until_it_is_delivered(
    queue: Queue, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long_id = pack_long_id(457, BIRTH)
    log = tmp_path / "log"
    stored = f"ondemand d.example stored {long_id}: bytes 5 from <a@b> to c@d.example"
    done = f"ondemand d.example done {long_id}: to c@d.example success: ok/"
    texts = ["new msg 457", "info msg 457: bytes 5 from <a@b> qp 7 uid 7", stored, "end msg 457"]
    log.write_bytes(b"".join(pack_stamp(START + n) + b" " + text.encode() + b"\n" for n, text in enumerate(texts)))
    looks = 0

    def is_here(*_: object) -> bool:
        # It is not in the queue. At the third look its host has asked for it.
        nonlocal looks
        looks += 1
        if looks == 3:
            with log.open("ab") as file:
                file.write(pack_stamp(START + 3600 * SECOND) + b" " + done.encode() + b"\n")
        return False

    monkeypatch.setattr(log_command, "SETTLE", 0.01)
    monkeypatch.setattr(log_command, "_is_here", is_here)
    assert queue.run("log", "--follow", long_id, "--logs", str(log)) == 0
    shown = [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert shown == [*texts, done]


def test_a_message_that_has_left_the_queue_is_not_waited_for(
    queue: Queue, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_command, "SETTLE", 0.05)
    log = tmp_path / "log"
    log.write_bytes(pack_stamp(START) + b" new msg 457\n")
    assert queue.run("log", "--follow", pack_long_id(457, BIRTH), "--logs", str(log)) == 0
    captured = capfd.readouterr()
    assert captured.out.endswith(" new msg 457\n") and "does not tell how it ended" in captured.err
    assert queue.run("log", "--follow", pack_long_id(9, BIRTH), "--logs", str(log)) == 1
    assert queue.run("log", "--logs", str(log)) == 100
    log.write_bytes(b"new msg 457\n")
    assert queue.run("log", pack_long_id(457, BIRTH), "--logs", str(log)) == 1
    assert "no line of it has a time stamp" in capfd.readouterr().err


def test_without_an_id_all_new_lines_are_printed_until_an_interrupt(queue: Queue, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(pack_stamp(START) + b" long ago\n")
    with following(queue, "--logs", str(log)) as process, log.open("ab", buffering=0) as file:
        wait_until(lambda: has_inotify(process), why="the begin")
        file.write(b"%s new msg 1\n%s status: exiting\n" % ((pack_stamp(time.time_ns()),) * 2))
        assert [next_line(process), next_line(process)] == ["new msg 1", "status: exiting"]
        process.send_signal(signal.SIGINT)
        assert (process.communicate(), process.wait()) == ((b"", b""), 0)


def test_an_interrupt_of_a_message_that_goes_on_is_quiet_and_a_temporary_failure(queue: Queue, tmp_path: Path) -> None:
    message = queue.classified(remote=b"Tc@d\0")
    log = tmp_path / "log"
    log.write_bytes(pack_stamp(START + 1) + b" new msg %d\n" % message)
    with following(queue, str(message), "--logs", str(log)) as process:
        assert next_line(process) == f"new msg {message}"
        process.send_signal(signal.SIGINT)
        assert (process.communicate(), process.wait()) == ((b"", b""), 111)


def test_it_ends_quietly_as_soon_as_nobody_reads_it(queue: Queue, tmp_path: Path) -> None:
    message = queue.classified(remote=b"Tc@d\0")
    log = tmp_path / "log"
    log.write_bytes(pack_stamp(START + 1) + b" new msg %d\n" % message)
    with following(queue, str(message), "--logs", str(log)) as process:
        assert next_line(process) == f"new msg {message}"
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()  # As `| head -1` does. No line comes any more.
        assert (process.wait(), process.stderr.read()) == (0, b"")


def has_inotify(process: Forked) -> bool:
    """Return whether a process watches files."""
    for path in Path(f"/proc/{process.pid}/fd").iterdir():
        # It may just have been closed.
        with suppress(FileNotFoundError):
            if "inotify" in os.readlink(path):
                return True
    return False
