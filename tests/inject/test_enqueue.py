"""queue-enqueue keeps qmail-queue's contract: bytes, envelope, Received: line and exit codes."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from queue_admin.messages.survey import look
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.files.envelope import ADDRESS_MAX
from support.inject.injectors import (
    OWNER,
    ROOT,
    Outcome,
    enqueue,
    file_limit,
    has_begun,
    is_empty,
    only,
    queued,
    shared_home,
    states,
)
from support.processes.suite import program, wait_until
from support.queues.home import make_home

ENVELOPE = b"Fa@example.org\0Tb@example.net\0\0"
pytestmark = pytest.mark.home(23)


@pytest.mark.parametrize(
    "message",
    [b"", b"no newline at the end", b".\n..\n.\n", bytes(range(256)) * 3, b"one\r\ntwo\r\n", b"\n\n\n"],
    ids=["nothing", "no final newline", "dots", "every byte", "CRLF", "empty lines"],
)
def test_a_message_is_queued_byte_for_byte(home: Home, message: bytes) -> None:
    assert enqueue(home, message).code == 0
    assert only(home).message == message


def test_a_message_of_30_mb_is_queued_byte_for_byte(home: Home) -> None:
    message = os.urandom(30_000_000)

    assert enqueue(home, message).code == 0
    assert only(home).message == message


def test_the_received_line_is_qmail_s(home: Home) -> None:
    enqueue(home, b"hello\n")
    message = only(home)
    form = rb"Received: \(qmail (\d+) invoked by uid (\d+)\); \d{1,2} [A-Z][a-z][a-z] 20\d\d \d\d:\d\d:\d\d -0000"

    match = re.fullmatch(form, message.received)
    assert match
    assert (int(match[1]), int(match[2])) == (message.envelope.pid, message.envelope.uid)


def test_the_envelope_is_kept_with_the_uid(home: Home) -> None:
    recipients = [b"b@example.net", b"B@EXAMPLE.NET", b"", b"odd \n\xff name@x", b"b@example.net"]
    data = b"F#@[]\0" + b"".join(b"T%s\0" % each for each in recipients) + b"\0"

    assert enqueue(home, b"x", data).code == 0
    envelope = only(home).envelope
    assert (envelope.uid, envelope.sender, envelope.recipients) == (os.getuid(), b"#@[]", recipients)


def test_an_envelope_without_recipients_is_taken_as_qmail_queue_does(home: Home) -> None:
    assert enqueue(home, b"x", b"F\0\0").code == 0
    assert only(home).envelope.recipients == []


def test_what_follows_the_envelope_is_not_looked_at(home: Home) -> None:
    assert enqueue(home, b"x", ENVELOPE + b"garbage\0").code == 0
    assert only(home).envelope.recipients == [b"b@example.net"]


def test_files_have_the_queue_s_modes_and_no_name_stays_in_pid(home: Home) -> None:
    enqueue(home, b"x")
    number = only(home).number
    modes = {
        kind: oct(Path(home.queue, kind, str(number % 23), str(number)).stat().st_mode & 0o777)
        for kind in ("mess", "todo")
    }

    assert modes == {"mess": "0o640", "todo": "0o600"}
    assert os.listdir(home.queue + "/pid") == []


def test_a_flat_queue_is_filled_flat(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=7, flat=True)

    assert enqueue(home, b"x").code == 0
    number = only(home).number
    assert Path(home.queue, "todo", str(number)).is_file() and os.listdir(home.queue + "/intd") == []


def refused(home: Home, outcome: Outcome, code: int, *words: bytes) -> None:
    """Check the exit code, the words on stderr, and that nothing is left."""
    assert outcome.code == code, outcome
    assert all(word in outcome.error for word in words), outcome
    assert is_empty(home)


def test_the_longest_address_is_taken_and_one_byte_more_refused(home: Home) -> None:
    longest = b"x" * (ADDRESS_MAX - 12) + b"@example.net"
    for size, code in ((0, 0), (1, 11), (2, 11)):
        for form in (b"F%s\0Tb@c\0\0", b"Fa@b\0T%s\0\0"):
            assert enqueue(home, b"x", form % (b"y" * size + longest)).code == code
    assert len(queued(home)) == 2 and states(home) == {4: 2}


@pytest.mark.parametrize("envelope", [b"", b"Fa@b", b"Fa@b\0", b"Fa@b\0Tc@d", b"Fa@b\0Tc@d\0"])
def test_an_envelope_that_ends_before_its_closing_nul_is_54(home: Home, envelope: bytes) -> None:
    refused(home, enqueue(home, b"x", envelope), 54, b"closing NUL")


@pytest.mark.parametrize("envelope", [b"\0", b"Ta@b\0\0", b"Fa@b\0Fc@d\0\0", b"Fa@b\0xc@d\0\0", b"garbage\0"])
def test_an_envelope_in_another_form_is_91(home: Home, envelope: bytes) -> None:
    refused(home, enqueue(home, b"x", envelope), 91)


@pytest.mark.parametrize("descriptor", [0, 1])
def test_a_closed_descriptor_is_54(home: Home, descriptor: int) -> None:
    refused(home, enqueue(home, b"x", preexec=lambda: os.close(descriptor)), 54, b"unable to use descriptor")


def test_a_descriptor_that_cannot_be_read_is_54(home: Home, tmp_path: Path) -> None:
    with (tmp_path / "only for writing").open("wb") as file:
        done = subprocess.run([*program("queue-enqueue"), "--home", home.path], stdin=file, stderr=subprocess.PIPE)

    refused(home, Outcome(done.returncode, b"", done.stderr), 54, b"unable to use descriptor 0")


def test_a_closed_stderr_never_becomes_a_file_of_the_queue(home: Home) -> None:
    envelope = b"Fa@b\0T" + b"x" * 2000 + b"\0\0"

    with pytest.raises(AssertionError, match="code=11"):
        enqueue(home, b"x", envelope, preexec=lambda: os.close(2))
    assert is_empty(home)
    assert enqueue(home, b"x", preexec=lambda: os.close(2)).code == 0
    assert only(home).message == b"x"


def test_a_full_disk_is_53_and_leaves_nothing(home: Home) -> None:
    refused(home, enqueue(home, b"x" * 300_000, preexec=file_limit(200_000)), 53, b"unable to write", b"mess/")


def test_an_envelope_that_does_not_fit_is_53_and_leaves_nothing(home: Home) -> None:
    envelope = b"Fa@b\0" + b"Tsomebody@example.net\0" * 20_000 + b"\0"

    refused(home, enqueue(home, b"x", envelope, preexec=file_limit(200_000)), 53, b"unable to write", b"intd/")


def test_no_memory_is_51(home: Home) -> None:
    script = (
        "import os, resource, sys, queue_inject.enqueue as e\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096 + (24 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used, used))\n"
        "os._exit(e.main(sys.argv))"
    )
    envelope = b"Fa@b\0" + b"Tsomebody@example.net\0" * 1_500_000 + b"\0"

    refused(home, enqueue(home, b"x", envelope, command=[sys.executable, "-c", script]), 51, b"out of memory")


def test_a_client_that_never_ends_is_52(home: Home) -> None:
    script = "import sys, queue_inject.source as s; s.SECONDS = 0.2\n"
    script += "from queue_inject.enqueue import main; sys.exit(main(sys.argv))"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "--home", home.path], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin and process.stderr
    with process.stdin, process.stderr:
        error = process.stderr.read()
        refused(home, Outcome(process.wait(60), b"", error), 52, b"took too long")


def test_no_home_is_61_and_no_queue_62(home: Home, tmp_path: Path) -> None:
    assert enqueue(Home(str(tmp_path / "nowhere"))).code == 61
    Path(home.queue).rename(tmp_path / "elsewhere")
    outcome = enqueue(home)
    assert outcome.code == 62 and b"queuectl init" in outcome.error


@pytest.mark.parametrize(("kind", "code"), [("pid", 63), ("mess/*", 64), ("intd/*", 65), ("todo/*", 66)])
def test_a_directory_that_may_not_be_written_has_its_own_code(kind: str, code: int) -> None:
    with shared_home() as home:
        for directory in Path(home.queue).glob(kind):
            directory.chmod(0o500)
        outcome = enqueue(home)

        refused(home, outcome, code, kind[:4].encode(), b"permission denied")


def test_root_writes_as_the_queue_s_owner_and_its_own_uid_is_on_record() -> None:
    with shared_home() as home:
        assert enqueue(home, b"x").code == 0
        message = only(home)
        path = Path(home.queue, "mess", str(message.number % 23), str(message.number))
        assert path.stat().st_uid == OWNER
        assert message.envelope.uid == os.getuid() == (0 if ROOT else OWNER)


def test_an_option_that_is_none_says_the_usage(home: Home) -> None:
    outcome = enqueue(home, command=[*program("queue-enqueue"), "--foo"])

    assert outcome.code != 0 and b"usage: queue-enqueue" in outcome.error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGINT])
def test_a_signal_in_the_middle_of_a_message_leaves_nothing(home: Home, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [*program("queue-enqueue"), "--home", home.path], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin and process.stderr
    with process.stdin, process.stderr:
        process.stdin.write(b"x" * 100_000)
        process.stdin.flush()
        wait_until(lambda: has_begun(home))
        process.send_signal(number)
        assert process.wait(60) != 0
    assert is_empty(home)


def test_the_long_id_is_written_to_the_descriptor_that_is_named(home: Home, tmp_path: Path) -> None:
    command = f"exec {' '.join(program('queue-enqueue'))} --home {home.path} --id-on 3 3>{tmp_path}/id"
    assert enqueue(home, b"x", command=["sh", "-c", command]).code == 0
    found = look(open_layout(home.queue), only(home).number)
    assert found is not None
    assert (tmp_path / "id").read_text() == f"{found.long_id}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--id-on"], b"--id-on needs the number of a descriptor, from 3 on; usage: "),
        (["--id-on", "2"], b"--id-on needs the number of a descriptor, from 3 on; usage: "),
        (["--id-on", "\u0663"], b"--id-on needs the number of a descriptor, from 3 on; usage: "),
        (["--id-on", "999"], b"unable to use descriptor 999 of --id-on: bad file descriptor"),
    ],
)
def test_a_descriptor_that_is_none_queues_nothing(home: Home, words: list[str], told: bytes) -> None:
    outcome = enqueue(home, command=[*program("queue-enqueue"), "--home", home.path, *words])
    assert outcome.code == 55 and told in outcome.error
    assert is_empty(home)


def test_a_message_whose_id_cannot_be_written_is_queued(home: Home) -> None:
    command = f"exec {' '.join(program('queue-enqueue'))} --home {home.path} --id-on 3 3>/dev/full"
    assert enqueue(home, b"x", command=["sh", "-c", command]).code == 0
    assert only(home).message == b"x"
