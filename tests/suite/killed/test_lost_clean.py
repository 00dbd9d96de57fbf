"""queue-clean is lost while messages wait for their removal: the suite ends at once, and the next run removes them."""

import os
import signal
import time

import pytest

from support.faults.kill.killing import settle
from support.processes.suite import Suite, wait_until
from support.queues.letters import Letter
from support.send.feeding import bulk
from support.servers.smtp.sink import Sink
from support.site import Site

COUNT = 20
# queue-todo waits 10 s for what it has announced, if nothing is said about it.
AT_ONCE = 8


@pytest.mark.parametrize("term", [False, True], ids=["running", "stopping"])
@pytest.mark.parametrize("classifyafter", ["0", "1"])
def test_queue_todo_does_not_wait_for_removals_of_a_queue_clean_that_is_lost(
    site: Site, classifyafter: str, term: bool
) -> None:
    site.control("classifyafter", classifyafter)
    letters = [Letter(f"t{number}", "s@me.example.org", [f"t{number}@a.example"]) for number in range(COUNT)]
    with Sink() as sink:
        site.route(sink.port)
        suite = Suite(site.home)
        try:
            suite.wait_for("status: local 0/")
            clean = suite.daemon("queue-clean")
            os.kill(clean, signal.SIGSTOP)
            bulk(site.home, letters, group=10)
            suite.wait_for("end msg", times=COUNT)
            began = time.monotonic()
            if term:
                suite.signal(signal.SIGTERM)
                suite.wait_for("status: .*exitasap")
            os.kill(clean, signal.SIGKILL)
            suite.process.wait(30)
            assert time.monotonic() - began < AT_ONCE
        finally:
            suite.kill()
            settle(suite)
        with Suite(site.home) as suite:
            wait_until(site.is_empty)
            assert suite.stop() == 0
        assert len(sink.taken) == COUNT
