"""queue-smtpd with QUEUE_ENQUEUE: the program decides what becomes of a message, and none of them does harm."""

import asyncio
import errno
import os
import smtplib
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from queue_base.errors import Failure
from queue_base.home import Home
from queue_smtpd.config import read_config
from queue_smtpd.milter.enqueue_program import EnqueuePrograms, GivenMessage
from queue_smtpd.processes.log_writer import LogWriter
from queue_wire.pipes.qmtp import ACCEPTED, Answer
from queue_wire.pipes.qmtp import TEMPORARY as LATER
from queue_wire.submitter import pack_submitter
from support.inject.injectors import only, queued, shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.processes.forked import BIN
from support.smtpd.smtpd_daemon import SmtpdDaemon

ANN, BOB, JOE = "ann@example.net", "bob@example.org", "joe@example.org"
TEXT = "From: ann@example.net\r\nSubject: hello\r\n\r\nHow are\r\nyou?\r\n"
MESSAGE = b"Subject: x\n\n" + b"text\n" * 30000
QUEUE = f"""exec 0<"$QUEUE_HOME/scanned"; exec {sys.executable} {BIN}/queue-enqueue
"""


class Programmed:
    """A home with queue-intake, and a queue-smtpd whose program does what the file `does` says."""

    def __init__(self, stack: ExitStack, shell: str = "") -> None:
        self.home = stack.enter_context(shared_home(0))
        Path(self.home.control, "rcpthosts").write_text("example.org\n")
        Path(self.home.control, "relayclients").write_text("127.0.0.1\n")
        Path(self.home.control, "checkrcpt").write_text("0\n")
        self.program = Path(self.home.path, "program")
        self.program.write_text('#!/bin/sh\n. "$QUEUE_HOME/does"\n')
        self.program.chmod(0o755)
        stack.enter_context(IntakeDaemon(self.home))
        environment = {"QUEUE_ENQUEUE": str(self.program)}
        roles = ("mx", "mx priority=bulk")
        self.daemon = stack.enter_context(SmtpdDaemon(self.home, roles, environment=environment, shell=shell))

    def send(self, does: str, listener: int = 0) -> None:
        """Send a message, of which the program does that."""
        Path(self.home.path, "does").write_text(does)
        with self.daemon.smtp(listener) as client:
            client.sendmail(ANN, [BOB, JOE], TEXT)

    def refusal(self, does: str, listener: int = 0) -> tuple[int, bytes]:
        """Send a message that the program refuses, and return the reply."""
        with pytest.raises(smtplib.SMTPDataError) as refused:
            self.send(does, listener)
        assert isinstance(refused.value.smtp_error, bytes)
        assert not queued(self.home)
        return refused.value.smtp_code, refused.value.smtp_error


@pytest.fixture(scope="module")
def programmed() -> Iterator[Programmed]:
    with ExitStack() as stack:
        yield Programmed(stack)


@pytest.mark.parametrize(
    ("does", "code", "text", "logged"),
    [
        ("exit 31", 554, b"5.3.0 mail server permanently rejected message", b"refuses message: it_exited_31"),
        ("exit 115", 554, b"5.1.3 envelope address too long for qq", b"refuses message: it_exited_115"),
        ("exit 53", 451, b"4.3.0 ", b"failed: it_exited_53:_qq_write_error_or_disk_full_(#4.3.0)"),
        ("kill -9 $$", 451, b"4.3.0 ", b"failed: it_was_killed_by_signal_9"),
        ("cat >/dev/null", 451, b"4.3.0 ", b"failed: it_exited_0_but_did_not_read_everything"),
        ("cat <&1 >/dev/null", 451, b"4.3.0 ", b"failed: it_exited_0_but_did_not_read_everything"),
    ],
)
def test_a_program_that_does_not_queue_the_message_refuses_it(
    programmed: Programmed, does: str, code: int, text: bytes, logged: bytes
) -> None:
    found, said = programmed.refusal(does)
    assert (found, said[: len(text)]) == (code, text)
    programmed.daemon.wait_for(b": filter %s %s" % (os.fsencode(programmed.program), logged))


def test_a_program_knows_the_class_that_the_listener_gives(programmed: Programmed) -> None:
    found = []
    for listener in (0, 1):
        programmed.refusal('echo "${QUEUE_PRIORITY-none}" >"$QUEUE_HOME/class"; exit 31', listener)
        found.append(Path(programmed.home.path, "class").read_text())
    assert found == ["none\n", "bulk\n"]


def test_a_program_queues_the_message_with_its_changes_and_knows_the_client(programmed: Programmed) -> None:
    scan = """{ echo "X-Scanned: $TCPREMOTEIP $RELAYCLIENT ${TCPREMOTEINFO-nobody}"; cat; } >"$QUEUE_HOME/scanned"\n"""
    programmed.send(scan + QUEUE)
    found = only(programmed.home)
    assert b"X-Scanned: 127.0.0.1 1 nobody\nReceived: from " in found.message
    assert b" with ESMTP;\n" in found.message and b"\0" not in found.message
    assert found.message.endswith(TEXT.replace("\r", "").encode())
    assert (found.envelope.sender, found.envelope.recipients) == (ANN.encode(), [BOB.encode(), JOE.encode()])
    assert found.envelope.submitter == pack_submitter("127.0.0.1")
    programmed.daemon.wait_for(b": queued - bytes ")


