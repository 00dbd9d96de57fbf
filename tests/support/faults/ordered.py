"""A message that waits for its second attempt, and an order about it while queue-send is killed.

An order that queuectl calls done must be carried out without being given again; one that it does not is given again
after the restart, and must then do what it says, whatever was done of it before.
"""

from collections.abc import Iterator

from queue_base.queue.hold_marks import birth_of
from queue_base.queue.layout import open_layout
from queue_wire.ids import pack_long_id
from support.faults.failing import ANN, CLARA, TEXT, clara_has_it, named
from support.faults.kill.kill_runs import Story
from support.faults.kill.killing import DEADLINE
from support.processes.suite import Suite, enqueue, wait_until
from support.send.control import queuectl
from support.site import Site

# What queue-send's loop has done before the order comes, in either order: one recipient deferred, one done.
BEFORE_ORDER = (r"^utimensat\(.*/remote/", r"^unlink\(.*/local/.* = 0$")


class Ordered(Story):
    """`command` is delete, bounce or requeue; the message of a requeue is deleted after it."""

    def __init__(self, command: str, name: str) -> None:
        self._command = command
        self._recipient = f"never-{name}@host.example".encode()
        self._wrong: list[str] = []
        self._message = 0
        self._birth = 0
        self._done = False
        self.most_bounces = 1 if command == "bounce" else 0

    def begin(self, site: Site, suite: Suite) -> None:
        """Put the message in, and give the order once it has been tried and clara has it.

        On a busy machine clara's delivery may be the last, and the kill come before it: at a note of the deferral.
        """
        assert enqueue(site.home, ANN, [CLARA, self._recipient], TEXT).returncode == 0

        def tried() -> bool:
            return all(map(suite.count, ("^delivery .*: deferral: ", "^delivery .*: success: ")))

        wait_until(lambda: tried() or not suite._reader.is_alive(), DEADLINE, "both deliveries")
        self._message = int(suite.wait_for("^new msg ").split()[-1])
        self._birth = birth_of(open_layout(site.home.queue), self._message) or 0
        if not tried():
            return
        self._done = queuectl(site.home, self._command, "--all").returncode == 0
        if self._done:
            self._finish(site)

    def resume(self, site: Site, suite: Suite) -> None:
        """Give the order again where it was not answered."""
        if not self._done:
            # By its id: a bounce of it may be in the queue already, about which nothing is ordered.
            layout = open_layout(site.home.queue)
            birth = birth_of(layout, self._message)
            wait_until(lambda: any((site.mail.alias / "clara" / "new").iterdir()), DEADLINE, "clara's mail")

            def carried_out(name: str) -> bool:
                # What was announced before the kill is not known until it is announced again.
                done = queuectl(site.home, self._command, name)
                return done.returncode == 0 or birth_of(layout, self._message) is None

            if birth is not None:
                name = pack_long_id(self._message, birth)
                wait_until(lambda: carried_out(name), why="the order to be carried out")
            self._done = True
        if self._finish(site) != 0:
            self._wrong.append("the message cannot be deleted")

    def _finish(self, site: Site) -> int:
        """Look at what a requeue has done, and delete its message; return queuectl's exit code."""
        if self._command != "requeue":
            return 0
        birth = birth_of(open_layout(site.home.queue), self._message)
        if birth is not None and birth <= self._birth:
            self._wrong.append("the message has its old birth")
        return queuectl(site.home, "delete", "--all").returncode

    def judge(self, site: Site, kills: int) -> Iterator[str]:
        """The order was carried out, and nothing else was done."""
        yield from self._wrong
        yield from clara_has_it(site, kills)
        if self._command == "bounce":
            yield from named(site, self._recipient)
