"""On a terminal a question comes before many messages, or other recipients, are hit. Scripts are asked nothing."""

import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from pathlib import Path

import pytest

from queue_base.home import Home
from support.processes.suite import program
from support.queues.queued import classified_message
from support.send.control import queuectl


def on_terminal(
    home: Home, *words: str, answer: str = "", given: str | None = None, controls: bool = True
) -> tuple[int, str]:
    """Run queuectl with a terminal; return its exit code and what the terminal showed.

    `given` comes by a pipe on stdin; the terminal is then that on /dev/tty, if it `controls`.
    """
    terminal, other = pty.openpty()
    process = subprocess.Popen(
        [*program("queuectl"), "--home", home.path, *words], stdin=other if given is None else subprocess.PIPE,
        stdout=other, stderr=other, start_new_session=True,
        preexec_fn=(lambda: fcntl.ioctl(2, termios.TIOCSCTTY, 0)) if controls else None,
    )  # fmt: skip
    os.close(other)
    if given is not None:
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(given.encode())
    shown, end = b"", time.monotonic() + 60
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            data = os.read(terminal, 4096)
        except OSError:
            break  # The other side is closed.
        shown += data
        if answer and b"[y/N]" in shown:
            os.write(terminal, answer.encode() + b"\n")
            answer = ""
    os.close(terminal)
    return process.wait(10), shown.decode()


@pytest.fixture
def many(home: Home) -> Home:
    for _ in range(101):
        classified_message(home, remote=[b"a@c.example"], sender=b"many@example.org")
    classified_message(home, remote=[b"a@c.example", b"b@d.example"], sender=b"two@example.org")
    return home


def test_many_messages_are_changed_only_after_yes(many: Home) -> None:
    words = ["hold", "--sender", "many@example.org"]
    code, shown = on_terminal(many, *words, answer="n")
    assert code == 100 and "Hold 101 messages? [y/N]" in shown and "nothing is held" in shown
    code, shown = on_terminal(many, *words, answer="y")
    assert code == 0 and shown.endswith("held 101 messages\r\n")


def test_yes_and_a_script_are_asked_nothing(many: Home) -> None:
    code, shown = on_terminal(many, "hold", "--sender", "many@example.org", "--yes")
    assert code == 0 and "[y/N]" not in shown
    assert queuectl(many, "release", "--all").stdout == "released 101 messages\n"


def test_other_recipients_that_are_hit_are_asked_about(many: Home) -> None:
    code, shown = on_terminal(many, "delete", "--recipient", "b@d.example", answer="n")
    assert code == 100 and "Delete 1 message with 1 recipient more than were named? [y/N]" in shown
    code, shown = on_terminal(many, "bounce", "--recipient", "b@d.example")
    assert code == 0 and "[y/N]" not in shown


def test_ids_by_a_pipe_are_asked_about_on_the_terminal(many: Home) -> None:
    ids = queuectl(many, "list", "-0", "--sender", "many@example.org").stdout
    code, shown = on_terminal(many, "delete", "-", given=ids, answer="n")
    assert code == 100 and "Delete 101 messages? [y/N]" in shown and "nothing is deleted" in shown
    code, shown = on_terminal(many, "hold", "-", "--yes", given=ids)
    assert code == 0 and "[y/N]" not in shown
    code, shown = on_terminal(many, "delete", "-", given=ids, answer="y")
    assert code == 0 and "[y/N]" in shown and "deleted 101 messages" in shown


def test_where_no_terminal_controls_the_process_nothing_is_asked(many: Home) -> None:
    ids = queuectl(many, "list", "-0", "--sender", "many@example.org").stdout
    code, shown = on_terminal(many, "hold", "-", given=ids, controls=False)
    assert code == 0 and "[y/N]" not in shown
    assert queuectl(many, "release", "--all").stdout == "released 101 messages\n"


def test_more_than_100_files_of_maildrop_are_changed_only_after_yes(home: Home) -> None:
    me = str(os.getuid())
    for number in range(101):
        Path(home.queue, "maildrop", f"mail.{number:032x}").write_bytes(b"x")
    for verb, done in (("hold", "held"), ("release", "released"), ("remove", "removed")):
        words = ["maildrop", verb, "--uid", me]
        code, shown = on_terminal(home, *words, answer="n")
        assert code == 100 and f"{verb.capitalize()} 101 files of uid {me}? [y/N]" in shown
        assert f"nothing is {done}" in shown
        code, shown = on_terminal(home, *words, "--yes")
        assert code == 0 and "[y/N]" not in shown and f"{done} 101 files" in shown
