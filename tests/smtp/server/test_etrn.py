"""ETRN (RFC 1985) in the session: where it is taken, what is a node, and what is said."""

import pytest

from queue_smtp.server_events import MailWanted, MessageEnded
from support.servers.session import SETTINGS, ScriptedSession

OFFERED = SETTINGS._replace(etrn=True)
ENVELOPE = b"MAIL FROM:<a@example.net>\r\nRCPT TO:<joe@example.org>\r\n"


def greeted(offered: bool = True) -> ScriptedSession:
    found = ScriptedSession(OFFERED if offered else SETTINGS)
    found.feed(b"")
    return found


def session(offered: bool = True) -> ScriptedSession:
    found = greeted(offered)
    found.feed(b"EHLO c\r\n")
    return found


def wanted(found: ScriptedSession) -> list[bytes]:
    return [event.name for event in found.events if isinstance(event, MailWanted)]


def test_it_is_offered_to_ehlo_where_there_are_on_demand_domains() -> None:
    assert b"ETRN" in ScriptedSession(OFFERED).feed(b"EHLO c\r\n").replace(b"-", b" ").split()
    assert b"ETRN" not in ScriptedSession(SETTINGS).feed(b"EHLO c\r\n").replace(b"-", b" ").split()


@pytest.mark.parametrize("node", [b"customer.example", b"@customer.example", b"#customer.example", b"A-b_c.example."])
def test_a_domain_is_asked_for_as_it_is_written(node: bytes) -> None:
    found = session()
    found.feed(b"etrn %s\r\n" % node)
    assert wanted(found) == [node]


def test_the_answer_is_that_of_the_caller() -> None:
    found = session()
    assert found.feed(b"ETRN customer.example\r\n").startswith(b"250 2.0.0 ")
    assert found.feed(b"ETRN other.example\r\n").startswith(b"459 4.7.1 ")


@pytest.mark.parametrize(
    "node",
    [b"", b"@", b"#", b"@#a", b"a b", b"a..b", b".a", b"a/../b", b"a@b", b"[192.0.2.1]", b"x" * 64, b"a." * 130],
)
def test_what_is_no_domain_is_a_syntax_error(node: bytes) -> None:
    found = session()
    assert found.feed(b"ETRN %s\r\n" % node).startswith(b"501 ")
    assert wanted(found) == []


def test_it_is_refused_before_ehlo_and_within_a_transaction_which_goes_on() -> None:
    assert greeted().feed(b"ETRN customer.example\r\n").startswith(b"503 ")
    found = session()
    found.feed(ENVELOPE)
    assert found.feed(b"ETRN customer.example\r\n").startswith(b"503 ")
    assert found.feed(b"DATA\r\nSubject: x\r\n\r\n.\r\n").split()[0] == b"354"
    assert any(isinstance(event, MessageEnded) for event in found.events)


def test_where_it_is_not_offered_it_is_not_implemented_in_any_state() -> None:
    assert greeted(offered=False).feed(b"ETRN customer.example\r\n").startswith(b"502 ")
    found = session(offered=False)
    assert found.feed(b"ETRN customer.example\r\n").startswith(b"502 ")
    found.feed(ENVELOPE)
    assert found.feed(b"ETRN customer.example\r\n").startswith(b"502 ")


def test_commands_behind_it_wait_for_its_answer() -> None:
    found = session()
    said = found.feed(b"ETRN customer.example\r\nETRN other.example\r\nNOOP\r\n")
    assert [line[:3] for line in said.splitlines()] == [b"250", b"459", b"250"]


def test_who_asks_for_ever_is_sent_away() -> None:
    found = ScriptedSession(OFFERED._replace(useless=5, errors=3))
    said = found.feed(b"EHLO c\r\n" + b"ETRN customer.example\r\n" * 20)
    assert said.splitlines()[-1].startswith(b"421 ")
