"""What queuectl stat shows about the disk and about the running daemons."""

import json
import os
import re
import signal
from pathlib import Path

from support.processes.forked import run_program
from support.processes.suite import Suite, wait_until
from support.queues.home import make_home
from support.queues.stored_mail import store

DAEMONS = ["queue-send", "queue-local", "queue-remote", "queue-clean", "queue-todo", "queue-pickup", "queue-intake"]


def stat(home: str, *words: str, code: int = 0) -> list[str]:
    done = run_program("queuectl", "--home", home, "stat", *words)
    assert (done.returncode, done.stderr) == (code, b"")
    return done.stdout.decode().splitlines()


def test_stat_shows_the_free_space_and_that_queue_send_does_not_run_and_exits_111(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    *_, disk, send = stat(home.path, code=111)
    found = re.fullmatch(r"disk: (\d+) bytes free of (\d+)", disk)
    assert found is not None
    assert 0 < int(found[1]) < int(found[2])
    assert send == "queue-send: not running"


def test_stat_counts_what_is_stored_for_on_demand_domains_if_anything_is(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    assert not [line for line in stat(home.path, code=111) if line.startswith("stored")]
    store(home, "one", "ann@example.net", "bob@example.net")
    store(home, "two", "cid@example.com", domain="example.com")
    assert "stored for on-demand domains: 2" in stat(home.path, code=111)
    (facts,) = map(json.loads, stat(home.path, "--format", "json", code=111))
    assert (facts["stored"], facts["messages"]) == (2, 0)


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
        (facts,) = map(json.loads, stat(home.path, "--format", "json"))
        assert [each["program"] for each in facts["processes"]] == DAEMONS
        assert (facts["queue_send"], facts["removing"]) == ("running", {"messages": 0, "wait": 0})
        os.kill(suite.process.pid, signal.SIGSTOP)
        try:
            assert stat(home.path, code=111)[-1].startswith("queue-send: not known: ")
        finally:
            os.kill(suite.process.pid, signal.SIGCONT)
