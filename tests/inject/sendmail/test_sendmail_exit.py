"""sendmail exits with the codes of sysexits.h and one line on stderr that says why; then nothing is queued."""

import os
import subprocess
from pathlib import Path

import pytest

from queue_base.errors import CONFIG, NO_MEMORY, READ, TOO_LONG, WRITE, Permanent, QueueTrouble, Temporary, Usage
from queue_base.home import Home
from queue_inject.sendmail.exit_codes import exit_code
from queue_wire.format_error import FormatError
from support.inject.injectors import file_limit, is_empty, run, sendmail
from support.processes.suite import program

MESSAGE = b"From: ann@me.example.org\nTo: bob@x.y\n\nbody\n"
USAGE = [
    ([], b"no recipients"),
    (["-i"], b"-t"),
    (["-f"], b"-f needs a value"),
    (["-z", "b@x.y"], b"-z is not an option"),
    (["-M", "b@x.y"], b"-M is not an option"),
    (["-f", "a@x.y, b@x.y", "c@x.y"], b"one address"),
    (["-bd"], b"queue-start"),
    (["-bd", "-q15m"], b"queue-start"),
    (["-bD"], b"queue-start"),
    (["-bt"], b"queuectl route"),
    (["-bv", "b@x.y"], b"queuectl route"),
    (["-bh"], b"queuectl destinations"),
    (["-bz"], b"-bz is not an option"),
    (["-q5m"], b"retryschedule"),
    (["-qp1h"], b"retryschedule"),
    (["-q", "b@x.y"], b"takes no recipients"),
    (["-qSann"], b"-qS needs an address"),
    (["-qR"], b"-qR needs a value"),
    (["-qR@"], b"-qR needs a domain"),
    (["-B", "BINARYMIME", "b@x.y"], b"8BITMIME"),
    (["-B7bit,8bitmime", "b@x.y"], b"8BITMIME"),
    (["-N", "never,delay", "b@x.y"], b"-N needs never"),
    (["-N", "", "b@x.y"], b"-N needs never"),
    (["-R", "some", "b@x.y"], b"full or hdrs"),
    (["-V", "a b", "b@x.y"], b"envelope id"),
    (["-V" + "x" * 101, "b@x.y"], b"envelope id"),
    (["-V", "", "b@x.y"], b"envelope id"),
    (["-V", "\u00e9", "b@x.y"], b"envelope id"),
    (["-XV", "b@x.y"], b"-@[]"),
]
DATA = [
    (["-t"], b"Subject: to nobody\n\nbody", b"no recipients"),
    (["-t"], b"To: (oops\n\nbody", b"To field"),
    (["a@b@c,"], MESSAGE, b"recipient"),
    (["<a@x.y"], MESSAGE, b"without its >"),
    ([""], MESSAGE, b"recipient"),
    (["-f", "@x.y", "b@x.y"], MESSAGE, b"sender"),
    (["-f", "<a", "b@x.y"], MESSAGE, b"sender"),
    (['""@x.y'], MESSAGE, b"name before the @ is empty"),
    (["-f", '""@x.y', "b@x.y"], MESSAGE, b"name before the @ is empty"),
    (["-t"], b'From: b@x.y\nCc: ""@x.y\n\n', b"name before the @ is empty"),
    (["a\x01@x.y"], MESSAGE, b"control character"),
    (["a\u00a0b@x.y"], MESSAGE, b"U+00A0, a character that nobody sees"),
    (["-f", "a@x.y\u00a0", "b@x.y"], MESSAGE, b"U+00A0, a character that nobody sees"),
    (["-t"], "To: b@x.y\u00a0\n\n".encode(), b"U+00A0, a character that nobody sees"),
    (["-t"], "To: Ann <a\u00adb@x.y>\n\n".encode(), b"U+00AD, a character that nobody sees"),
    (["-t"], "To: a\x85b@x.y\n\n".encode(), b"control character"),
    (["-t"], b"To: j\xfcrgen@x.y\n\n", b"neither ASCII nor UTF-8"),
    (["-t"], b"\xef\xbb\xbfTo: b@x.y\n\n", b"byte order mark (BOM), so it has no header; save it as UTF-8 without"),
    (["-t"], "To: b@x.y\n\n".encode("utf-16"), b"byte order mark (BOM)"),
    (["-t"], b"Subject: x\n\n\xef\xbb\xbfTo: b@x.y\n", b"no recipients"),
    (["x" * 1004 + "@x.y"], MESSAGE, b"limit"),
    (["b@x.y"], b"X: " + b"x" * (17 << 20), b"over 16777216 bytes"),
]


@pytest.mark.parametrize(("arguments", "words"), USAGE)
def test_a_wrong_command_line_is_64(home: Home, arguments: list[str], words: bytes) -> None:
    outcome = sendmail(home, *arguments, message=MESSAGE)

    assert (outcome.code, outcome.output) == (64, b""), outcome
    assert outcome.error.startswith(b"sendmail: fatal: ") and words in outcome.error and is_empty(home)


@pytest.mark.parametrize(("arguments", "message", "words"), DATA)
def test_a_wrong_message_or_address_is_65(home: Home, arguments: list[str], message: bytes, words: bytes) -> None:
    outcome = sendmail(home, *arguments, message=message)

    assert (outcome.code, outcome.output) == (65, b""), outcome
    assert outcome.error.startswith(b"sendmail: fatal: unable to ") and words in outcome.error and is_empty(home)


def test_trouble_that_may_pass_is_75(home: Home, tmp_path: Path) -> None:
    nowhere = sendmail(Home(str(tmp_path / "nowhere")), "b@x.y", message=MESSAGE)
    assert nowhere.code == 75 and b"queuectl init" in nowhere.error
    command = [*program("sendmail"), "--home", home.path, "-i", "b@x.y"]
    full = run(command, MESSAGE + b"x" * 300_000, file_limit(200_000))
    assert full.code == 75 and b"unable to write" in full.error and is_empty(home)
    Path(home.control, "defaulthost").mkdir()
    control = sendmail(home, "b", message=MESSAGE)
    assert control.code == 75 and b"control/defaulthost" in control.error and is_empty(home)


def test_a_standard_input_that_cannot_be_read_is_74(home: Home, tmp_path: Path) -> None:
    command = [*program("sendmail"), "--home", home.path, "b@x.y"]

    closed = run(command, b"", lambda: os.close(0))
    assert closed.code == 74 and b"descriptor 0" in closed.error
    unreadable = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    try:
        done = subprocess.run(command, stdin=unreadable, capture_output=True, timeout=60)
    finally:
        os.close(unreadable)
    assert done.returncode == 74 and b"bad file descriptor" in done.stderr and is_empty(home)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Usage("x"), 64),
        (Permanent("x"), 65),
        (FormatError("x"), 65),
        (QueueTrouble(TOO_LONG, "x"), 65),
        (QueueTrouble(31, "refused by a filter"), 69),
        (ValueError("a bug"), 70),
        (QueueTrouble(NO_MEMORY, "x"), 71),
        (MemoryError(), 71),
        (QueueTrouble(READ, "x"), 74),
        (QueueTrouble(WRITE, "x"), 75),
        (QueueTrouble(CONFIG, "x"), 75),
        (Temporary("x"), 75),
        (KeyboardInterrupt(), 75),
    ],
)
def test_each_kind_of_failure_has_its_code(error: BaseException, code: int) -> None:
    assert exit_code(error) == code