def test_a_program_is_not_harmed_by_what_the_server_has_inherited() -> None:
    with ExitStack() as stack:
        careless = Programmed(stack, "trap '' CHLD; exec 7</dev/null 9</dev/null; ")
        listing = 'for each in /proc/$$/fd/*; do echo "${each##*/}"; done >"$QUEUE_HOME/open"; exit 31'
        code, said = careless.refusal(listing)
        assert (code, said[:5]) == (554, b"5.3.0")
        # The shell has the file that it writes to, and the one that it reads.
        found = set(map(int, Path(careless.home.path, "open").read_text().split()))
        assert {0, 1, 2} < found and not {7, 9} & found


def test_a_path_that_is_not_absolute_takes_no_mail(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMAILQUEUE", "bin/scan")
    with pytest.raises(Failure, match="unable to run QMAILQUEUE=bin/scan: it is not an absolute path"):
        read_config(home)


def run(home: Home, tmp_path: Path, script: str, times: int = 1, seconds: float = 60.0) -> list[tuple[Answer, bytes]]:
    """Return what became of messages that were given at the same time to a program that is this script."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)

    async def play() -> list[tuple[Answer, bytes]]:
        programs = EnqueuePrograms(home, LogWriter(2))
        messages = [GivenMessage(iter([MESSAGE]), b"a@b", [b"c@d"] * 5000) for _ in range(times)]
        client = {b"OUT": os.fsencode(tmp_path), b"SMTPAUTHUSER": b""}
        return await asyncio.gather(*[programs.run(str(program), client, each, seconds) for each in messages])

    return asyncio.run(play())


def test_it_reads_all_of_a_large_message_and_of_many_recipients(home: Home, tmp_path: Path) -> None:
    script = 'cat >"$OUT/message"; cat <&1 >"$OUT/envelope"; env >"$OUT/env"'
    assert run(home, tmp_path, script) == [(Answer(ACCEPTED, b"ok -"), b"accepts message")]
    assert (tmp_path / "message").read_bytes() == MESSAGE
    assert (tmp_path / "envelope").read_bytes() == b"Fa@b\0" + b"Tc@d\0" * 5000 + b"\0"
    variables = (tmp_path / "env").read_text().splitlines()
    assert f"QUEUE_HOME={home.path}" in variables and not any(each.startswith("SMTPAUTHUSER") for each in variables)


def test_a_program_that_takes_too_long_is_trouble_that_may_pass(home: Home, tmp_path: Path) -> None:
    [(answer, why)] = run(home, tmp_path, "sleep 1000", seconds=0.0)
    assert answer.letter == LATER and why == b"failed: it took too long and was killed"


def test_a_program_that_has_left_its_process_group_is_killed_too(home: Home, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    leave = "import os; os.setpgid(0, os.getpgid(os.getppid())); os.execv('/bin/sleep', ['sleep', '1000'])"
    script = f'exec 3>"$OUT/pipe"; exec {sys.executable} -c "{leave}"'
    [(answer, why)] = run(home, tmp_path, script, seconds=0.5)
    assert answer.letter == LATER and why == b"failed: it took too long and was killed"
    os.set_blocking(reader, True)
    assert not os.read(reader, 100), "nobody could write any more"
    os.close(reader)


def test_a_program_that_is_given_up_is_killed_with_what_it_has_started(home: Home, tmp_path: Path) -> None:
    # The pipe has an end when nobody holds it any more.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\nexec 3>"$OUT/pipe"; echo begun >&3; sleep 1000 & sleep 1000\n')
    program.chmod(0o755)

    async def play() -> None:
        programs = EnqueuePrograms(home, LogWriter(2))
        message = GivenMessage(iter([MESSAGE]), b"a@b", [b"c@d"])
        work = asyncio.create_task(programs.run(str(program), {b"OUT": os.fsencode(tmp_path)}, message))
        begun = asyncio.Event()
        asyncio.get_running_loop().add_reader(reader, begun.set)
        async with asyncio.timeout(60):
            await begun.wait()
        work.cancel()
        await asyncio.wait([work])
        assert work.cancelled()

    asyncio.run(play())
    assert os.read(reader, 100) == b"begun\n"
    # Now a read waits until there is nobody who could write.
    os.set_blocking(reader, True)
    assert not os.read(reader, 100)
    os.close(reader)


def test_no_more_run_at_once_than_there_are_places(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queue_smtpd.milter.enqueue_program.PROGRAMS", 2)
    script = """mkdir "$OUT/one" || mkdir "$OUT/two" || exit 31
sleep 0.05; rmdir "$OUT/two" || rmdir "$OUT/one"; exit 53"""
    letters = [answer.letter for answer, _ in run(home, tmp_path, script, times=6)]
    assert letters == [LATER] * 6


def test_one_that_is_not_there_or_may_not_be_run_is_trouble_that_may_pass(home: Home, tmp_path: Path) -> None:
    async def play(program: str) -> tuple[Answer, bytes]:
        message = GivenMessage(iter([MESSAGE]), b"a@b", [b"c@d"])
        return await EnqueuePrograms(home, LogWriter(None)).run(program, {}, message)

    for path in (tmp_path / "none", tmp_path):
        answer, why = asyncio.run(play(str(path)))
        assert answer == Answer(LATER, b"unable to exec qq (#4.3.0)") and why.startswith(b"failed: ")


def test_a_program_that_nobody_can_wait_for_is_killed_and_reaped(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = []

    def full(pid: int) -> int:
        pids.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", full)
    [(answer, why)] = run(home, tmp_path, "exec sleep 1000")
    assert answer.letter == LATER and why == b"failed: too many open files"
    with pytest.raises(ChildProcessError):
        os.waitpid(pids[0], os.WNOHANG)
