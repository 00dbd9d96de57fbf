"""Messages that everybody gets: with `classifyafter` they are delivered from their notices, and, unless the suite is
stopped meanwhile, never classified.
"""

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from support.faults.failing import ANN, CLARA, TEXT, clara_has_it
from support.faults.kill.kill_runs import Story
from support.faults.kill.killing import DEADLINE
from support.processes.suite import Suite, enqueue, wait_until
from support.servers.smtp.sink import Sink
from support.site import LOCAL, Site

SLOW = f"slow@{LOCAL}".encode()


class DeliveredMessage(Story):
    """clara gets it, and two recipients at another host."""

    most_bounces = 0

    def __init__(self, sink: Sink, name: str) -> None:
        self._sink = sink
        self._remote = [b"%d-%s@host.example" % (each, name.encode()) for each in range(2)]

    def begin(self, site: Site, suite: Suite) -> None:
        """Put the message in."""
        assert enqueue(site.home, ANN, [CLARA, *self._remote], TEXT).returncode == 0

    def judge(self, site: Site, kills: int) -> Iterator[str]:
        """Everybody has it, at most once oftener than there were kills."""
        yield from clara_has_it(site, kills)
        found = Counter(each for taken in self._sink.taken for each in taken.recipients)
        for recipient in self._remote:
            if not 1 <= found[recipient] <= 1 + kills:
                yield f"{recipient.decode()} has {found[recipient]} copies"


class BulkMessage(DeliveredMessage):
    """The same, of a lower class."""

    def begin(self, site: Site, suite: Suite) -> None:
        """Put the message in, with a rule that gives it its class."""
        site.control("priorityrules", f"sender:{ANN.decode()}:bulk\n")
        super().begin(site, suite)
        assert Path(site.home.queue, "priority/bulk").is_dir()


class StoppedMessage(Story):
    """clara gets it, and slow's delivery ends only when queue-send has been told to stop, and has said that it will."""

    most_bounces = 0

    def __init__(self, name: str) -> None:
        pass

    def begin(self, site: Site, suite: Suite) -> None:
        """Put the message in; stop the suite when only slow has not got it."""
        go_on = site.mail.path / "go-on"
        site.mail.maildir("slow")
        program = b"|while ! test -e %s; do sleep 0.02; done\n./slow/\n" % bytes(go_on)
        site.mail.qmail(".qmail-slow", program)
        try:
            assert enqueue(site.home, ANN, [SLOW, CLARA], TEXT).returncode == 0
            self._wait_for(suite, ": success: ")
            if suite.process.poll() is None:
                suite.signal(signal.SIGTERM)
            self._wait_for(suite, "status: .*exitasap")
        finally:
            go_on.touch()

    def _wait_for(self, suite: Suite, line: str) -> None:
        """Wait for a line of the log, or the end of queue-send."""
        wait_until(lambda: suite.count(line) or suite.process.poll() is not None, DEADLINE, line)

    def judge(self, site: Site, kills: int) -> Iterator[str]:
        """Both have it, at most once oftener than there were kills."""
        yield from clara_has_it(site, kills)
        copies = len(list((site.mail.alias / "slow" / "new").iterdir()))
        if not 1 <= copies <= 1 + kills:
            yield f"slow has {copies} copies"
