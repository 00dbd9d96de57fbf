"""queuectl top: the live view on a terminal, and rankings; transcripts/top.txt has what it prints of a queue."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from queue_admin.messages import divided
from queue_admin.metrics.reading import Reading
from queue_admin.metrics.system_facts import DiskSpace, ProcessFacts
from queue_admin.views import ranking
from queue_admin.views.live_screen import LiveQueue, live_lines
from queue_admin.views.ranking import Ranking, reason_key
from queue_base.home import Home
from queue_base.queue.class_trees import make_class_tree
from queue_wire.admin.figure import Figure
from support.processes.suite import program
from support.queues.listed_queue import Queue, lines
from support.send.scripted_send import ScriptedSend

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


def rows(queue: Queue, capsys: pytest.CaptureFixture[str], *words: str) -> list[tuple[str, int, int, int]]:
    assert queue.run("top", "--format", "json", *words) == 0
    found = map(json.loads, lines(capsys))
    return [(row["key"], row["messages"], row["recipients"], row["bytes"]) for row in found]


@pytest.mark.parametrize("words", [["top"], ["top", "--by", "sender", "--limit", "3"], ["stat"]])
def test_several_processes_count_the_same_as_one(
    queue: Queue, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    for number in range(60):
        queue.classified(b"a%d@b.example" % (number % 7), remote=b"Tx@d%d.example\0" % (number % 5))
        queue.put(queue.layout.hashed("hold", queue.queued(b"c@d.example")), b"spam\n")
    queue.put(f"{queue.home.queue}/info/1/stray", b"")
    queue.put(queue.layout.bounce(10**9), b"x")
    queue.put(f"{queue.home.queue}/bounce/stray", b"")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    shown = []
    for least in (10**9, 0):
        monkeypatch.setattr(divided, "DIVIDED_MIN", least)
        queue.run(*words, "--format", "json")
        found = [json.loads(line) for line in lines(capsys)]
        shown.append([{key: value for key, value in each.items() if key != "disk"} for each in found])
    assert shown[0] == shown[1]


def test_messages_are_ranked_by_their_class(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.queued()
    queue.classified(remote=b"Tx@y\0")
    bulk = queue.classified(remote=b"Tx@y\0Ty@y\0")
    queue.put(queue.layout.hashed("info", bulk), b"Fa@b\0Pbulk\0")
    make_class_tree(queue.layout, "bulk")
    queue.put(queue.layout.todo_in("bulk", queue.mess()), b"u1\0p2\0Fa@b\0Tc@d\0")
    broken = queue.classified(remote=b"Tx@y\0")
    queue.put(queue.layout.hashed("info", broken), b"Fa@b\0Q")
    found = {key: numbers[:2] for key, *numbers in rows(queue, capsys, "--by", "priority")}
    assert found == {"(the first class)": [2, 2], "bulk": [2, 3], "(unknown)": [1, 1]}


def test_keys_beyond_a_number_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "KEYS_MAX", 1)
    found = Ranking()
    for key in (b"a", b"b", b"c", b"a"):
        found.add({key: 1}, 10)
    assert [(row.key, row.messages, row.size) for row in found.rows()] == [(b"(others)", 2, 20), (b"a", 2, 20)]
    assert found.total == [4, 4, 40]


def test_a_reason_has_no_particulars() -> None:
    one = b"192.0.2.7 said: 550 5.1.1 <joe@b.example>: no such user 8f3a91cc (#5.1.1)\n"
    other = b"198.51.100.9 said: 550 5.1.1 <ann@c.example>: no such user 77b1aa02 (#5.1.1)\n"
    assert reason_key(one) == reason_key(other) == b"* said: 550 5.1.1 *: no such user * (#5.1.1)"
    assert len(reason_key(b"x" * 10_000)) <= 160


REASONS: dict[tuple[bytes, ...], bytes] = {(b"remote", b"dead.example"): b"connection\x1b refused"}


def reading(at: float, **numbers: float) -> Reading:
    labels = {"results": (b"remote", b"success", b"none")}
    figures = [Figure(name.encode(), number, labels.get(name, ())) for name, number in numbers.items()]
    figures += [Figure(b"started", 900.0), Figure(b"read", 1), Figure(b"waiting", 7, (b"remote", b"busy\x1b.example"))]
    figures.append(Figure(b"suspended", 3, (b"remote", b"dead.example")))
    processes = [ProcessFacts("queue-send", 12, 100.0, 25_000_000, at / 10)]
    return Reading(at, figures, "", processes, DiskSpace(10**9, 10**10), False, False, None, reasons=REASONS)


def test_the_live_view_shows_rates_processes_and_destinations() -> None:
    before, after = reading(1000, arrived=100, results=10), reading(1002, arrived=300, results=11)
    one = LiveQueue("", "/var/queue/queue", after, before)
    shown = live_lines([one], ["messages  sender"], 100, 40)
    text = "\n".join(shown)
    assert "in 100/s" in text
    assert "success 0.5/s" in text
    assert "busy\\x1b.example" in text
    assert "dead.example: connection\\x1b refused" in text
    assert [line.split() for line in shown if line.startswith("queue-send")] == [
        ["queue-send", "12", "10.0", "25", "1m"]
    ]
    assert shown[-1] == "messages  sender"
    assert all(len(line) <= 20 for line in live_lines([one._replace(path="x" * 99)], [], 20, 5))
    assert len(live_lines([one._replace(before=None)], ["more"] * 50, 80, 6)) == 6
    # Of another run nothing is compared.
    other = one._replace(reading=after._replace(figures=[Figure(b"started", 5.0)]))
    assert "in -/s" in "\n".join(live_lines([other], [], 99, 9))


def test_the_live_view_of_several_queues_names_the_queue_of_each_line() -> None:
    before, after = reading(1000, arrived=100, results=10), reading(1002, arrived=300, results=11)
    down = Reading(1000.0, [], "queue-send does not run; nothing is tried", [], None, False, False, None)
    a, b, c = (LiveQueue(name, f"/{name}", now, then) for name, now, then in (
        ("a", after, before), ("b", after, None), ("c", down, None)
    ))  # fmt: skip
    shown = live_lines([a, b, c], ["messages  sender"], 100, 60)
    assert [line.split()[0] for line in shown if line.startswith(("a:", "b:", "c:"))] == ["a:", "b:", "c:"]
    assert shown[shown.index(next(line for line in shown if line.startswith("c:"))) + 1] == down.trouble
    assert "in 100/s" in shown[1]
    assert [line.split()[-1] for line in shown if line.startswith("queue-send   ")] == ["a", "b"]
    assert [line.split("  ")[-1] for line in shown if "dead.example" in line] == [
        f"dead.example, {name}: connection\\x1b refused" for name in "ab"
    ]
    assert shown[-1] == "messages  sender"


def test_the_live_view_says_that_queue_send_does_not_run() -> None:
    down = Reading(1000.0, [], "queue-send does not run; nothing is tried", [], None, False, False, None)
    assert "queue-send does not run" in live_lines([LiveQueue("", "/q", down, None)], [], 100, 40)[1]


def test_it_watches_only_on_a_terminal(queue: Queue) -> None:
    done = subprocess.run(
        [*program("queuectl"), "--home", queue.home.path, "top", "--watch"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 100
    assert "not a terminal" in done.stderr


class Watched:
    """`queuectl top --watch` on a pseudo-terminal."""

    def __init__(self, home: Home) -> None:
        self.primary, secondary = pty.openpty()
        self.resize(24, 80)
        self.before = termios.tcgetattr(secondary)
        self.process = subprocess.Popen(
            [*program("queuectl"), "--home", home.path, "top", "--watch"],
            stdin=secondary, stdout=secondary, stderr=secondary, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self._secondary = secondary
        self.text = b""

    def resize(self, high: int, wide: int) -> None:
        fcntl.ioctl(self.primary, termios.TIOCSWINSZ, struct.pack("HHHH", high, wide, 0, 0))

    def wait_for(self, text: bytes) -> None:
        """Read until a text has come since the last call; forget what was before its end."""
        end = time.monotonic() + 60
        while text not in self.text:
            assert select.select([self.primary], [], [], max(0, end - time.monotonic()))[0], self.text[-2000:]
            self.text += os.read(self.primary, 65536)
        self.text = self.text.partition(text)[2]

    @property
    def settings(self) -> list[object]:
        return list(termios.tcgetattr(self._secondary))

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)
        os.close(self.primary)
        os.close(self._secondary)


@contextmanager
def watched(home: Home) -> Iterator[Watched]:
    found = Watched(home)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("way", ["q", "interrupt", "TERM"])
def test_the_live_view_leaves_the_terminal_as_it_was(queue: Queue, way: str) -> None:
    with watched(queue.home) as seen:
        seen.wait_for(ENTER)
        seen.wait_for(b"does not run")
        assert seen.settings != seen.before
        if way == "TERM":
            seen.process.send_signal(signal.SIGTERM)
        else:
            os.write(seen.primary, b"q" if way == "q" else b"\x03")
        seen.wait_for(LEAVE)
        assert seen.process.wait(60) == 0
        assert seen.settings == seen.before


def test_the_live_view_follows_the_size_of_the_terminal_and_comes_back_after_a_stop(home: Home) -> None:
    with ScriptedSend(home), watched(home) as seen:
        seen.wait_for(b"worst turn")
        seen.resize(3, 30)
        seen.wait_for(b"\x1b[H")
        seen.wait_for(b"\x1b[H")
        drawn = seen.text.partition(b"\x1b[H")[0]
        assert drawn.count(b"\r\n") <= 3
        os.write(seen.primary, b"\x1a")
        seen.wait_for(LEAVE)
        os.waitid(os.P_PID, seen.process.pid, os.WSTOPPED)
        assert seen.settings == seen.before
        seen.process.send_signal(signal.SIGCONT)
        seen.wait_for(ENTER)
        seen.wait_for(b"\x1b[H")
        os.write(seen.primary, b"q")
        assert seen.process.wait(60) == 0
