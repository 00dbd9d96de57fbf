"""Forwards with the whole suite running: what goes round in a circle ends with a bounce, and bounces end too."""

from collections.abc import Iterator

import pytest

from support.inject.batches import inject_batch
from support.processes.suite import Suite, enqueue, wait_until
from support.site import LOCAL, Site, mail_site

BODY = b"Subject: round and round\n\nbody\n"
JOE = f"joe@{LOCAL}"


@pytest.fixture
def site() -> Iterator[Site]:
    with mail_site() as made:
        (made.mail.alias / ".qmail-default").unlink()
        made.user_maildir("joe")
        made.user_maildir("postmaster")
        yield made


def arrived(site: Site, name: str) -> list[bytes]:
    """Return what is in an address's own maildir."""
    return [path.read_bytes() for path in (site.mail.alias / name / "new").iterdir()]


def run_out(site: Site, sender: str, recipient: str) -> Suite:
    """Send a message and wait until nothing is left in the queue; return the suite, which has ended."""
    with Suite(site.home) as suite:
        assert enqueue(site.home, sender.encode(), [recipient.encode()], BODY).returncode == 0
        suite.wait_for(r"^end msg ")
        wait_until(lambda: site.files() == [], why="the end of all mail")
    assert suite.count("^new msg ") == suite.count("^end msg ")
    return suite


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_circle_of_forwards_ends_with_a_bounce_to_the_sender(site: Site, length: int) -> None:
    for number in range(length):
        following = (number + 1) % length
        site.mail.qmail(f".qmail-round-{number}", b"&round-%d@%s\n" % (following, LOCAL.encode()))
    suite = run_out(site, JOE, f"round-0@{LOCAL}")
    (bounce,) = arrived(site, "joe")
    assert b"This message is looping: it already has my Delivered-To line. (#5.4.6)" in bounce
    assert b"<round-0@me.example.org>:" in bounce
    # The message, its forwards, and the bounce.
    assert suite.count("^new msg ") == 1 + length + 1
    assert suite.count(r"delivery \d+: success: did_0\+1\+0/qp_\d+/id_\d+-\w+/$") == length
    assert arrived(site, "postmaster") == []


def test_addresses_that_forward_to_each_other_get_a_bounded_number_of_copies(site: Site) -> None:
    names = [f"round-{number}" for number in range(12)]
    for name in names:
        others = [f"&{other}@{LOCAL}\n" for other in names if other != name]
        site.mail.qmail(f".qmail-{name}", "".join(others).encode())
    suite = run_out(site, JOE, f"round-0@{LOCAL}")
    # The message; 11 addresses get it, and forward it to 11; each of the 12 gets it at most once more.
    assert suite.count("^new msg ") - suite.count("^bounce msg ") <= 1 + 1 + 11 + 12
    assert suite.count(r"success: did_0\+11\+0/it_was_forwarded_there_before/$") > 0


def test_a_list_in_a_list_in_a_list_gets_all_copies_that_it_asks_for(site: Site) -> None:
    site.mail.qmail(".qmail-all", f"&half-1@{LOCAL}\n&half-2@{LOCAL}\n".encode())
    for half in ("half-1", "half-2"):
        site.mail.qmail(f".qmail-{half}", f"&joe@{LOCAL}\n".encode())
    run_out(site, JOE, f"all@{LOCAL}")
    assert len(arrived(site, "joe")) == 2


def test_of_equal_messages_that_came_together_each_goes_through_all_forwards(site: Site) -> None:
    for at in range(5):
        site.mail.qmail(f".qmail-chain-{at}", f"&chain-{at + 1}@{LOCAL}\n".encode())
    site.mail.qmail(".qmail-chain-5", f"&joe@{LOCAL}\n".encode())
    envelope = b"F" + JOE.encode() + b"\0T" + f"chain-0@{LOCAL}".encode() + b"\0\0"
    pair = b"%d:%s,%d:%s," % (len(BODY), BODY, len(envelope), envelope)
    with Suite(site.home) as suite:
        assert inject_batch(site.home, "netstring", pair * 3).code == 0
        suite.wait_for(r"^end msg ", times=3 * 7)
    assert len(arrived(site, "joe")) == 3


