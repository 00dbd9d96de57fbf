"""Who may send what to whom. No form of an address makes the server a relay for strangers."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_smtp import server_replies as replies
from queue_smtp.path import unpack_path
from queue_smtpd.config import read_config as read_smtpd_config
from queue_smtpd.sessions.client_facts import ClientFacts
from queue_smtpd.sessions.relay_rules import (
    MailboxFound,
    MailboxWanted,
    RelayRules,
    judge_mailbox,
    judge_recipient,
    judge_sender,
    may_relay,
)
from queue_wire.address import address_key
from queue_wire.admin.returning import RecipientSelector
from queue_wire.control.hostmap import unpack_host_set
from queue_wire.control.localroutes import find_local_route, unpack_local_routes
from queue_wire.control.networks import unpack_networks
from queue_wire.control.priorities import rule_class, unpack_priority_rules
from queue_wire.control.relayrecipients import exists_behind, unpack_relay_recipients
from queue_wire.control.rewrite import REMOTE, Rules, rewrite
from queue_wire.files.standing_hold import HoldTable, SeenRecipients, StandingHold
from queue_wire.format_error import FormatError
from support.queues.home import make_home

CLASSIFY = Rules(
    b"mx.example.org",
    frozenset((b"mx.example.org", b"example.org")),
    frozenset((b"percent.example",)),
    {b"virtual.example": b"virt", b".sub.example": b"subs", b"away.virtual.example": b"", b"u@elsewhere.example": b"u"},
)
RULES = RelayRules(
    b"mx.example.org",
    CLASSIFY,
    unpack_host_set(b"example.org\nvirtual.example\npercent.example\n.below.example\nbackup.example\n"),
    morercpthosts=frozenset((b"more.example",)),
    badmailfrom=frozenset((b"bad@example.net", b"@spam.example")),
    relayclients=unpack_networks(b"192.0.2.0/25\n2001:db8::/32\n# x\n127.0.0.1\n"),
)
STRANGER = ClientFacts("198.51.100.7", "203.0.113.1")
FRIEND = ClientFacts("192.0.2.5", "203.0.113.1")

# Paths that a stranger may not use, and why they are tried.
OPEN_RELAY_FORMS = (
    b"<victim@elsewhere.example>",
    b"<victim@ELSEWHERE.example>",
    b"<@example.org:victim@elsewhere.example>",
    b"<@example.org,@mx.example.org:victim@elsewhere.example>",
    b"<@[203.0.113.1]:victim@elsewhere.example>",
    b'<"victim@elsewhere.example">',
    b'<"victim%elsewhere.example">',
    b"<victim%elsewhere.example>",
    b"<elsewhere.example!victim>",
    b"<victim%elsewhere.example@percent.example>",
    b"<victim%elsewhere.example%percent.example@percent.example>",
    b"<elsewhere.example!victim%elsewhere.example@percent.example>",
    b'<"victim%elsewhere.example"@percent.example>',
    b'<"victim@elsewhere.example%elsewhere.example"@percent.example>',
    b"<victim%example.org@elsewhere.example>",
    b"<example.org!victim@elsewhere.example>",
    b'<"victim@example.org"@elsewhere.example>',
    b"<victim@[198.51.100.99]>",
    b"<victim@[IPv6:2001:db8::99]>",
    b"<victim%elsewhere.example@[198.51.100.99]>",
    b"<victim@example.org.elsewhere.example>",
    b"<victim@xexample.org>",
    b"<victim@sub.example.org>",
    b"<victim@below.example>",
    b"<victim@more.example.elsewhere.example>",
    b"<u@elsewhere.example>",
    b"<victim@away.virtual.example>",
    b"<victim@example>",
    b"<victim>",
    b"<victim@elsewhere.example@example.org>",
    b"<victim@elsewhere.example>,<joe@example.org>",
    b"victim@elsewhere.example",
    b"<victim@elsewhere.example.>",
    b"<victim@>",
    b"<>",
    b"<@example.org:@elsewhere.example:victim@elsewhere.example>",
    b"<victim@\xc3\xa9.example>",
    b"<victim\x00@elsewhere.example>",
    b"<#@[]>",
    b"<victim-@elsewhere.example-@[]>",
)


@pytest.mark.parametrize("path", OPEN_RELAY_FORMS)
def test_a_stranger_may_not_relay_with_any_form_of_an_address(path: bytes) -> None:
    try:
        address, _ = unpack_path(path)
    except FormatError:
        return
    if address:
        assert judge_recipient(address, STRANGER, RULES) in (replies.RELAYING_DENIED, replies.NO_DOMAIN)


LOCALS = st.sampled_from([b"a", b"a%elsewhere.example", b"elsewhere.example!a", b"a%b%percent.example", b"a@x", b"%"])
DOMAINS = st.sampled_from([b"percent.example", b"example.org", b"virtual.example", b"elsewhere.example", b"[::1]", b""])


@given(LOCALS, DOMAINS, st.sampled_from([b"", b"@percent.example:", b"@example.org,@x:"]))
def test_whatever_a_stranger_may_send_goes_to_a_domain_of_the_list(local: bytes, domain: bytes, route: bytes) -> None:
    quoted = b'"%s"' % local if b"@" in local else local
    try:
        address, _ = unpack_path(b"<%s%s%s>" % (route, quoted, b"@" + domain if domain else b""))
    except FormatError:
        return
    verdict = judge_recipient(address, STRANGER, RULES)
    if isinstance(verdict, MailboxWanted):
        channel, final = rewrite(address, CLASSIFY)
        assert verdict == MailboxWanted(final, MailboxFound.EXISTS if channel is REMOTE else None, address)
        assert channel is REMOTE or not final.endswith(b"@elsewhere.example")
        assert channel is not REMOTE or final.rpartition(b"@")[2] in (b"percent.example", b"virtual.example")


@pytest.mark.parametrize(
    ("recipient", "wanted"),
    [
        (b"joe@example.org", MailboxWanted(b"joe@example.org", None, b"joe@example.org")),
        (b"Joe@EXAMPLE.org", MailboxWanted(b"Joe@EXAMPLE.org", None, b"Joe@EXAMPLE.org")),
        (b"x@virtual.example", MailboxWanted(b"virt-x@virtual.example", None, b"x@virtual.example")),
        (
            b"joe%example.org@percent.example",
            MailboxWanted(b"joe@example.org", None, b"joe%example.org@percent.example"),
        ),
        (
            b"joe%more.example@percent.example",
            MailboxWanted(b"joe@more.example", MailboxFound.EXISTS, b"joe%more.example@percent.example"),
        ),
        (b"x@host.below.example", MailboxWanted(b"x@host.below.example", MailboxFound.EXISTS, b"x@host.below.example")),
        (b"x@backup.example", MailboxWanted(b"x@backup.example", MailboxFound.EXISTS, b"x@backup.example")),
        (b"x@more.example", MailboxWanted(b"x@more.example", MailboxFound.EXISTS, b"x@more.example")),
        (b"Postmaster", MailboxWanted(b"Postmaster@mx.example.org", None, b"Postmaster@mx.example.org")),
    ],
)
def test_everybody_may_send_to_the_domains_of_the_list(recipient: bytes, wanted: MailboxWanted) -> None:
    assert judge_recipient(recipient, STRANGER, RULES) == wanted


def test_the_address_of_this_server_is_this_host() -> None:
    rules = RULES._replace(rcpthosts=None)
    wanted = MailboxWanted(b"joe@mx.example.org", None, b"joe@mx.example.org")
    assert judge_recipient(b"joe@[203.0.113.1]", STRANGER, rules) == wanted
    assert judge_recipient(b"joe@[IPv6:::ffff:203.0.113.1]", STRANGER, rules) == wanted
    assert judge_recipient(b"joe@[203.0.113.2]", STRANGER, rules) == replies.RELAYING_DENIED


@pytest.mark.parametrize("domain", [b"example.org", b"virtual.example", b"host.sub.example"])
def test_without_rcpthosts_the_domains_that_are_delivered_here_count(domain: bytes) -> None:
    verdict = judge_recipient(b"x@" + domain, STRANGER, RULES._replace(rcpthosts=None))
    assert isinstance(verdict, MailboxWanted)
    assert verdict.known is None


@pytest.mark.parametrize(
    "domain",
    [b"elsewhere.example", b"away.virtual.example", b"backup.example", b"away.sub.example", b"AWAY.sub.example"],
)
def test_without_rcpthosts_nothing_is_relayed(domain: bytes) -> None:
    rules = RULES._replace(rcpthosts=None, classify=CLASSIFY._replace(virtualdomains={b"": b"all"}))
    assert judge_recipient(b"x@" + domain, STRANGER, rules) == replies.RELAYING_DENIED
    # A line for all names below a domain has an exception.
    virtualdomains = {b".sub.example": b"subs", b"away.sub.example": b""}
    rules = rules._replace(classify=CLASSIFY._replace(virtualdomains=virtualdomains))
    assert judge_recipient(b"x@" + domain, STRANGER, rules) == replies.RELAYING_DENIED


ROUTES = (b"victim%elsewhere.example", b"elsewhere.example!victim", b"victim@elsewhere.example")


@pytest.mark.parametrize("local", ROUTES)
@pytest.mark.parametrize("domain", [b"backup.example", b"host.below.example", b"more.example"])
def test_the_server_behind_is_given_no_route_of_a_stranger(local: bytes, domain: bytes) -> None:
    recipient = local + b"@" + domain
    assert judge_recipient(recipient, STRANGER, RULES) == replies.RELAYING_DENIED
    wanted = MailboxWanted(recipient, MailboxFound.EXISTS, recipient)
    assert judge_recipient(recipient, FRIEND, RULES) == wanted
    listed = RULES._replace(relayrecipients=unpack_relay_recipients(recipient))
    assert judge_recipient(recipient, STRANGER, listed) == wanted
    # At home it is a name.
    assert isinstance(judge_recipient(local + b"@example.org", STRANGER, RULES), MailboxWanted)


IDN = CLASSIFY._replace(locals=frozenset((b"xn--bcher-kva.example",)))


@pytest.mark.parametrize("domain", ["b\u00fccher.example", "B\u00dcCHER.example", "b\uff55\u0308cher\uff0eexample"])
@pytest.mark.parametrize("client", [STRANGER, FRIEND])
def test_a_domain_in_u_labels_is_that_in_a_labels(domain: str, client: ClientFacts) -> None:
    lists = unpack_host_set("b\u00fccher.example\nbackup.example".encode())
    plain = b"joe@xn--bcher-kva.example"
    for rules in (RULES._replace(rcpthosts=lists, classify=IDN), RULES._replace(rcpthosts=None, classify=IDN)):
        assert judge_recipient(f"joe@{domain}".encode(), client, rules) == MailboxWanted(plain, None, plain)
    relayed = RULES._replace(rcpthosts=lists, relayrecipients=unpack_relay_recipients(b"ann@xn--bcher-kva.example"))
    assert judge_recipient(f"joe@{domain}".encode(), client, relayed) == MailboxWanted(
        plain, MailboxFound.UNKNOWN, plain
    )


def test_a_domain_that_cannot_exist_is_not_ours() -> None:
    assert judge_recipient("joe@\u0378.example".encode(), STRANGER, RULES) == replies.RELAYING_DENIED
    address = "joe@\u0378.example".encode()
    assert judge_recipient(address, FRIEND, RULES) == MailboxWanted(address, MailboxFound.EXISTS, address)


@pytest.mark.parametrize(
    "client",
    [
        FRIEND,
        ClientFacts("::ffff:192.0.2.5"),
        ClientFacts("2001:db8:1::1"),
        ClientFacts("127.0.0.1"),
        ClientFacts("198.51.100.7", relays=True),
        ClientFacts("198.51.100.7", user=b"joe"),
    ],
)
def test_who_may_relay_may_send_to_everybody(client: ClientFacts) -> None:
    assert may_relay(client, RULES)
    assert judge_recipient(b"x@elsewhere.example", client, RULES) == MailboxWanted(
        b"x@elsewhere.example", MailboxFound.EXISTS, b"x@elsewhere.example"
    )
    assert judge_recipient(b"joe", client, RULES) == MailboxWanted(b"joe@mx.example.org", None, b"joe@mx.example.org")


@pytest.mark.parametrize("address", ["192.0.2.128", "198.51.100.7", "2001:db9::1", "", "local"])
def test_others_may_not_relay(address: str) -> None:
    assert not may_relay(ClientFacts(address), RULES)


@pytest.mark.parametrize("sender", [b"bad@example.net", b"BAD@Example.net", b"x@spam.example", b"x@SPAM.example"])
def test_senders_of_badmailfrom_are_refused(sender: bytes) -> None:
    assert judge_sender(sender, STRANGER, RULES) == replies.SENDER_REFUSED


# One domain, as an address under SMTPUTF8 can have it: U-labels, letters of full width, another dot, and a final one.
FORMS = ["b\u00fccher.example", "B\u00dcCHER.example", "xn--bcher-kva.example", "XN--BCHER-KVA.example.",
         "b\u00fccher\u3002example", "\uff42\u00fccher.\uff45xample", "b\u00fccher.example."]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("line", FORMS)
def test_a_domain_of_a_list_of_addresses_is_itself_in_every_form(line: str, form: str, tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    sender = f"Joe@{form}".encode()
    for name in ("badmailfrom", "relayrecipients"):
        Path(home.control, name).write_text(f"joe@{line}\n")
    Path(home.control, "submitters").write_text(f"joe:joe@{line}\nann:@{line}\nbob:bob@{line}\n")
    rules = read_smtpd_config(home).rules
    assert judge_sender(sender, STRANGER, rules) == replies.SENDER_REFUSED
    rules = rules._replace(badmailfrom=frozenset())
    for user, reply in ((b"joe", None), (b"ann", None), (b"bob", replies.SENDER_NOT_YOURS)):
        assert judge_sender(sender, ClientFacts("198.51.100.7", user=user), rules) == reply
    assert exists_behind(rules.relayrecipients, sender)
    assert not exists_behind(rules.relayrecipients, f"jane@{form}".encode())
    domain = rules._replace(badmailfrom=frozenset((address_key(f"@{line}".encode()),)))
    assert judge_sender(b"x" + sender, STRANGER, domain) == replies.SENDER_REFUSED


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("line", FORMS)
def test_an_address_in_any_list_is_itself_in_every_form(line: str, form: str) -> None:
    listed, address = f"joe@{line}".encode(), f"JOE@{form}".encode()
    assert rule_class(unpack_priority_rules(b"sender:%s:bulk\n" % listed), 0, address) == "bulk"
    assert rule_class(unpack_priority_rules(b"sender:%s:bulk\n" % listed[3:]), 0, address) == "bulk"
    assert find_local_route(unpack_local_routes(b"%s:lmtp:/s\n" % listed), address) is not None
    for hold in (StandingHold(sender=listed, reason=b"x"), StandingHold(sender_domain=line.encode(), reason=b"x")):
        table = HoldTable([hold])
        assert table.find(address, 0, SeenRecipients(table)) is not None
    for hold in (StandingHold(recipient=listed, reason=b"x"), StandingHold(domain=line.encode(), reason=b"x")):
        table = HoldTable([hold])
        seen = SeenRecipients(table)
        seen.add([address])
        assert table.find(b"", 0, seen) is not None
    assert RecipientSelector(listed, b"").chooses(address, address)
    assert RecipientSelector(b"", line.encode()).chooses(address, address)
    assert not RecipientSelector(b"", b"other.example").chooses(address, address)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("line", FORMS)
def test_the_domain_of_a_recipient_is_ours_in_every_form(line: str, form: str, tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    Path(home.control, "rcpthosts").write_text(f"{line}\n")
    for name, text in (("locals", line), ("virtualdomains", f"{line}:ann")):
        Path(home.control, name).write_text(f"{text}\n")
        rules = read_smtpd_config(home).rules
        for each in (rules, rules._replace(rcpthosts=None)):
            found = judge_recipient(f"joe@{form}".encode(), STRANGER, each)
            assert isinstance(found, MailboxWanted)
            assert found.address.lower().endswith(b"joe@xn--bcher-kva.example")
        Path(home.control, name).unlink()


@pytest.mark.parametrize("sender", [b"", b"bad", b"x@example.net", b"x@sub.spam.example"])
def test_other_senders_are_taken(sender: bytes) -> None:
    assert judge_sender(sender, STRANGER, RULES) is None


def test_a_user_may_have_the_senders_of_submitters_alone() -> None:
    submitters = {b"joe": frozenset((b"joe@example.org", b"@joe.example")), b"root": frozenset((b"@",))}
    rules = RULES._replace(submitters=submitters)
    joe = ClientFacts("198.51.100.7", user=b"joe")
    for sender in (b"joe@example.org", b"Joe@Example.ORG", b"x@joe.example", b""):
        assert judge_sender(sender, joe, rules) is None
    for sender in (b"jane@example.org", b"joe", b"x@not.joe.example"):
        assert judge_sender(sender, joe, rules) == replies.SENDER_NOT_YOURS
    assert judge_sender(b"x@example.net", joe._replace(user=b"root"), rules) is None
    assert judge_sender(b"x@example.net", joe._replace(user=b"nobody"), rules) == replies.SENDER_NOT_YOURS
    assert judge_sender(b"x@example.net", STRANGER, rules) is None


def test_what_a_lookup_finds_is_a_reply() -> None:
    assert judge_mailbox(MailboxFound.EXISTS) is None
    assert judge_mailbox(MailboxFound.UNKNOWN) == replies.UNKNOWN_RECIPIENT
    assert judge_mailbox(MailboxFound.UNDECIDED) == replies.RECIPIENT_UNDECIDED
    assert len(MailboxFound) == 5
