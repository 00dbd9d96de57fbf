"""Two queues of a home and all that a queue has: classes, mail on demand, holds, the network, deferred classification.

Their logs are those of one host to queue-report, each under its own name.
"""

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.queue.writer import QueueDraft, QueueWriter
from queue_report.reports.choice import open_engine
from queue_wire.ids import split_queue_id
from support.intake.intake_daemon import Client, intake_service, qmtp
from support.processes.suite import Suite, wait_until
from support.queues.home import make_queue
from support.queues.letters import letter_text, token_of
from support.send.control import order, queuectl
from support.servers.ports import free_port
from support.servers.smtp.sink import Sink
from support.site import Site, mail_site
from support.smtpd.smtpd_daemon import SmtpdDaemon
from support.spark.lake_rows import ask
from support.spark.logs.log_lake import Lake

NAMES = ("a", "b")
STORED = r"^delivery \d+: success: stored_for_customer\.example"
ENDED = r"^ondemand customer\.example ended: delivered (\d+) failed 0 deferred 0"


class SeveralSite:
    """A Site whose home has queues a and b; what is put into one has its name and a number as its token."""

    def __init__(self, site: Site) -> None:
        self.site = site
        top = Path(site.home.path)
        for name in NAMES:
            make_queue(top / name, 3)
        for kind in ("lock", "intake"):
            (top / "run" / kind).mkdir(parents=True)
        site.control("queues", "".join(f"{name}\n" for name in NAMES))
        self.home = Home(site.home.path)
        self._count = 0

    def put(self, queue: str, recipient: str, sender: str = "joe@me.example.org", priority: str = "") -> str:
        """Put a message into a queue; return its id."""
        self._count += 1
        one = self.home.choose(queue)
        writer = QueueWriter(one, open_layout(one.queue), os.getuid())
        writer.priority = priority
        draft = writer.begin()
        assert isinstance(draft, QueueDraft)
        draft.write(letter_text(f"{queue}{self._count}"))
        draft.finish(sender.encode(), [recipient.encode()])
        writer.commit([draft])
        return f"{queue}/{draft.long_id}"

    def delivered(self) -> list[str]:
        """Return the tokens of what has come to local recipients."""
        return sorted(token_of(message) for message in self.site.delivered())


@pytest.fixture
def several() -> Iterator[SeveralSite]:
    with mail_site() as site:
        yield SeveralSite(site)


@contextmanager
def both_sets(several: SeveralSite, logs: Path | None = None) -> Iterator[dict[str, Suite]]:
    """Run the daemons of both queues; below `logs` are the logs, as multilog writes them."""
    with ExitStack() as stack:
        sets: dict[str, Suite] = {}
        for name in NAMES:
            on_line = None
            if logs is not None:
                (logs / name).mkdir(parents=True, exist_ok=True)
                file = stack.enter_context((logs / name / "current").open("a"))
                on_line = Stamped(file.write)
            sets[name] = stack.enter_context(Suite(several.home, options=("--queue", name), on_line=on_line))
        yield sets


class Stamped:
    """Writes lines with TAI64N stamps that grow."""

    def __init__(self, write: object) -> None:
        self._write = write

    def __call__(self, line: str) -> None:
        seconds, nanoseconds = divmod(time.time_ns(), 10**9)
        assert callable(self._write)
        self._write(f"@{(1 << 62) + 10 + seconds:016x}{nanoseconds:08x} {line}\n")


def test_mail_on_demand_of_both_queues_is_listed_asked_for_removed_and_returned(several: SeveralSite) -> None:
    port = free_port()
    several.site.control("ondemand", "customer.example:etrn probe never\n")
    several.site.control("smtproutes", f"customer.example:127.0.0.1:{port}\n")
    with both_sets(several) as sets, SmtpdDaemon(several.home) as smtpd:
        ids = [several.put(name, "ann@customer.example") for name in (*NAMES, *NAMES)]
        for suite in sets.values():
            suite.wait_for(STORED, times=2)
        shown = order(several.home, "stored", "customer.example").splitlines()
        assert sorted(line.split()[0] for line in shown) == sorted(ids)
        shown = order(several.home, "stored").splitlines()
        assert [line.partition(",")[0] for line in shown] == [
            "queue a:", "customer.example: 2 recipients of 2 messages",
            "queue b:", "customer.example: 2 recipients of 2 messages",
        ]  # fmt: skip

        # One by its id, with the name of its queue or without it.
        assert order(several.home, "stored", "customer.example", ids[0], "--delete") == (
            f"queue a: deleting {split_queue_id(ids[0])[1]}"
        )
        rest = split_queue_id(ids[1])[1]
        assert order(several.home, "stored", "customer.example", rest, "--delete") == f"queue b: deleting {rest}"
        assert queuectl(several.home, "stored", "customer.example", "1-1", "--delete").returncode == 1
        wait_until(lambda: len(order(several.home, "stored", "customer.example").splitlines()) == 2, why="two to go")

        with Sink(port) as sink, smtpd.smtp() as client:
            client.ehlo()
            assert client.docmd("ETRN", "customer.example")[0] == 250
            for suite in sets.values():
                suite.wait_for(ENDED)
            assert sorted(token_of(taken.content) for taken in sink.taken) == ["a3", "b4"]

        for name in NAMES:
            several.put(name, "ann@customer.example")
            sets[name].wait_for(STORED, times=3)
        assert order(several.home, "stored", "customer.example", "--bounce").splitlines() == [
            "queue a: returning customer.example", "queue b: returning customer.example"
        ]  # fmt: skip
        wait_until(lambda: len(several.site.delivered()) == 2, why="the bounces")
        for suite in sets.values():
            suite.wait_for(r"^ondemand customer\.example bounced \d+-\w+: qp \d+")