@pytest.mark.parametrize(
    ("field", "hops", "bounces"), [("Received: from a by b", 99, 0), ("Delivered-To: x@y", 100, 1)]
)
def test_a_message_with_more_than_100_hops_bounces(site: Site, field: str, hops: int, bounces: int) -> None:
    with Suite(site.home) as suite:
        # The queue's own Received line is one of them.
        message = f"{field}\n".encode() * hops + BODY
        assert enqueue(site.home, b"postmaster@" + LOCAL.encode(), [JOE.encode()], message).returncode == 0
        suite.wait_for(r"^end msg ")
        wait_until(lambda: site.files() == [], why="the end of all mail")
    assert (len(arrived(site, "joe")), len(arrived(site, "postmaster"))) == (1 - bounces, bounces)
    if bounces:
        assert b"it has more than 100 hops. (#5.4.6)" in arrived(site, "postmaster")[0]


def test_the_bounce_of_a_loop_whose_sender_is_not_there_goes_to_the_postmaster(site: Site) -> None:
    site.mail.qmail(".qmail-self", b"&self@%s\n" % LOCAL.encode())
    suite = run_out(site, f"nobody-there@{LOCAL}", f"self@{LOCAL}")
    (double,) = arrived(site, "postmaster")
    assert b"<nobody-there@me.example.org>:\nSorry, no mailbox here by that name. (#5.1.1)" in double
    assert suite.count("^bounce msg ") == 2


def test_bounces_that_are_forwarded_in_a_circle_end(site: Site) -> None:
    """The sender's own mail goes round, so does that of the postmaster, who would hear of it."""
    for name in ("self", "sender", "postmaster"):
        site.mail.qmail(f".qmail-{name}", b"&%s@%s\n" % (name.encode(), LOCAL.encode()))
    suite = run_out(site, f"sender@{LOCAL}", f"self@{LOCAL}")
    assert suite.count("^triple bounce: discarding bounce/") == 1
    assert suite.count("^bounce msg ") == 2
    assert arrived(site, "joe") == []


def test_a_forward_to_an_address_that_fails_bounces_to_the_sender_not_to_the_user(site: Site) -> None:
    site.mail.qmail(".qmail-user", b"&nobody-there@%s\n" % LOCAL.encode())
    run_out(site, JOE, f"user@{LOCAL}")
    (bounce,) = arrived(site, "joe")
    assert b"<nobody-there@me.example.org>:\nSorry, no mailbox here by that name. (#5.1.1)" in bounce


def test_an_address_without_a_host_gets_envnoathost(site: Site) -> None:
    site.mail.qmail(".qmail-user", b"joe\n&joe\n")
    site.control("envnoathost", LOCAL + "\n")
    suite = run_out(site, JOE, f"user@{LOCAL}")
    assert suite.count(r"success: did_0\+2\+0/") == 1
    assert [b"Delivered-To: user@me.example.org\n" in message for message in arrived(site, "joe")] == [True, True]


def test_a_hundred_forwards_at_once_all_arrive(site: Site) -> None:
    site.mail.qmail(".qmail-user-default", b"&joe@%s\n" % LOCAL.encode())
    site.control("concurrencylocal", "50\n")
    recipients = [b"user-%d@%s" % (number, LOCAL.encode()) for number in range(100)]
    with Suite(site.home) as suite:
        assert enqueue(site.home, JOE.encode(), recipients, BODY).returncode == 0
        wait_until(lambda: len(arrived(site, "joe")) == 100, why="a hundred copies")
        wait_until(lambda: site.files() == [], why="the end of all mail")
        # Many shared a commit, and the qp is the forwarder's for all.
        assert suite.count(r"success: did_0\+1\+0/qp_") == 100
