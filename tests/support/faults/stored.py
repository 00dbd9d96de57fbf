"""Mail of an on-demand domain: it is stored, delivered by runs, has expired, or is deleted or returned by an order.

In the first two attempts at some recipients the host says that it will take them later. So they are stored after the
first one, and their records stay after the second.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from queue_admin.messages.admin_client import ask_for_runs
from queue_admin.messages.stored_mail import stored_domains
from queue_base.errors import Temporary
from queue_wire.admin.ondemand_socket import BOUNCE, DELETE, FLUSH, ORDERS, RunRequest
from queue_wire.files.stored_order import ORDER_DIRECTORY, REQUEUE_STORED
from support.faults.failing import ANN, CLARA, TEXT, clara_has_it, named
from support.faults.kill.kill_runs import Story
from support.faults.kill.killing import DEADLINE
from support.processes.suite import Suite, enqueue, wait_until
from support.queues.queued import store_on_demand
from support.queues.stored_mail import order_about_all
from support.send.control import queuectl
from support.servers.smtp.sink import Sink
from support.site import Site

DOMAIN = b"customer.example"


class StoredMail(Story):
    """What the stories have in common: nobody is lost, and a kill adds no more than `repeats` copies.

    `recipients` are those that get it in the end. `command` is what queue-ondemand is asked for.
    """

    most_bounces = 0
    repeats = 1
    line = "etrn probe never"
    command = FLUSH

    def __init__(self, sink: Sink, name: str) -> None:
        self._sink = sink
        self._name = name.encode()
        self.recipients: list[bytes] = []

    def at_domain(self, local: bytes) -> bytes:
        """Return an address at the on-demand domain, of this run alone."""
        return b"%s-%s@%s" % (local, self._name, DOMAIN)

    def prepare(self, site: Site) -> None:
        """Name the domain."""
        site.control("ondemand", f"{DOMAIN.decode()}:{self.line}\n")

    def begin(self, site: Site, suite: Suite) -> None:
        """Have what is stored taken, until nothing is left."""
        self.resume(site, suite)

    def resume(self, site: Site, suite: Suite) -> None:
        """Wait until all is stored; then as `begin`."""

        def is_over() -> bool:
            if not site.is_empty():
                return False
            if DOMAIN not in stored_domains(site.home):
                return site.is_empty()
            try:
                ask_for_runs(site.home, [RunRequest(self.command, DOMAIN)])
            except Temporary:
                pass  # It was killed, or does not listen yet.
            return False

        wait_in(suite, is_over, "an empty store")

    def judge(self, site: Site, kills: int) -> Iterator[str]:
        """Count what has come."""
        found = Counter(each for taken in self._sink.taken for each in taken.recipients)
        for recipient in self.recipients:
            if not 1 <= found[recipient] <= 1 + self.repeats * kills:
                yield f"{recipient.decode()} has {found[recipient]} copies"
        for taken in self._sink.taken:
            if not taken.content.endswith(TEXT):
                yield f"a piece of a message: {taken.content!r}"


class SplitMessage(StoredMail):
    """Two messages for clara, for another host and for the domain: some recipients are stored, and then delivered."""

    def begin(self, site: Site, suite: Suite) -> None:
        """Put the messages in, so that the second one is stored behind the first one."""
        for number in (b"1", b"2"):
            elsewhere = b"%s-%s@host.example" % (number, self._name)
            stored = [self.at_domain(b"soon-%s%s" % (letter, number)) for letter in (b"a", b"b")]
            self.recipients += [elsewhere, *stored]
            assert enqueue(site.home, ANN, [CLARA, elsewhere, *stored], TEXT).returncode == 0
            if number == b"1":
                wait_in(suite, lambda: suite.count("^delivery .*: success: stored_for_") == 2, "what is stored")
        self.resume(site, suite)

    def judge(self, site: Site, kills: int) -> Iterator[str]:
        """clara has both, too."""
        yield from super().judge(site, kills)
        copies = len(list((site.mail.alias / "clara" / "new").iterdir()))
        if not 2 <= copies <= 2 * (1 + kills):
            yield f"clara has {copies} copies of two messages"


class StoredBefore(StoredMail):
    """Three messages with four recipients were stored by an earlier process. A run delivers three of them, and compacts
    the cluster; the fourth one is refused in the next run, and ann gets a bounce.
    """

    most_bounces = 1

    def __init__(self, sink: Sink, name: str) -> None:
        super().__init__(sink, name)
        self.recipients = self.stored = [self.at_domain(each) for each in (b"one", b"two", b"three")]
        self.later = self.at_domain(b"later")

    def prepare(self, site: Site) -> None:
        """Store them."""
        super().prepare(site)
        store_on_demand(site.home, DOMAIN, [self.stored[:2], [self.later], self.stored[2:]], ANN, TEXT)

    def judge(self, site: Site, kills: int) -> Iterator[str]:
        """The one that was refused is named in a bounce."""
        yield from super().judge(site, kills)
        yield from named(site, self.later)


class OrderedMail(StoredBefore):
    """The same mail is deleted or returned by an order. Who is given it again after a kill gets what is left."""

    def __init__(self, command: bytes, sink: Sink, name: str) -> None:
        super().__init__(sink, name)
        self.command = command
        self._returned = [*self.stored, self.later]
        # One for each message.
        self.most_bounces = 3 if command == BOUNCE else 0

    def judge(self, site: Site, kills: int) -> Iterator[str]:
        """Nobody has it, and each recipient is named in a bounce if it was returned."""
        gone = set(self._returned) & {each for taken in self._sink.taken for each in taken.recipients}
        yield from (f"{each.decode()} has it" for each in gone)
        if self.command == BOUNCE:
            for recipient in self._returned:
                yield from named(site, recipient)


class OrderedByQueuectl(StoredBefore):
    """queuectl deletes or bounces the same mail. What it calls done need not be ordered again."""

    def __init__(self, verb: str, sink: Sink, name: str) -> None:
        super().__init__(sink, name)
        self._verb = verb
        self._ordered = False
        # A bounce for each message.
        self.most_bounces = 3 if verb == "bounce" else 0

    def resume(self, site: Site, suite: Suite) -> None:
        """Give the order, unless that was done; wait until it is carried out."""
        if not self._ordered:
            # It finds nothing if the order was carried out before a kill kept it from saying so.
            self._ordered = queuectl(site.home, self._verb, "--domain", DOMAIN.decode()).returncode in (0, 1)
        wait_in(suite, lambda: site.is_empty() and not stored_domains(site.home) and site.is_empty(), "an empty store")

    def judge(self, site: Site, kills: int) -> Iterator[str]:
        """Nobody has it, and each recipient is named in a bounce if it was bounced."""
        for recipient in (*self.stored, self.later):
            if any(recipient in taken.recipients for taken in self._sink.taken):
                yield f"{recipient.decode()} has it"
            if self._verb == "bounce":
                yield from named(site, recipient)


class RequeuedMail(StoredMail):
    """Three recipients of two messages were stored by an earlier process, and go back into the queue by an order. The
    host takes them. A kill may leave the order, which is carried out at the next start.
    """

    # A message of the order may be queued, and on its way to the host by the process that is killed, before its record
    # is marked. Then the order queues it again, and the first one is delivered again.
    repeats = 2

    def __init__(self, sink: Sink, name: str) -> None:
        super().__init__(sink, name)
        self.recipients = [self.at_domain(each) for each in (b"one", b"two", b"three")]

    def prepare(self, site: Site) -> None:
        """Store them."""
        super().prepare(site)
        store_on_demand(site.home, DOMAIN, [self.recipients[:2], self.recipients[2:]], ANN, TEXT)

    def resume(self, site: Site, suite: Suite) -> None:
        """Order it, unless that was done; wait until the order is carried out, and the mail delivered."""
        place = Path(site.home.queue, "ondemand", DOMAIN.decode(), ORDER_DIRECTORY)

        def is_over() -> bool:
            if DOMAIN not in stored_domains(site.home):
                return site.is_empty()
            try:
                place.mkdir(exist_ok=True)
                if not any(place.iterdir()):
                    (place / ".new").write_bytes(order_about_all(site.home, DOMAIN, REQUEUE_STORED))
                    (place / ".new").rename(place / "1")
                ask_for_runs(site.home, [RunRequest(ORDERS, DOMAIN)])
            except (FileNotFoundError, Temporary):
                pass  # All is done, or it was killed, or does not listen yet.
            return False

        wait_in(suite, is_over, "an empty store")


class ExpiredMessage(StoredMail):
    """A message for clara and for the domain is stored, and expires; ann gets the bounce."""

    most_bounces = 1
    line = "etrn probe never expire 1s"

    def begin(self, site: Site, suite: Suite) -> None:
        """Put the message in."""
        self.never = self.at_domain(b"never")
        assert enqueue(site.home, ANN, [CLARA, self.never], TEXT).returncode == 0
        self.resume(site, suite)

    def resume(self, site: Site, suite: Suite) -> None:
        """Wait until the bounce is delivered."""
        wait_in(suite, lambda: site.is_empty() and not stored_domains(site.home) and site.is_empty(), "an empty store")

    def judge(self, site: Site, kills: int) -> Iterator[str]:
        """clara has it, and the other one is named in the bounce."""
        yield from clara_has_it(site, kills)
        yield from named(site, self.never)


def wait_in(suite: Suite, what: Callable[[], bool], why: str) -> None:
    """Wait for something, or the end of the suite."""
    wait_until(lambda: what() or suite.process.poll() is not None, DEADLINE, why)


__all__ = ["BOUNCE", "DELETE", "ExpiredMessage", "OrderedByQueuectl", "OrderedMail", "RequeuedMail", "SplitMessage",
           "StoredBefore"]  # fmt: skip
