"""A site that good mail is sent through, to show that a suite lives whatever else was done to it."""

from collections.abc import Iterator
from contextlib import contextmanager

from support.processes.suite import Suite, enqueue, wait_until
from support.queues.letters import letter_text, token_of
from support.servers.smtp.sink import Sink
from support.site import Site, mail_site

RECIPIENTS = [b"somebody@me.example.org", b"somebody@remote.example"]


class GoodMail:
    """A Site whose remote mail goes to a sink."""

    def __init__(self, site: Site, sink: Sink) -> None:
        self.site = site
        self.sink = sink
        self.home = site.home
        self.control = site.control
        self.files = site.files
        self.route()

    def route(self) -> None:
        """Send all remote mail to the sink."""
        self.site.route(self.sink.port)

    def send(self, token: str) -> None:
        """Send a message to a local and a remote recipient."""
        done = enqueue(self.home, b"joe@me.example.org", RECIPIENTS, letter_text(token))
        assert done.returncode == 0, done.stderr

    def has_here(self, token: str) -> bool:
        """Whether the local copy of a message has come."""
        return token in [token_of(message) for message in self.site.delivered()]

    def has_there(self, token: str) -> bool:
        """Whether the remote copy has."""
        return token in [token_of(taken.content) for taken in list(self.sink.taken)]

    def check(self, token: str) -> None:
        """Wait until a message has come to both of its recipients."""
        wait_until(lambda: self.has_here(token), why=f"the local copy of {token}")
        wait_until(lambda: self.has_there(token), why=f"the remote copy of {token}")

    def check_alive(self, suite: Suite, token: str) -> None:
        """Show that the suite that runs takes and delivers mail."""
        assert suite.process.poll() is None
        self.send(token)
        self.check(token)


@contextmanager
def good_mail() -> Iterator[GoodMail]:
    """Give a GoodMail whose sink listens."""
    with mail_site() as site, Sink() as sink:
        yield GoodMail(site, sink)
