"""queue-pickup of one of several queues: what users left there is spread over all of them."""

import os
from pathlib import Path

from queue_base.home import Home
from queue_wire.files.maildrop import pack_header
from support.inject.injectors import PickupDaemon
from support.inject.maildrop import ENVELOPE, maildrop, put
from support.processes.suite import wait_until
from support.queues.home import make_several


def queued(home: Home) -> list[int]:
    """Return how many messages each queue has."""
    return [len(list(Path(path, "todo").glob("*/*"))) for path in home.queues.values()]


def leave(home: Home, number: int) -> None:
    put(home, pack_header(6) + b"hello\n" + ENVELOPE, f"mail.{number:032x}")


def test_mail_is_spread_and_goes_to_the_others_when_a_queue_is_not_there(tmp_path: Path) -> None:
    home = make_several(tmp_path / "home", "a", "b")
    own = home.choose("a")
    for number in range(6):
        leave(own, number)
    with PickupDaemon(own):
        wait_until(lambda: sum(queued(home)) == 6 and not maildrop(own), why="the mail in the queues")
        assert queued(home) == [3, 3]
        os.rename(home.queues["b"], home.queues["b"] + ".out")
        for number in range(6, 10):
            leave(own, number)
        wait_until(lambda: queued(home)[0] == 7 and not maildrop(own), why="the mail in the queue that is there")
