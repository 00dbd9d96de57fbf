"""A disk of several is unmounted under load, and resumed on another host; and one whose journal is aborted."""

import os
import re
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from queue_base.errors import QueueTrouble
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.queue.writer import QueueDraft, QueueWriter
from support.faults.loop_disks import LoopDisks, loop_disks
from support.intake.intake_daemon import Client, intake_service, qmtp
from support.processes.suite import Suite, enqueue, wait_until
from support.queues.home import make_queue
from support.queues.letters import letter_text, token_of
from support.send.control import order
from support.site import Site, mail_site

ROUNDS = 15  # Each loses a message with a chance of some percent at least, if a success of fsync counts as it is.
WRITERS = 8


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[LoopDisks]:
    with loop_disks(tmp_path / "disks") as found:
        yield found


@pytest.fixture
def site() -> Iterator[Site]:
    with mail_site() as found:
        yield found


def use_disks(site: Site, *queues: Path) -> Home:
    """Have a site use these queues."""
    for kind in ("lock", "intake"):
        Path(site.home.path, "run", kind).mkdir(parents=True)
    site.control("queues", "".join(f"{path}\n" for path in queues))
    site.control("queueminfree", "1M\n")
    return Home(site.home.path)


def tokens(site: Site) -> list[str]:
    return [token_of(message) for message in site.delivered()]


def test_a_disk_that_is_unmounted_under_load_is_resumed_on_another_host_and_nothing_is_lost_or_repeated(
    disks: LoopDisks, site: Site
) -> None:
    for name in ("first", "second"):
        make_queue(disks.path / name / name, 3)
    home = use_disks(site, disks.path / "first/first", disks.path / "second/second")
    accepted: list[tuple[str, str]] = []
    with (
        Suite(home, options=("--queue", "first")),
        Suite(home, options=("--queue", "second")) as second,
        intake_service(home),
    ):

        def count(name: str) -> int:
            return sum(queue == name for queue, _ in accepted)

        with Client(home) as client:

            def hand_in(name: str, more: int) -> None:
                """Hand in messages until a queue has taken so many more."""
                wanted = count(name) + more
                while count(name) < wanted:
                    token = f"m{len(accepted)}"
                    client.send(qmtp(letter_text(token), b"ann@me.example.org", [b"bob@me.example.org"]))
                    answer = client.answer().decode()
                    assert answer.startswith("K"), answer
                    accepted.append((answer.split()[-1].partition("/")[0], token))

            hand_in("second", 5)
            assert second.stop() == 0
            # Of a stopped queue that others may do without, only who names it makes use. It waits on its disk.
            alone = Home(home.path, "second")
            for token in ("late1", "late2", "late3", "late4", "late5"):
                done = enqueue(alone, b"ann@me.example.org", [b"bob@me.example.org"], letter_text(token))
                assert done.returncode == 0
                accepted.append(("second", token))
            disks.detach("second")
            before = count("second")
            hand_in("first", 20)
            assert count("second") == before
        disks.wait_gone("second")
        disks.bring_back("second")
        with mail_site() as other:
            there = Home(other.home.path)
            other.control("queues", f"{disks.path}/second/second\n")
            assert len(order(there, "list").splitlines()) >= 5
            with Suite(there):
                wait_until(lambda: len(tokens(site)) + len(tokens(other)) >= len(accepted), why="all mail")
            assert len(tokens(other)) >= 5
            assert sorted(tokens(site) + tokens(other)) == sorted(token for _, token in accepted)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.one_way
def test_what_was_accepted_is_on_the_disk_whenever_its_journal_is_aborted(disks: LoopDisks) -> None:
    for number in range(ROUNDS):
        home = Home(str(disks.path / f"home{number}"))
        queue = disks.path / "first/queue"
        make_queue(queue, 3)
        (Path(home.path) / "control").mkdir(parents=True)
        Path(home.control, "queues").write_text(f"{queue}\n")
        with ThreadPoolExecutor(WRITERS) as pool:
            work = [pool.submit(write_until_it_fails, home, os.urandom(1)[0] / 1e5) for _ in range(WRITERS)]
            time.sleep(0.1 + os.urandom(1)[0] / 1000)  # The moment is random.
            disks.abort("first")
            accepted = [message for each in work for message in each.result(60)]
        assert accepted
        disks.take_out("first")
        disks.check("first")
        disks.bring_back("first")
        layout = open_layout(str(queue))
        lost = [each for each in accepted if not all(map(os.path.exists, (layout.mess(each), layout.todo(each))))]
        assert not lost, f"round {number}: {len(lost)} of {len(accepted)} messages"
        shutil.rmtree(queue)


def write_until_it_fails(home: Home, pause: float) -> list[int]:
    """Queue messages with a pause before the last sync of each; return the numbers of those that were accepted."""
    writer = QueueWriter(home, open_layout(home.queue), os.getuid())
    accepted: list[int] = []
    drafts: list[QueueDraft] = []
    while True:
        try:
            drafts = [writer.begin(checked=True)]
            drafts[0].write(b"Subject: x\n\n")
            drafts[0].finish(b"ann@example.org", [b"bob@example.net"])
            group = writer.group(drafts)
            while group.go_on():
                time.sleep(pause)
                group.sync()
        except QueueTrouble as trouble:
            assert re.search("read-only|input/output", str(trouble)), trouble
            break
        accepted.append(drafts[0].message)
    # What is open keeps the disk busy.
    writer.forget()
    for draft in drafts:
        draft.discard()
    return accepted
