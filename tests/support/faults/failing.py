"""Messages that fail: in part, so that ann gets a bounce; and with their bounce, so that the postmaster gets one."""

from collections.abc import Iterator

from support.faults.kill.kill_runs import Story, bounces
from support.processes.suite import Suite, enqueue
from support.site import LOCAL, Site

TEXT = b"Subject: hello\n\nThis is the body.\n"
ANN = f"ann@{LOCAL}".encode()
CLARA = f"clara@{LOCAL}".encode()
MISSING = f"missing@{LOCAL}".encode()
NOBODY = f"nobody@{LOCAL}".encode()


class FailingMessage(Story):
    """clara gets it, missing is refused at once, later is deferred and then refused; ann gets the bounce."""

    most_bounces = 1

    def __init__(self, name: str) -> None:
        self.later = f"later-{name}@host.example".encode()

    def begin(self, site: Site, suite: Suite) -> None:
        """Put the message in."""
        assert enqueue(site.home, ANN, [CLARA, MISSING, self.later], TEXT).returncode == 0

    def judge(self, site: Site, kills: int) -> Iterator[str]:
        """Nobody is lost, and nobody fails in silence."""
        yield from clara_has_it(site, kills)
        yield from named(site, MISSING)
        yield from named(site, self.later)


class FailingBulk(FailingMessage):
    """The same, of a lower class."""

    def begin(self, site: Site, suite: Suite) -> None:
        """Put the message in, with a rule that gives it its class."""
        site.control("priorityrules", f"sender:{ANN.decode()}:bulk\n")
        super().begin(site, suite)


class FailingBounce(Story):
    """Its sender is unknown as well, so its bounce fails, too; ann is the postmaster."""

    most_bounces = 1

    def __init__(self, name: str) -> None:
        pass

    def begin(self, site: Site, suite: Suite) -> None:
        """Put the message in."""
        site.mail.qmail(".qmail-postmaster", b"./ann/\n")
        assert enqueue(site.home, NOBODY, [CLARA, MISSING], TEXT).returncode == 0

    def judge(self, site: Site, kills: int) -> Iterator[str]:
        """The postmaster is told of the bounce that failed."""
        yield from clara_has_it(site, kills)
        yield from named(site, NOBODY)


def clara_has_it(site: Site, kills: int) -> Iterator[str]:
    """Yield what is wrong where clara has not got the message, or oftener than once and once for each kill."""
    copies = [path.read_bytes() for path in (site.mail.alias / "clara" / "new").iterdir()]
    if not 1 <= len(copies) <= 1 + kills:
        yield f"clara has {len(copies)} copies"
    if not all(copy.endswith(TEXT) for copy in copies):
        yield "clara has a piece of the message"


def named(site: Site, recipient: bytes) -> Iterator[str]:
    """Yield what is wrong where no bounce names a recipient, or one does twice."""
    reports = bounces(site).values()
    if not any(b"\n<%s>:\n" % recipient in report for report in reports):
        yield f"no bounce names {recipient.decode()}"
    if any(report.count(b"\n<%s>:\n" % recipient) > 1 for report in reports):
        yield f"a bounce names {recipient.decode()} twice"
