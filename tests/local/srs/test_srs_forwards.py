"""SRS in the forwarder: whose senders are rewritten, where bounces go, what becomes of addresses that are not good."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_local.forwarding import Forwarder, ForwardRequest
from queue_local.local_delivery import deliver
from queue_local.result import Forward, pack_forward
from queue_local.srs.srs_address import restore_sender
from queue_wire.pipes.job import Job
from support.inject.injectors import queued
from support.local.forwards import HEAD, JOE, put_message
from support.processes.suite import Suite, enqueue
from support.servers.smtp.sink import Sink
from support.site import Site, mail_site

BODY = b"Subject: hello\n\nbody\n"
SRS = b"srs.example.org"


def set_up(home: Home, mode: int = 0o600) -> None:
    Path(home.control, "locals").write_text("me.example.org\nsrs.example.org\n")
    Path(home.control, "srs").write_text("SRS.example.org\n")
    secrets = Path(home.control, "srssecrets")
    secrets.write_text("# the newest first\nnew\nold\n")
    secrets.chmod(mode)


def forward(home: Home, sender: bytes, *recipients: bytes) -> tuple[bytes, bytes]:
    """Forward a message; return the letter and text of the answer."""
    path = put_message(home, BODY)
    packed = pack_forward(Forward(JOE, sender, HEAD, list(recipients)))
    [answer] = Forwarder(home).answer([ForwardRequest(1, path, packed)])
    Path(home.queue, path.decode()).unlink()
    return answer.letter, answer.text


def sender_of(home: Home, sender: bytes, *recipients: bytes) -> bytes:
    """Return the sender that a forward is queued with."""
    assert forward(home, sender, *recipients)[0] == b"K"
    [made] = queued(home)
    return made.envelope.sender


def test_a_sender_of_elsewhere_is_rewritten_for_recipients_elsewhere(home: Home) -> None:
    set_up(home)
    made = sender_of(home, b"joe@example.net", b"ann@far.example", b"bob@me.example.org")
    local, _, host = made.rpartition(b"@")
    assert host == SRS
    assert restore_sender(local, [b"new"], time.time()) == b"joe@example.net"


@pytest.mark.parametrize(
    ("sender", "recipient"),
    [
        (b"joe@example.net", b"ann@me.example.org"),
        (b"joe@me.example.org", b"ann@far.example"),
        (b"list-owner-@me.example.org-@[]", b"ann@far.example"),
        (b"list-owner-@lists.example.net-@[]", b"ann@far.example"),
        (b"", b"ann@far.example"),
        (b"#@[]", b"ann@far.example"),
    ],
)
def test_other_senders_stay(home: Home, sender: bytes, recipient: bytes) -> None:
    set_up(home)
    assert sender_of(home, sender, recipient) == sender


def test_nothing_is_rewritten_without_the_file(home: Home) -> None:
    assert sender_of(home, b"joe@example.net", b"ann@far.example") == b"joe@example.net"


def test_senders_are_not_rewritten_with_secrets_that_others_can_read(home: Home) -> None:
    set_up(home, mode=0o644)
    letter, text = forward(home, b"joe@example.net", b"ann@far.example")
    assert letter == b"Z"
    assert b"srssecrets: everybody can use it (mode 0644); chmod o= takes that away" in text
    assert queued(home) == []


def test_the_group_of_the_queue_may_read_the_secrets(home: Home) -> None:
    set_up(home, mode=0o640)
    assert sender_of(home, b"joe@example.net", b"ann@far.example").startswith(b"SRS0=")


def test_a_forged_address_fails_for_good(home: Home) -> None:
    set_up(home)
    letter, text = forward(home, b"", b"SRS0=aaaa=RA=example.net=joe@srs.example.org")
    assert letter == b"D"
    assert text.startswith(b"Sorry, this address of SRS is not good: its hash is wrong")


def test_a_bounce_to_an_address_of_srs_needs_no_mailbox(home: Home) -> None:
    path = put_message(home, BODY)
    recipient = b"srs0=x=y=z=a@SRS.example.org"
    with Path(home.queue, path.decode()).open("rb") as message:
        outcome = deliver(home, Job(1, path, b"", b"", [recipient]), message.fileno(), b"", srs=SRS)
    assert outcome.forward is not None
    assert (outcome.forward.sender, outcome.forward.recipients) == (b"", [recipient])
    assert outcome.forward.head == b"Delivered-To: %s\n" % recipient


@pytest.fixture(name="site")
def fixture_site() -> Iterator[Site]:
    with mail_site() as site:
        set_up(site.home)
        yield site


def test_a_bounce_finds_its_way_back_through_the_suite(site: Site) -> None:
    site.mail.qmail(".qmail-away", b"&ann@far.example\n")
    with Sink() as sink:
        site.route(sink.port)
        with Suite(site.home) as suite:
            done = enqueue(site.home, b"joe@example.net", [b"away@me.example.org"], BODY)
            assert done.returncode == 0, done.stderr
            suite.wait_for("^end msg ", times=2)
            [forwarded] = sink.taken
            assert forwarded.sender.startswith(b"SRS0=") and forwarded.sender.endswith(b"@" + SRS)
            done = enqueue(site.home, b"", [forwarded.sender], b"Subject: failure notice\n\n")
            assert done.returncode == 0, done.stderr
            suite.wait_for("^end msg ", times=4)
            bounce = sink.taken[1]
    assert (bounce.sender, bounce.recipients) == (b"", [b"joe@example.net"])
