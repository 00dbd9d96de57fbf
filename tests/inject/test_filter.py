"""QUEUE_ENQUEUE: a program in place of queue-enqueue, with the descriptors and exit codes of qmail-queue."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from queue_base.errors import explain_code
from queue_base.home import Home
from support.inject.batches import packed
from support.inject.injectors import Outcome, has_begun, inject, is_empty, only, run
from support.processes.forked import BIN
from support.processes.suite import program

MESSAGE = b"Subject: hello\n\nbody\n"


def script(path: Path, text: str, shell: str = "/bin/sh") -> str:
    """Write a program; return its path."""
    path.write_text(f"#!{shell}\n{textwrap.dedent(text)}")
    path.chmod(0o755)
    return str(path)


def send(home: Home, named: str, message: bytes = MESSAGE, name: str = "QUEUE_ENQUEUE") -> Outcome:
    """Run queue-inject with a program in place of queue-enqueue."""
    return inject(home, "-f", "a@b.example", "c@d.example", message=message, **{name: named})


@pytest.mark.parametrize("name", ["QUEUE_ENQUEUE", "QMAILQUEUE"])
def test_the_program_gets_message_and_envelope_and_no_other_descriptor(home: Home, tmp_path: Path, name: str) -> None:
    text = """
        import os, sys
        message = os.read(0, 100_000)
        assert os.read(0, 1) == b""
        envelope = os.read(1, 100_000)
        opened = [each for each in range(3, 1000) if os.path.exists(f"/proc/self/fd/{each}")]
        print(message, envelope, opened, sys.argv, os.environ["QUEUE_HOME"], sep="|", file=sys.stderr, end="")
        """
    named = script(tmp_path / "filter", text, sys.executable)
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    command = [*program("queue-inject"), "--home", home.path, "-f", "a@b.example", "c@d.example"]
    done = subprocess.run(
        command, input=MESSAGE, stderr=subprocess.PIPE, env={**os.environ, name: named}, close_fds=False, check=False
    )
    os.close(reader)
    os.close(writer)
    message, *others = done.stderr.decode().split("|")
    assert done.returncode == 0 and message.endswith("\\n\\nbody\\n'") and "Received:" not in message
    assert others == [repr(b"Fa@b.example\0Tc@d.example\0\0"), "[]", repr([named]), home.path]
    assert is_empty(home)


def test_a_refusal_is_one_also_where_the_caller_ignores_its_children(home: Home, tmp_path: Path) -> None:
    named = script(tmp_path / "filter", "cat >/dev/null; exit 31\n")
    done = subprocess.run(
        [*program("queue-inject"), "--home", home.path, "-f", "a@b.example", "c@d.example"],
        input=MESSAGE,
        stderr=subprocess.PIPE,
        env={**os.environ, "QUEUE_ENQUEUE": named},
        # Inherited across exec, as PHP and some daemons leave it.
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        check=False,
    )
    assert (done.returncode, is_empty(home)) == (100, True), done.stderr
    assert b"permanently rejected" in done.stderr


def test_ours_comes_before_qmail_s_and_an_empty_one_counts_for_nothing(home: Home, tmp_path: Path) -> None:
    bad = script(tmp_path / "bad", "exit 31\n")
    good = script(tmp_path / "good", "cat >/dev/null; cat <&1 >/dev/null\n")
    assert inject(home, "c@d.example", message=MESSAGE, QUEUE_ENQUEUE=good, QMAILQUEUE=bad).code == 0
    assert inject(home, "c@d.example", message=MESSAGE, QUEUE_ENQUEUE="", QMAILQUEUE=bad).code == 100
    assert is_empty(home)
    assert inject(home, "c@d.example", message=MESSAGE, QUEUE_ENQUEUE="", QMAILQUEUE="").code == 0
    assert only(home).message.endswith(b"body\n")


@pytest.mark.parametrize(
    ("code", "ours", "text"),
    [
        (1, 111, b"exited 1: qq temporary problem (#4.3.0)"),
        (10, 111, b"qq temporary problem"),
        (11, 100, b"envelope address too long for qq (#5.1.3)"),
        (12, 100, b"qq permanent problem (#5.3.0)"),
        (31, 100, b"mail server permanently rejected message (#5.3.0)"),
        (40, 100, b"qq permanent problem (#5.3.0)"),
        (41, 111, b"qq temporary problem"),
        (53, 111, b"qq write error or disk full (#4.3.0)"),
        (71, 111, b"mail server temporarily rejected message (#4.3.0)"),
        (115, 100, b"envelope address too long for qq (#5.1.3)"),
        (255, 111, b"qq temporary problem"),
    ],
)
def test_its_exit_code_is_our_verdict(home: Home, tmp_path: Path, code: int, ours: int, text: bytes) -> None:
    found = send(home, script(tmp_path / "filter", f"cat >/dev/null; cat <&1 >/dev/null; exit {code}\n"))
    assert found.code == ours and text in found.error
    assert found.error.startswith(b"queue-inject: fatal: unable to queue message by ")


@pytest.mark.parametrize(("code", "ours"), [(0, 0), (11, 65), (31, 69), (53, 75), (54, 75), (71, 75), (99, 75)])
def test_sendmail_turns_it_into_a_code_of_sysexits(home: Home, tmp_path: Path, code: int, ours: int) -> None:
    named = script(tmp_path / "filter", f"cat >/dev/null; cat <&1 >/dev/null; exit {code}\n")
    command = [*program("sendmail"), "--home", home.path, "c@d.example"]
    assert run(command, MESSAGE, QUEUE_ENQUEUE=named).code == ours and is_empty(home)


def test_a_program_that_refuses_without_reading_is_believed_and_one_that_says_queued_is_not(
    home: Home, tmp_path: Path
) -> None:
    large = MESSAGE + b"x" * 1_000_000
    assert send(home, script(tmp_path / "no", "exit 31\n"), large).code == 100
    found = send(home, script(tmp_path / "yes", "exit 0\n"), large)
    assert found.code == 111 and b"it did not read everything" in found.error
    deaf = script(tmp_path / "deaf", "exec 0</dev/null\ncat <&1 >/dev/null\nexit 0\n")
    assert send(home, deaf, large).code == 111


@pytest.mark.parametrize(
    "text",
    [
        "exit 0",
        "sleep 0.3; exit 0",
        "cat >/dev/null; exit 0",
        "cat <&1 >/dev/null; exit 0",
        "head -c 5 >/dev/null; cat <&1 >/dev/null; exit 0",
        "cat >/dev/null; head -c 5 <&1 >/dev/null; exit 0",
        "exec 0</dev/null; cat <&1 >/dev/null; exit 0",
        # A process that the program leaves behind does not count.
        "(exec >/dev/null 2>&1; sleep 5) & cat <&1 >/dev/null; exit 0",
    ],
)
def test_a_program_that_exits_0_and_has_not_read_all_of_a_small_message_has_not_queued_it(
    home: Home, tmp_path: Path, text: str
) -> None:
    named = script(tmp_path / "filter", f"{text}\n")
    found = send(home, named)
    assert found.code == 111 and b"did not read everything" in found.error, found
    batch = packed("netstring", 1) + packed("netstring", 2)
    done = run([*program("queue-inject"), "--home", home.path, "--batch", "netstring"], batch, QUEUE_ENQUEUE=named)
    assert done.code == 111 and [line.split()[0] for line in done.output.splitlines()] == [b"failed", b"failed"]


@pytest.mark.parametrize(
    "text",
    [
        "cat >/dev/null; cat <&1 >/dev/null; exit 0",
        # A program need not read to the end of the pipe: the envelope has an end of its own.
        "cat >/dev/null; head -c 27 <&1 >/dev/null; exit 0",
        "cat /dev/stdin >/dev/null; cat </dev/fd/1 >/dev/null",
    ],
)
def test_a_program_that_has_read_everything_is_believed(home: Home, tmp_path: Path, text: str) -> None:
    assert send(home, script(tmp_path / "filter", f"{text}\n")).code == 0


@pytest.mark.parametrize(("code", "ours"), [(0, 0), (31, 100), (71, 111)])
def test_its_exit_code_counts_also_where_our_caller_ignores_the_death_of_children(
    home: Home, tmp_path: Path, code: int, ours: int
) -> None:
    named = script(tmp_path / "filter", f"cat >/dev/null; cat <&1 >/dev/null; exit {code}\n")
    command = [*program("queue-inject"), "--home", home.path, "c@d.example"]

    def ignore() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    assert run(command, MESSAGE, ignore, QUEUE_ENQUEUE=named).code == ours


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE])
def test_a_program_that_dies_by_a_signal_is_temporary_trouble(home: Home, tmp_path: Path, number: int) -> None:
    found = send(home, script(tmp_path / "filter", f"kill -{int(number)} $$\n"))
    assert found.code == 111 and (b"killed by signal %d" % number in found.error)


def test_sigpipe_ends_the_program_s_own_children_as_it_does_elsewhere(home: Home, tmp_path: Path) -> None:
    named = script(tmp_path / "filter", "cat >/dev/null; cat <&1 >/dev/null; yes | head -1 >/dev/null\n")
    assert send(home, named).code == 0


def test_what_cannot_be_run_is_temporary_trouble_and_a_relative_path_is_refused(home: Home, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("exit 0\n")
    for named in (plain, tmp_path, tmp_path / "missing", tmp_path / "filter -v"):
        found = send(home, str(named))
        assert found.code == 111 and b"it cannot be run: " in found.error, named
    plain.chmod(0o755)  # Without #! only a shell would run it.
    assert b"exec format error" in send(home, str(plain)).error
    for relative in ("filter", "./filter", "bin/filter"):
        found = send(home, relative)
        assert found.code == 111 and b"it is not an absolute path" in found.error
    assert is_empty(home)


def test_nonsense_on_its_stderr_is_passed_on_and_its_stdout_cannot_be_written(home: Home, tmp_path: Path) -> None:
    text = "printf 'a\\000\\377b\\n' >&2; cat >/dev/null; cat <&1 >/dev/null; echo x && exit 1; exit 0\n"
    named = script(tmp_path / "filter", text)
    command = [*program("queue-inject"), "--home", home.path, "c@d.example"]
    environment = {**os.environ, "QUEUE_ENQUEUE": named}
    done = subprocess.run(command, input=MESSAGE, capture_output=True, check=False, env=environment, timeout=60)
    assert done.returncode == 0 and done.stdout == b"" and done.stderr.startswith(b"a\0\xffb\n")


_SHORT = "import sys, queue_inject.source as s, queue_inject.main as m; s.SECONDS = 3; sys.exit(m.main(sys.argv))"


@pytest.mark.parametrize("text", ["sleep 1000", "cat >/dev/null; sleep 1000", "exec 0</dev/null 1<&0; sleep 1000"])
def test_a_program_that_hangs_is_killed_with_what_it_started(home: Home, tmp_path: Path, text: str) -> None:
    named = script(tmp_path / "filter", f"echo $$ >{tmp_path}/pid\n{text}\nexit 0\n")
    message = MESSAGE + b"x" * 1_000_000
    begin = time.monotonic()
    found = run([sys.executable, "-c", _SHORT, "--home", home.path, "c@d.example"], message, QUEUE_ENQUEUE=named)
    assert found.code == 111 and b"it took too long and was killed" in found.error
    assert time.monotonic() - begin < 20
    pid = int((tmp_path / "pid").read_text())
    assert pid not in [_session(each) for each in Path("/proc").iterdir() if each.name.isdigit()]


def _session(process: Path) -> int | None:
    """Return the session of a process (its directory in /proc); None where it has ended, as others do all the time."""
    try:
        state, _, _, session = (process / "stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return None
    return None if state == "Z" else int(session)


def test_when_we_are_killed_the_program_sees_no_whole_envelope(home: Home, tmp_path: Path) -> None:
    named = script(tmp_path / "filter", f"exec {sys.executable} {BIN}/queue-enqueue\n")
    command = [*program("queue-inject"), "--home", home.path, "c@d.example"]
    environment = {**os.environ, "QUEUE_ENQUEUE": named}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(MESSAGE + b"x" * 200_000)
    process.stdin.flush()
    end = time.monotonic() + 30
    while not has_begun(home):
        assert time.monotonic() < end
    process.kill()
    process.wait(30)
    assert b"ends without its closing NUL" in process.stderr.read()  # queue-enqueue's, which goes on alone.
    process.stdin.close()
    process.stderr.close()
    assert is_empty(home)


def test_a_refused_message_ends_the_program_and_queues_nothing(home: Home, tmp_path: Path) -> None:
    named = script(tmp_path / "filter", f"exec {sys.executable} {BIN}/queue-enqueue\n")
    found = inject(home, "-f", "a@b", "x" * 1100 + "@d.example", message=MESSAGE, QUEUE_ENQUEUE=named)
    assert found.code == 100 and is_empty(home)


def test_queue_enqueue_itself_never_looks_at_it(home: Home, tmp_path: Path) -> None:
    with (tmp_path / "message").open("w+b") as message, (tmp_path / "envelope").open("w+b") as envelope:
        message.write(MESSAGE)
        envelope.write(b"Fa@b\0Tc@d\0\0")
        for file in (message, envelope):
            file.seek(0)
        command = [*program("queue-enqueue"), "--home", home.path]
        environment = {**os.environ, "QUEUE_ENQUEUE": "/bin/false", "QMAILQUEUE": "/bin/false"}
        assert subprocess.run(command, stdin=message, stdout=envelope, env=environment, check=False).returncode == 0
    assert only(home).message == MESSAGE


def test_the_filter_in_the_docs_signs_refuses_and_queues(home: Home, tmp_path: Path) -> None:
    page = (BIN.parent / "docs/sending.md").read_text()
    section = page.partition("\n## A filter for all mail\n")[2].partition("\n## ")[0]
    text = next(block for block in re.findall(r"(?:^    .*\n)+", section, re.MULTILINE) if "#!" in block)
    tools = tmp_path / "tools"
    tools.mkdir()
    script(tools / "spamc", "! grep -q VIAGRA\n")
    script(tools / "queue-enqueue", f'exec {sys.executable} {BIN}/queue-enqueue "$@"\n')
    text = re.sub("/opt/queue-suite/programs|/usr/bin", str(tools), textwrap.dedent(text))
    text = text.replace("/tmp/queue-filter", f"{tmp_path}/queue-filter")
    named = tmp_path / "filter"
    named.write_text(text)
    named.chmod(0o755)
    assert len(text.splitlines()) <= 10

    found = send(home, str(named))
    assert found.code == 0, found
    queued = only(home)
    assert queued.message.endswith(b"body\n") and queued.message.startswith(b"X-Scanned: ")
    assert queued.envelope.recipients == [b"c@d.example"]
    assert send(home, str(named), b"Subject: VIAGRA\n\n").code == 100
    assert only(home) == queued
    assert not list(tmp_path.glob("queue-filter.*"))


def test_the_ordinary_path_does_not_pay_for_it(home: Home) -> None:
    code = "import sys, queue_inject.main as m; m.main(sys.argv); "
    code += "sys.exit(not {'subprocess', 'queue_inject.filter'}.isdisjoint(sys.modules))"
    assert run([sys.executable, "-c", code, "--home", home.path, "c@d.example"], MESSAGE).code == 0
    assert only(home).message


def test_every_code_of_the_table_has_a_text() -> None:
    assert explain_code(64) == explain_code(62) and "#5" in explain_code(39) and "#4" in explain_code(99)
