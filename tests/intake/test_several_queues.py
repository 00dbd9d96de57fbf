"""queue-intake as the service of a home with several queues: its log, its lock, and a disk that goes and comes."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from queue_base.home import Home
from support.intake.intake_daemon import IntakeDaemon, ask, qmtp
from support.processes.suite import program, wait_until
from support.queues.home import make_several

MAIL = b"Subject: hello\n\n"


@pytest.fixture
def several(tmp_path: Path) -> Home:
    return make_several(tmp_path / "home", "a", "b")


def hand_in(home: Home, count: int) -> Counter[str]:
    """Hand in messages over one connection, all at once; return how many each queue has accepted by its K.

    Those that were refused for now are counted as `Z`.
    """
    found = Counter[str]()
    for answer in ask(home, qmtp(MAIL, b"ann@example.org", [b"bob@example.net"]) * count, count):
        name, _, rest = answer.split()[-1].decode().partition("/")
        if answer[:1] == b"K":
            number = int(rest.partition("-")[0])
            assert Path(home.queues[name], "todo", str(number % 23), str(number)).exists()
        found[name if answer[:1] == b"K" else answer[:1].decode()] += 1
    return found


def test_it_spreads_messages_and_goes_on_with_the_others_when_a_disk_is_taken_out(several: Home) -> None:
    with IntakeDaemon(several) as daemon:
        # It is no child of queue-send, whose end would end it.
        daemon.close_input()
        # One that is a little slower for a moment gets less.
        taken = hand_in(several, 20)
        assert sum(taken.values()) == 20 and min(taken["a"], taken["b"]) >= 3
        path = several.queues["a"]
        os.rename(path, path + ".out")
        wait_until(lambda: hand_in(several, 2) == {"b": 2})
        daemon.wait_for(b"alert: queue-intake: queue a takes no mail: unable to ")
        os.rename(path + ".out", path)
        wait_until(lambda: hand_in(several, 10)["a"])
        daemon.wait_for(b"warning: queue-intake: queue a takes mail again\n")
        assert daemon.log.count(b"alert: ") == 1


def test_a_second_one_does_not_start(several: Home) -> None:
    with IntakeDaemon(several):
        words = [*program("queue-intake"), "--home", several.path]
        done = subprocess.run(words, capture_output=True, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode == 111
        assert b"queue-intake is already running on this home" in done.stderr
        assert sum(hand_in(several, 2).values()) == 2
