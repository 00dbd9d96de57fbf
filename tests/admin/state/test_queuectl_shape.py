"""queuectl shape counts and prints as Postfix's qshape does, of our queue."""

import json
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from queue_admin.messages import divided
from queue_admin.messages.divided import divide
from queue_admin.views import age_table
from queue_admin.views.age_table import AgeTable, shape_domain
from queue_admin.views.queue_walk import PIECE, QueueWalk
from queue_base.errors import Temporary
from queue_base.queue.marks_file import MarksFile
from queue_wire.files.marks import DoneMarks, identify
from side_by_side.mail import Routes
from side_by_side.postfix import Postfix
from support.inject.qmail_queue import snapshot
from support.processes.suite import Suite, enqueue, program, wait_until
from support.queues.home import make_home
from support.queues.listed_queue import BIRTH, SOON, Queue, lines
from support.queues.postfix_queue import put_file, queue_file
from support.send.control import order
from support.servers.ports import free_port
from support.tools import need, need_root

MINUTE = 60


class Twins:
    """The same mail in a queue of ours and in Postfix's."""

    def __init__(self, path: Path, flat: bool = False) -> None:
        self.ours = Queue(path / "home", flat)
        self.theirs = path / "postfix"
        self.now = int(time.time())
        self._count = 0
        for name in ("incoming", "active", "deferred", "hold"):
            (self.theirs / name).mkdir(parents=True)

    def put(self, name: str, age: int, sender: bytes, left: list[bytes], done: list[bytes]) -> None:
        """Put a message of an age in seconds into both; half a minute is added, which the tests take."""
        born = self.now - age
        data = b"".join(b"T%s\0" % one for one in left) + b"".join(b"D%s\0" % one for one in done)
        if name == "incoming":
            message = self.ours.mess()
            tail = b"".join(b"T%s\0" % one for one in left)
            self.ours.put(self.ours.layout.todo(message), b"u1\0p2\0F%s\0%s" % (sender, tail))
        else:
            due = self.now - 5 if name == "active" else SOON
            kinds = {"remote": data} if len(left) % 2 else {"local": data, "remote": b"Dx@done.example\0"}
            message = self.ours.classified(sender, **kinds, due=due)
            os.utime(self.ours.layout.hashed("info", message), (born, born))
            if name == "hold":
                self.ours.put(self.ours.layout.hashed("hold", message), b"why\n")
        os.utime(self.ours.layout.mess(message), (born, born))
        self._count += 1
        if name != "incoming" or not done:
            put_file(self.theirs / name, self._count, queue_file(born, sender, left, done))

    def fill(self, number: int, seed: int) -> None:
        """Put random messages whose ages are not at the edge of a column."""
        chosen = random.Random(seed)
        domains = [b"example.com", b"a.example.com", b"b.c.example.com", b"Example.ORG", b"x..y.example"]
        domains += [b".dot.example.", b"a-very-long-label." * 3 + b"example.museum"]
        domains += [b"%d.many.example.net" % one for one in range(7)]
        senders = [b"", b"news@list.example", b"@", b"nobody", *(b"s@" + domain for domain in domains)]
        for _ in range(number):
            age = int(2 ** chosen.uniform(0, 12)) * MINUTE + 30
            left = [b"u%d@%s" % (one, chosen.choice(domains)) for one in range(chosen.randrange(4))]
            name = chosen.choice(["incoming", "active", "deferred", "hold"])
            done = [b"d@gone.example"] if name != "incoming" and chosen.random() < 0.3 else []
            if left or done:
                self.put(name, age, chosen.choice(senders), left, done)

    def qshape(self, queues: list[str], *options: str) -> list[str]:
        """Return the lines of Postfix's qshape."""
        places = [str(self.theirs / name) for name in queues]
        done = subprocess.run([need("qshape"), *options, *places], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.splitlines()


def in_one_order(table: list[str]) -> list[str]:
    """Return the lines of a table with those of equal totals and lengths in one order; theirs has none."""
    return [*table[:2], *sorted(table[2:])]


@pytest.mark.parametrize("flat", [False, True], ids=["hashed", "flat"])
def test_shape_prints_what_qshape_prints_for_the_same_mail(
    tmp_path: Path, flat: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    twins = Twins(tmp_path, flat)
    twins.fill(300, seed=7)
    for options, queues in (
        ("", ["incoming", "active"]),
        ("", ["deferred"]),
        ("-s", ["incoming", "active", "deferred", "hold"]),
        ("-p", ["incoming", "active", "deferred"]),
        ("-p -m 2 -s", ["deferred", "active"]),
        ("-b 12 -t 10", ["deferred"]),
        ("-l -b 5 -t 2.5", ["incoming", "hold"]),
        ("-b 1", ["active"]),
        ("-b 16 -w 140", ["hold", "deferred"]),
    ):
        expected = twins.qshape(queues, *options.split())
        assert twins.ours.run("shape", *options.split(), *queues) == 0
        assert in_one_order(lines(capsys)) == in_one_order(expected), options


def test_several_processes_count_what_one_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = Twins(tmp_path)
    twins.fill(100, seed=3)
    twins.ours.put(twins.ours.layout.hashed("remote", twins.ours.classified()), b"garbage")
    for words in (["deferred"], ["-s", "active", "hold"], ["-p", "-m", "2", "active", "deferred"]):
        shown = []
        for least in (10**9, 0):
            monkeypatch.setattr(divided, "DIVIDED_MIN", least)
            monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
            assert twins.ours.run("shape", *words) == 0
            shown.append(lines(capsys))
        assert shown[0] == shown[1]


def test_a_share_that_fails_or_is_killed_fails_the_whole() -> None:
    def fail(share: int) -> int:
        if share == 1:
            raise Temporary("unable to read: the disk")
        return share

    def die(share: int) -> int:
        if share == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return share

    assert divide(lambda share: share, 3) == [0, 1, 2]
    with pytest.raises(Temporary, match="unable to read: the disk"):
        divide(fail, 2)
    with pytest.raises(Temporary, match="has ended"):
        divide(die, 2)


def test_an_empty_queue_has_a_total_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twins = Twins(tmp_path)
    assert twins.ours.run("shape") == 0
    assert lines(capsys) == twins.qshape(["incoming", "active"])


def test_an_age_at_the_edge_of_a_column_counts_in_the_next(queue: Queue) -> None:
    table = AgeTable()
    assert [table.column(minutes * MINUTE) for minutes in (0, 5, 10, 20, 1280, 10**6)] == [0, 1, 2, 3, 9, 9]
    assert [table.column(minutes * MINUTE - 1) for minutes in (5, 10, 20, 1280)] == [0, 1, 2, 8]
    assert table.column(-5) == 0
    assert AgeTable(linear=True).column(10 * MINUTE) == 2


def test_the_domain_of_an_address_is_as_qshape_has_it() -> None:
    assert shape_domain(b"a@b@Example.COM") == b"example.com"
    assert shape_domain(b"a@.x..y.") == b"x.y"
    assert shape_domain("a@BÜCHER.example.".encode()) == b"xn--bcher-kva.example"
    assert shape_domain(b"") == shape_domain(b"#@[]") == b"MAILER-DAEMON"
    assert (shape_domain(b"a@"), shape_domain(b"Joe"), shape_domain(b"a@.")) == (b"", b"joe", b".")


def test_recipients_that_are_marked_done_do_not_count(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a message in todo/ queue/marks has the marks."""
    message = queue.queued(recipients=(b"c@done.example", b"e@left.example"))
    data = Path(queue.layout.todo(message)).read_bytes()
    marks = MarksFile(queue.layout)
    slot = marks.take()
    assert slot is not None
    marks.write(slot, DoneMarks(identify(message, BIRTH, data), 0b01))
    assert queue.run("shape", "--format", "json") == 0
    assert [(row["domain"], row["T"]) for row in map(json.loads, lines(capsys))] == [("TOTAL", 1), ("left.example", 1)]


def test_a_message_with_very_many_recipients_is_read_in_pieces(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    number = PIECE // 10
    queue.classified(remote=b"".join(b"Tu%d@long.example\0" % one for one in range(number)) + b"Dx@done.example\0")
    assert queue.run("shape", "--format", "json", "deferred") == 0
    assert [json.loads(line)["T"] for line in lines(capsys)] == [number, number]


def test_shape_changes_nothing(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.queued()
    queue.classified(local=b"Ta@b\0", remote=b"Ta@b\0")
    before = snapshot(Path(queue.home.queue))
    assert queue.run("shape", "-s", "incoming", "active", "deferred", "hold", "corrupt") == 0
    assert snapshot(Path(queue.home.queue)) == before


def test_a_message_that_is_classified_during_the_walk_is_found(queue: Queue) -> None:
    """Its file in todo/ is gone when it is to be read, and its other files are there by then."""
    names = [queue.queued(recipients=(b"a@b",)) for _ in range(2)]
    found = []
    for message in QueueWalk(queue.layout, ("incoming", "active"), time.time()):
        found.append(message.queue)
        for other in names:
            if os.path.exists(queue.layout.todo(other)):
                queue.put(queue.layout.hashed("info", other), b"Fa@b\0")
                queue.put(queue.layout.hashed("remote", other), b"Ta@b\0", 5)
                os.unlink(queue.layout.todo(other))
    assert sorted(found) == ["active", "incoming"]


def test_domains_beyond_a_number_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(age_table, "DOMAINS_MAX", 2)
    table = AgeTable()
    for domain in (b"a", b"b", b"c", b"d", b"a"):
        table.add(domain, 0)
    assert [(row.domain, row.total) for row in table.rows()] == [
        (b"TOTAL", 5), (b"a", 2), (b"(others)", 2), (b"b", 1),
    ]  # fmt: skip


def test_on_a_terminal_interim_tables_come_first_and_the_last_one_stays(queue: Queue) -> None:
    for number in range(30):
        queue.classified(remote=b"Tu@%d.example\0" % number)
    primary, secondary = pty.openpty()
    process = subprocess.Popen(
        [*program("queuectl"), "--home", queue.home.path, "shape", "-N", "10", "deferred"],
        stdout=secondary, stderr=secondary, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(secondary)
    text = b""
    try:
        while data := os.read(primary, 65536):
            text += data
    except OSError:
        pass  # The terminal of a process that has ended.
    os.close(primary)
    assert process.wait(60) == 0
    tables = text.decode().split("\x1b[H\x1b[2J")[1:]
    totals = [int(found[1]) for table in tables if (found := re.search(r"TOTAL +(\d+)", table))]
    assert totals == [10, 20, 30, 30]
    assert len(tables[-1].splitlines()) == 1 + 20


@pytest.mark.exhaustive
def test_shape_agrees_with_qshape_for_mail_that_postfix_queued_itself(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Postfix and the suite defer the same mail, whose relay nobody listens on."""
    need("qshape")
    need_root()
    mail = [
        ("ann@list.example.org", ["joe@one.example", "sue@one.example", "x@Two.example"]),
        ("", ["bounced@one.example"]),
        ("bob@other.example", [f"u{number}@d{number % 4}.many.example" for number in range(9)]),
    ]
    port, home = free_port(), make_home(tmp_path / "home", split=3)
    # Postfix's account may not look into the directories of pytest.
    place = Path(tempfile.mkdtemp(prefix="shape-"))
    request.addfinalizer(lambda: shutil.rmtree(place))
    place.chmod(0o755)
    theirs = Postfix(place, tmp_path)
    theirs.route(Routes(port))
    theirs.start()
    try:
        theirs.wait_ready()
        for sender, recipients in mail:
            words = [*theirs.one(recipients[0])[:-3], "-f", sender, *recipients]
            subprocess.run(words, input=b"Subject: x\n\nhello\n", env=theirs.environment(), check=True)
        deferred = place / "queue/deferred"
        wait_until(lambda: sum(path.is_file() for path in deferred.rglob("*")) == len(mail), why="deferred mail")
    finally:
        theirs.stop()
    Path(home.control, "smtproutes").write_text(f":127.0.0.1:{port}\n")
    with Suite(home) as suite:
        for sender, recipients in mail:
            envelope = [one.encode() for one in recipients]
            assert enqueue(home, sender.encode(), envelope, b"Subject: x\n\nhello\n").returncode == 0
        suite.wait_for(r"delivery \d+: deferral: ", times=sum(len(recipients) for _, recipients in mail))
    for options in ([], ["-s"], ["-p", "-m", "4"]):
        shown = subprocess.run([need("qshape"), *options, str(deferred)], capture_output=True, text=True, check=True)
        assert in_one_order(order(home, "shape", *options, "deferred").splitlines()) == in_one_order(
            shown.stdout.splitlines()
        )
