"""What queuectl stat shows about the disk and about the running daemons."""

import os
import re
import subprocess
from pathlib import Path

from support.home import make_home
from support.suite import Suite, program, wait_until

DAEMONS = ["queue-send", "queue-local", "queue-remote", "queue-clean", "queue-todo", "queue-pickup"]


def stat(home: str) -> list[str]:
    done = subprocess.run(
        [*program("queuectl"), "--home", home, "stat"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_stat_shows_the_free_space_and_that_queue_send_does_not_run(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    *_, disk, send = stat(home.path)
    found = re.fullmatch(r"disk: (\d+) bytes free of (\d+)", disk)
    assert found is not None
    assert 0 < int(found[1]) < int(found[2])
    assert send == "queue-send: not running"


def test_stat_shows_each_running_daemon(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    with Suite(home) as suite:
        wait_until(lambda: os.path.exists(f"{home.queue}/lock/control"), why="lock/control")
        lines = stat(home.path)[-len(DAEMONS) :]
        shown = [re.fullmatch(r"(queue-\w+): pid (\d+), up \d+s, \d+ MB", line) for line in lines]
        assert [each and each[1] for each in shown] == DAEMONS
        assert "being removed: 0" in stat(home.path)
        assert shown[0] is not None
        assert int(shown[0][2]) == suite.process.pid
