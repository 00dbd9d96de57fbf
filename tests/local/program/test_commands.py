"""preline, forward, condredirect, bouncesaying and except do what qmail's do, so that existing .qmail files go on."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from queue_base.home import Home
from support.inject.injectors import only, queued
from support.processes.suite import program

NAMES = ("preline", "forward", "condredirect", "bouncesaying", "except")
MESSAGE = b"Subject: x\n\nbody \0\xff\n" + b"x" * 200_000
UFLINE, RPLINE, DTLINE = b"From a@b date\n", b"Return-Path: <a@b>\n", b"Delivered-To: joe@host.example\n"
# qmail's manual pages: the words, their exit code, and what is said.
RULES: list[tuple[str, int, bytes]] = [
    ("except false", 0, b""),
    ("except true", 100, b""),
    ("except sh -c 'exit 100'", 0, b""),
    ("except sh -c 'exit 111'", 111, b"except: fatal: unable to go on: sh exited 111"),
    ("except sh -c 'kill $$'", 111, b"except: fatal: unable to go on: signal 15 killed sh"),
    ("except /no/program", 111, b"except: fatal: unable to run /no/program: no such file or directory"),
    ("except", 100, b"except: fatal: no arguments; usage: except PROGRAM"),
    ("bouncesaying 'Go away'", 100, b"Go away"),
    ("bouncesaying 'Go away' true", 100, b"Go away"),
    ("bouncesaying 'Go away' grep -q ^Subject:", 100, b"Go away"),
    ("bouncesaying 'Go away' false", 0, b""),
    ("bouncesaying 'Go away' sh -c 'exit 111'", 111, b"bouncesaying: fatal: unable to go on: sh exited 111"),
    ("bouncesaying 'Go away' /no/program", 111, b"bouncesaying: fatal: unable to run /no/program: no such file"),
    ("condredirect c@d.example false", 0, b""),
    ("condredirect c@d.example sh -c 'exit 111'", 111, b"condredirect: fatal: unable to go on: sh exited 111"),
    ("condredirect c@d.example", 100, b"condredirect: fatal: too few arguments; usage: condredirect ADDRESS PROGRAM"),
    ("preline sh -c 'exit 7'", 7, b""),
    ("preline true", 0, b""),
    ("preline -x cat", 100, b"preline: fatal: -x is not an option"),
    ("preline --from cat", 100, b"preline: fatal: --from is not an option"),
    ("preline /no/program", 111, b"preline: fatal: unable to run /no/program: no such file or directory"),
    ("forward", 100, b"forward: fatal: no arguments; usage: forward ADDRESS ...\n"),
]


def run(home: Home, line: str, message: Path, **more: bytes) -> tuple[int, bytes]:
    """Run a line as queue-local does; return its exit code and what it said."""
    lines = {"UFLINE": UFLINE, "RPLINE": RPLINE, "DTLINE": DTLINE, "NEWSENDER": b"list-owner@host.example", **more}
    name, _, rest = line.partition(" ")
    words = " ".join([*program(name), rest])
    with message.open("rb") as stdin:
        done = subprocess.run(
            ["sh", "-c", words],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environb, b"QUEUE_HOME": os.fsencode(home.path), **{os.fsencode(k): v for k, v in lines.items()}},
            timeout=60,
            check=False,
        )
    return done.returncode, done.stdout


@pytest.fixture
def message(tmp_path: Path) -> Path:
    path = tmp_path / "message"
    path.write_bytes(MESSAGE)
    return path


@pytest.mark.parametrize(("line", "code", "said"), RULES, ids=[rule[0] for rule in RULES])
def test_the_exit_code_says_what_becomes_of_the_message(
    home: Home, message: Path, line: str, code: int, said: bytes
) -> None:
    found = run(home, line, message)
    assert found[0] == code and found[1].startswith(said) and bool(found[1]) == bool(said)
    assert queued(home) == []


@pytest.mark.parametrize(
    ("options", "lines"),
    [("", UFLINE + RPLINE + DTLINE), ("-f ", RPLINE + DTLINE), ("-r -d ", UFLINE), ("-frd ", b"")],
)
def test_preline_puts_the_lines_before_the_message(home: Home, message: Path, options: str, lines: bytes) -> None:
    assert run(home, f"preline {options}cat", message) == (0, lines + MESSAGE)


@pytest.mark.parametrize(
    ("line", "code", "recipients"),
    [
        ("forward c@d.example e@f.example", 0, [b"c@d.example", b"e@f.example"]),
        # The program has read of the message, which is forwarded from its start.
        ("condredirect c@d.example grep -q ^Subject:", 99, [b"c@d.example"]),
    ],
)
def test_what_is_forwarded_has_the_delivered_to_line_and_the_new_sender(
    home: Home, message: Path, line: str, code: int, recipients: list[bytes]
) -> None:
    found = run(home, line, message)
    assert found[0] == code and re.fullmatch(b"%s: qp [0-9]+\n" % line.split()[0].encode(), found[1])
    forwarded = only(home)
    assert forwarded.message == DTLINE + MESSAGE
    assert forwarded.envelope.sender == b"list-owner@host.example" and forwarded.envelope.recipients == recipients


def test_what_the_queue_does_not_take_now_defers_and_what_it_never_takes_fails(home: Home, message: Path) -> None:
    assert run(home, "forward c@d.example", message, QUEUE_HOME=b"/nowhere")[0] == 111
    code, said = run(home, f"forward {'c' * 2000}@d.example", message)
    assert code == 100 and b"queue-enqueue exited 11" in said
    assert queued(home) == []


@pytest.mark.parametrize("name", NAMES)
def test_help_is_the_usage_on_stdout_and_exit_0(home: Home, message: Path, name: str) -> None:
    code, said = run(home, f"{name} --help", message)
    assert code == 0 and said.startswith(b"usage: %s " % name.encode()) and said.count(b"\n") == 2
