"""Unrelated domains that have one tarpit for a server: further mail for them leaves places for others."""

import pytest

from support.processes.suite import Suite
from support.queues.letters import Letter
from support.send.feeding import bulk
from support.servers.smtp.sink import Sink, Tarpit
from support.site import Site

DOMAINS = 15  # So many of 20 places may have jobs for hosts that nobody knows.


def letters(name: str, domains: list[str]) -> list[Letter]:
    """A message for each domain, each of another submitter."""
    return [Letter(f"{name}{at}", f"{name}{at}@me.example.org", [f"a@{to}"]) for at, to in enumerate(domains)]


@pytest.mark.long
def test_further_mail_for_domains_that_hang_at_one_address_leaves_places_for_fresh_domains(site: Site) -> None:
    with Tarpit() as tarpit, Sink() as sink:
        site.control("concurrencyremote", "20\n")
        site.control("smtproutes", f".example:127.0.0.1:{tarpit.port}\n.test:127.0.0.1:{sink.port}\n")
        # With a line of its own each domain is a destination, as with a host of its own.
        site.control("destinationlimits", ".example concurrency=20\n.test concurrency=20\n")
        hang = [f"d{number}.example" for number in range(DOMAINS)]
        with Suite(site.home) as suite:
            bulk(site.home, letters("first", hang))
            suite.wait_for(r"^starting delivery .* to remote a@d\d+\.example$", times=DOMAINS)
            bulk(site.home, letters("second", hang))
            bulk(site.home, letters("other", ["fresh0.test", "fresh1.test"]))
            # After 15 s, when the jobs that hang count as slow.
            sink.wait_for(2)
            assert suite.count(r"^starting delivery .* to remote a@d\d+\.example$") == DOMAINS
            suite.kill()
