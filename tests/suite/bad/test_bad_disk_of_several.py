"""Several queues on disks of their own: one disk becomes read-only under load, and is brought back."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from support.faults.loop_disks import LoopDisks, loop_disks
from support.intake.intake_daemon import Client, IntakeDaemon, qmtp
from support.processes.suite import DEADLINE, wait_until
from support.queues.home import make_home, make_queue

# It is tried again soon, so that the test need not wait.
SOON = "import queue_intake.entrance as e; e.RETRY_SECONDS = 0.2; e.RETRY_MAX = 0.2"
CLIENTS = 2


class Load:
    """Clients that hand in one message after the other, until `end`; what they were answered, in the order of time."""

    def __init__(self, home: Home) -> None:
        self.answers: list[tuple[float, str]] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(home, number)) for number in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _run(self, home: Home, number: int) -> None:
        with Client(home) as client:
            while not self._over.is_set():
                client.send(qmtp(b"Subject: %d\n\n" % number, b"ann@example.org", [b"bob@example.net"]))
                self.answers.append((time.monotonic(), client.answer().decode()))

    def accepted(self) -> list[str]:
        """Return the ids of the messages that were accepted so far."""
        return [text.split()[-1] for _, text in self.answers if text.startswith("K")]

    def count(self) -> Counter[str]:
        """Return how many each queue has accepted so far."""
        return Counter(name.partition("/")[0] for name in self.accepted())

    def more(self, name: str, many: int) -> None:
        """Wait until a queue has accepted so many more."""
        before = self.count()[name]
        wait_until(lambda: self.count()[name] >= before + many, why=f"{many} more messages in {name}")

    def end(self) -> None:
        """Let the clients have their last answers."""
        self._over.set()
        for thread in self._threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[LoopDisks]:
    with loop_disks(tmp_path / "disks") as found:
        yield found


@pytest.fixture
def home(disks: LoopDisks) -> Home:
    top = disks.path / "home"
    make_home(top)
    for name in ("first", "second"):
        make_queue(disks.path / name / name, split=3)
    for kind in ("lock", "intake"):
        (top / "run" / kind).mkdir(parents=True)
    (top / "control/queues").write_text("".join(f"{disks.path}/{name}/{name}\n" for name in ("first", "second")))
    (top / "control/queueminfree").write_text("1M\n")
    return Home(str(top))


def queued(home: Home) -> set[tuple[str, int]]:
    """Return the messages that are in the queues: each has its files in mess/ and todo/."""
    found: set[tuple[str, int]] = set()
    for name, path in home.queues.items():
        todo, mess = ({int(file.name) for file in Path(path, kind).glob("*/*")} for kind in ("todo", "mess"))
        assert todo <= mess
        found |= {(name, number) for number in todo}
    return found


def test_nothing_is_lost_and_nothing_stalls_when_one_disk_becomes_read_only_under_load(
    disks: LoopDisks, home: Home
) -> None:
    with IntakeDaemon(home, script=SOON) as daemon:
        load = Load(home)
        try:
            for name in home.queues:
                load.more(name, 20)
            disks.make_read_only("first")
            daemon.wait_for(b"alert: queue-intake: queue first takes no mail: ")
            load.more("second", 200)
            count = load.count()
            load.more("second", 20)
            assert load.count()["first"] == count["first"]
            accepted = load.accepted()
            # Also those on the disk that can only be read.
            there = queued(home)
            assert {split_id(each) for each in accepted} <= there
            disks.take_out("first")
            load.more("second", 20)
            disks.bring_back("first")
            load.more("first", 20)
            daemon.wait_for(b"warning: queue-intake: queue first takes mail again")
        finally:
            load.end()
        refused = [text for _, text in load.answers if not text.startswith("K")]
        assert all(text.startswith("Z") for text in refused)
        # Only what was in hand when the disk failed, and when it was tried again, was refused, for now.
        assert len(refused) < len(load.answers) / 4
        accepted = load.accepted()
        assert len(set(accepted)) == len(accepted)
        there = queued(home)
        assert {split_id(each) for each in accepted} <= there
        assert len(there) <= len(accepted) + len(refused)
        assert daemon.log.count(b"alert: ") == 1


def split_id(name: str) -> tuple[str, int]:
    """Return the queue and the number of a message."""
    queue, _, rest = name.partition("/")
    return queue, int(rest.partition("-")[0])
