"""Programs that behave: their input, output, environment and exit code; what they see of the delivery's process."""

import os
import signal
from pathlib import Path

import pytest

from queue_local.shell_command import HEAD_MAX, TAIL_MAX, run_program
from support.local.deliveries import end_of, run
from support.processes.programs import ENVIRONMENT, run_command


@pytest.mark.parametrize("code", [0, 1, 99, 100, 111, 255])
def test_a_program_s_exit_code_and_output_come_back(tmp_path: Path, code: int) -> None:
    ended = run_command(b"echo out; echo err >&2; exit %d" % code, tmp_path)
    assert (ended.letter, ended.text) == (b"K", b"%d:out\nerr\n" % code)


def test_every_program_gets_the_message_from_its_start(tmp_path: Path) -> None:
    def work(message: int) -> str:
        counts = [run_program(b"wc -c", ENVIRONMENT, message, 60).output for _ in range(3)]
        os.lseek(message, 7, os.SEEK_SET)
        return repr([*counts, run_program(b"cat", ENVIRONMENT, message, 60).output])

    (tmp_path / "message").write_bytes(b"Subject: hello\n\nbody\n")
    expected = [b"21\n"] * 3 + [b"Subject: hello\nbody\n"]
    assert run(work, tmp_path / "message") == (b"K", repr(expected).encode() + b"\n")


@pytest.mark.parametrize("command", [b"exec <&-; echo done", b"head -c 5 >/dev/null; echo done", b"echo done"])
def test_a_program_need_not_read_the_message(tmp_path: Path, command: bytes) -> None:
    (tmp_path / "message").write_bytes(b"x" * 10_000_000)
    assert run_command(command, tmp_path).text == b"0:done\n"


def test_a_program_gets_its_environment_and_nothing_else(tmp_path: Path) -> None:
    environment = {b"EXT": b"a b=c\n\xff", b"PATH": b"/usr/bin:/bin"}
    command = b"/usr/bin/env -0 | tr '\\0' '\\n' | grep -av '^_=\\|^PWD=\\|^SHLVL=\\|^OLDPWD=' | sort"
    assert run_command(command, tmp_path, environment=environment).text == b"0:EXT=a b=c\nPATH=/usr/bin:/bin\n?\n"


def test_a_program_has_three_descriptors_default_signals_and_no_terminal(tmp_path: Path) -> None:
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
    before = [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGCHLD})
    command = b"echo /proc/self/fd/*; sed -n 's/Sig\\(Blk\\|Ign\\|Cgt\\):\\t0*//p' /proc/self/status; : </dev/tty"
    try:
        text = run_command(command, tmp_path).text
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in zip((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), before, strict=True):
            signal.signal(number, handler)
        for handle in held:
            os.close(handle)
    lines = text.decode().splitlines()
    # The shell's own pattern opens the directory as 3. Nothing is blocked, ignored or caught, but 32 and 33, which
    # are the C library's own: its posix_spawn ignores them, and who needs them sets them.
    assert lines[0] == "2:/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3"
    assert "/dev/tty" in lines[-1]
    assert not [line for line in lines[1:-1] if int(line or "0", 16) & ~(3 << 31)]


def test_a_program_has_a_group_of_its_own_in_the_delivery_s_session(tmp_path: Path) -> None:
    def work(message: int) -> str:
        said = run_program(b"cut -d ' ' -f 1,5,6 /proc/$$/stat", ENVIRONMENT, message, 60).output
        pid, group, session = map(int, said.split())
        return f"{pid == group} {session == os.getpid() == os.getpgrp()}"

    (tmp_path / "message").touch()
    assert run(work, tmp_path / "message") == (b"K", b"True True\n")


def test_a_program_that_kills_its_own_group_does_not_kill_the_delivery(tmp_path: Path) -> None:
    assert run_command(b"trap 'exit 7' TERM; kill 0; sleep 30", tmp_path).text == b"7:\n"


def test_a_program_without_output_has_none(tmp_path: Path) -> None:
    assert run_command(b":", tmp_path).text == b"0:\n"


def test_of_huge_output_the_beginning_and_the_end_are_kept(tmp_path: Path) -> None:
    ended = run_command(b"echo first; head -c 300000000 /dev/zero; echo; echo last", tmp_path)
    assert ended.text.startswith(b"0:first\n____") and ended.text.endswith(b"__\nlast\n")
    assert len(ended.text) <= HEAD_MAX + TAIL_MAX + 12


@pytest.mark.parametrize("closing", [b">&- 2>&-", b">/dev/null 2>&1"])
def test_a_program_that_closes_its_output_is_waited_for(tmp_path: Path, closing: bytes) -> None:
    ended = run_command(b"echo early; exec %s; sleep 0.2; touch %s/late; exit 3" % (closing, bytes(tmp_path)), tmp_path)
    assert ended.text == b"3:early\n" and (tmp_path / "late").exists()


@pytest.mark.parametrize("command", [b"x" * 200_000, b"a\0b"], ids=["too long", "a NUL"])
def test_what_cannot_be_run_defers(tmp_path: Path, command: bytes) -> None:
    ended = run_command(command, tmp_path)
    assert ended.letter == b"Z" and ended.text.startswith(b"Unable to run /bin/sh: ")


def test_a_machine_without_room_for_a_process_defers(tmp_path: Path) -> None:
    import resource

    def work(message: int) -> str:
        if not os.geteuid():
            os.setuid(54321)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        return str(run_program(b":", ENVIRONMENT, message, 60))

    (tmp_path / "message").touch()
    ended = end_of(work, tmp_path / "message")
    assert ended.letter == b"Z" and ended.text.startswith(b"Unable to run /bin/sh: resource temporarily unavailable")


def test_memory_stays_flat_whatever_a_program_says(tmp_path: Path) -> None:
    def work(message: int) -> str:
        run_program(b"head -c 1000000 /dev/zero", ENVIRONMENT, message, 60)
        before = _resident()
        for _ in range(3):
            run_program(b"head -c 200000000 /dev/zero", ENVIRONMENT, message, 60)
        return str(_resident() - before < 1_000_000)

    (tmp_path / "message").touch()
    assert run(work, tmp_path / "message") == (b"K", b"True\n")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