def test_classes_holds_the_network_and_what_waits_for_classification(several: SeveralSite, tmp_path: Path) -> None:
    port = free_port()
    several.site.control("intake", f"127.0.0.1:{port} qmtp 127.0.0.1\n")
    several.site.control("priorities", "normal\nbulk\n")
    several.site.control("concurrencylocal", "2\n")  # One for each.
    bulk = [several.put(name, "bob@me.example.org", priority="bulk") for name in NAMES]
    for one in several.home.each():
        assert list(Path(one.queue, "priority/bulk").glob("*/*"))
    normal = [several.put(name, "bob@me.example.org") for name in NAMES]
    held = [several.put(name, "bob@me.example.org", sender="eve@me.example.org") for name in NAMES]
    assert order(several.home, "hold", "--sender", "eve@me.example.org").splitlines() == [
        "queue a: held 1 message", "queue b: held 1 message"
    ]  # fmt: skip
    layouts = {name: open_layout(path) for name, path in several.home.queues.items()}
    obstacles = []
    waiting = []
    for name in NAMES:
        waiting.append(several.put(name, "ann@remote.example"))
        obstacles.append(Path(layouts[name].hashed("remote", number_of(waiting[-1]))))
        obstacles[-1].mkdir()
    several.site.control("classifyafter", "0\n")

    logs = tmp_path / "logs" / "mx1"
    with Sink() as sink, ExitStack() as stack:
        several.site.route(sink.port)
        sets = stack.enter_context(both_sets(several, logs))
        for suite, first, later in zip(sets.values(), normal, bulk, strict=True):
            suite.wait_for(f"^end msg {number_of(first)}$")
            suite.wait_for(f"^end msg {number_of(later)}$")
            begun = [int(found) for found in re.findall(r"starting delivery \d+: msg (\d+)", "\n".join(suite.lines))]
            assert begun[:2] == [number_of(first), number_of(later)], "bulk mail comes after normal mail"
            suite.wait_for("queue-todo: unable to classify")
        assert several.delivered() == ["a1", "a3", "b2", "b4"]

        for each, place in zip(waiting, obstacles, strict=True):
            assert "now: could not be classified (" in order(several.home, "show", each)
            place.rmdir()
        assert order(several.home, "resubmit", *waiting).splitlines() == [
            "queue a:", "resubmitted 1 message", "queue b:", "resubmitted 1 message"
        ]  # fmt: skip
        wait_until(lambda: len(sink.taken) == 2, why="the mail that was classified later")
        assert order(several.home, "release", "--all").splitlines() == [
            "queue a: released 1 message", "queue b: released 1 message"
        ]  # fmt: skip
        wait_until(lambda: len(several.delivered()) == 6, why="the mail that was held")

        with intake_service(several.home), Client(socket.create_connection(("127.0.0.1", port), 60)) as client:
            mail = qmtp(letter_text("hub"), b"ann@me.example.org", [b"bob@me.example.org"])
            client.send(mail * 6)
            taken = {answer.split()[-1].decode().partition("/")[0] for answer in client.answers(6)}
            assert taken == set(NAMES)
            wait_until(lambda: len(several.delivered()) == 12, why="the mail of the network")
        for suite, each in zip(sets.values(), held, strict=True):
            suite.wait_for(f"^end msg {number_of(each)}$")
        for suite in sets.values():
            suite.stop()

    Lake(tmp_path / "lake").feed(tmp_path / "logs")
    engine = open_engine(str(tmp_path / "lake"))
    names = ("queue", "recipients", "delivered", "failed", "pending", "deleted", "difference", "problems")
    found = ask("conservation", engine, None, *names)
    assert [row[0] for row in found] == list(NAMES)
    assert sum(row[1] for row in found) == 14
    for _, recipients, sent, *others in found:
        assert recipients == sent and others == [0] * 5
    assert ask("conservation-messages", engine) == []


def number_of(name: str) -> int:
    """Return the inode number in an id with the name of a queue."""
    return int(split_queue_id(name)[1].partition("-")[0])
