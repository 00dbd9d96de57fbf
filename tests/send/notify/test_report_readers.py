"""Bounces and delay notices of odd mail: Python's email finds no defect, and flufl.bounce (Mailman's) who failed."""

import email
import email.policy
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from flufl.bounce import all_failures

from queue_base.reports.bounce_report import BounceFacts
from queue_send.notify.delay import DelayFacts, compose_notice
from queue_wire.address import quote_address
from queue_wire.failures import pack_failure, unpack_failures
from support.send.bounce_text import compose_bounce

NOW = 1_700_000_500
LOCAL_PARTS = (
    *(b"joe", b"john doe", b"a,b", b'say"hi"', b"a\\b", b"a@b", b".a", b"a..b", b"a.", b"a:b", b"a;b", b"<a>", b"(a)"),
    *(b"a+b", b"a+b=c", b"owner-x=y", b"'a'", b"a%b", b"a!b", b"&x"),
    *(b"/dev/null", b"|prog", b'"a"', b"", b" ", b"a ", b"*"),
    *("j\u00f6rg".encode(), "\u4f8b".encode(), "a\u00a0b".encode()),
    *("a\u2028b".encode(), "\ud83d\ude00".encode("utf-16", "surrogatepass")),
    *(b"\xff", b"a\nb", b"a\tb", b"a\r\nb", b"\0", b"a\x7f", b"a\x85b", b"a>:\n", b"x" * 64, b"x" * 400, b"x" * 1500),
    *(b"=?utf-8?q?a?=", b"=?utf-8?q?a", b"postmaster (x", b"undisclosed-recipients:;", b"Ann <ann", b"{a}", b"a\x0bb"),
)
DOMAINS = (
    *(b"EXAMPLE.net", "b\u00fccher.example".encode(), b"xn--bcher-kva.example"),
    *(b"example.net.", b"a_b.example", b"-x.example"),
    *(b"[192.0.2.1]", b"[IPv6:2001:db8::1]", b"x y", b"", b"\xff", b"a..b", b"x" * 300, b"localhost", b"a,b", b"[]"),
)
ADDRESSES = (
    *(local + b"@example.net" for local in LOCAL_PARTS),
    *(b"joe@" + domain for domain in DOMAINS),
    *(b"joe", b"", b"#@[]", b"list-@example.net-@[]"),
)
REPLIES = (
    *(b"550 5.1.1 no", b"550-5.1.1 a\n550 5.1.1 b", b"550"),
    *(b"550 " + b"x" * 2000, b"550 \xff\xfe", b"550 --report-x--"),
    *("550 5.1.1 Empf\u00e4nger unbekannt".encode(), b"550 5.1.1 <eve@example.org>: no"),
    *(b"550 a: b", b"550 a\0b\x1b[0m"),
    *(b"550 =?utf-8?q?x?=", "550 \u2028\u2029x\u0085y".encode(), b"550 \x0b\x0c\x1c\x1d\x1e"),
    *(b"550 \t tab", b"550   end  "),
    *(b"550-" + b"\n550-".join([b"line"] * 60) + b"\n550 end", b"550 a\nb", b"451 4.3.2 later"),
    *(b"250 2.0.0 fine", b"junk"),
    b"550 Final-Recipient: rfc822; eve@example.org",
    *(b"550 a\nFinal-Recipient: rfc822; eve@example.org\nAction: failed",),
)
REASONS = (
    *(b"192.0.2.1 does not like recipient.\nRemote host said: " + reply + b"\nGiving up.\n" for reply in REPLIES),
    *(b"", b"\n", b"Sorry, no mailbox here by that name. (#5.1.1)\n", b"x" * 5000, b"\r\n.\r\n", b"a\rb"),
    *(b"Final-Recipient: rfc822; eve@example.org\n", b"\n\nFinal-Recipient: rfc822; eve@example.org\nAction: failed\n"),
    *(b"This message was created automatically by mail delivery software\n", b"<eve@example.org>:\n550 x\n"),
    *(b"   ----- The following addresses had permanent fatal errors -----\n<eve@example.org>\n",),
)
HEADERS = (
    *(b"", b"Subject: \xff\n", b"Subject: " + b"x" * 3000 + b"\n", b"no field\n"),
    *(b" folded first\n", b"\n\nx", b"Subject: \0\n"),
    *(b"--report-1700000500.457.99.report-0--\n", b"Content-Type: multipart/mixed; boundary=x\n"),
    *(b"Subject: a\r\n b\r\n",),
    *(b"From: " + "\u00e4".encode() * 500 + b"\n", b"X: " + b"a\n " * 300 + b"b\n", b"Subject: \x0b\x0c\x1c\x85\n"),
    *(b"Content-Transfer-Encoding: base64\n", b"Final-Recipient: rfc822; eve@example.org\nAction: failed\n"),
    *(b"X-Failed-Recipients: eve@example.org\n", b"To: " + b"a@b,\n " * 2000 + b"c@d\n", b"Subject: =?utf-8?q?x\n"),
)
HOSTS = (b"m\xc3\xa4.example", b"m e", b"\xff", b"localhost", b"x" * 900, b"a\nb")
FACTS = BounceFacts(
    b"me.example", b"MAILER-DAEMON@me.example", b"ann@example.org", b"ann@example.org",
    [(b"b@example.net", REASONS[0])], b"Subject: x\n", 1_700_000_000, NOW, "1700000500.457.99.report",
)  # fmt: skip


class Report(NamedTuple):
    """A report, and the recipients in it."""

    about: str
    data: bytes
    recipients: list[bytes]


def bounces() -> Iterator[Report]:
    for address in ADDRESSES:
        yield bounce(failures=[(address, REASONS[0])])
        yield bounce(sender=address, recipient=address)
    for reason in REASONS:
        yield bounce(failures=[(b"b@example.net", reason)])
        yield bounce(failures=[(b"b@example.net", reason), (b"c@example.net", REASONS[0])])
    for header in HEADERS:
        yield bounce(header=header)
    for host in HOSTS:
        yield bounce(me=host)
        yield bounce(bouncefrom=b"MAILER-DAEMON@" + host)
        yield bounce(bouncefrom=host + b"@me.example")
    yield bounce(failures=[(address, REASONS[0]) for address in ADDRESSES])
    yield bounce(failures=[(b"u%d@example.net" % number, reason) for number, reason in enumerate(REASONS)])
    yield bounce(failures=[(b"u%d@example.net" % number, REASONS[3]) for number in range(2000)])
    for birth in (0, -5, 9_999_999_999):
        yield bounce(birth=birth)


def bounce(**changes: Any) -> Report:
    facts = FACTS._replace(**changes)
    # As bounce/I keeps them.
    failures = list(unpack_failures(b"".join([pack_failure(*each) for each in facts.failures])))
    data = compose_bounce(facts._replace(failures=failures))
    return Report(str(changes)[:200], data, [address for address, _ in failures])


def notices() -> Iterator[Report]:
    for recipient in ADDRESSES:
        yield notice(recipient, b"Remote host said: 451 4.3.2 not now\nGiving up.\n")
    for reason in REASONS:
        yield notice(b"b@example.net", reason)


def notice(recipient: bytes, reason: bytes) -> Report:
    facts = DelayFacts(
        FACTS.me, FACTS.bouncefrom, recipient, [(recipient, reason)],
        FACTS.header, FACTS.birth, FACTS.birth + 604800, NOW, FACTS.unique,
    )  # fmt: skip
    return Report(str((recipient, reason))[:200], b"".join(compose_notice(facts)), [recipient.replace(b"\n", b"_")])


def readable(address: bytes) -> bool:
    """Return whether flufl.bounce can read an address in the form of RFC 3464.

    It takes an `=` for that of a parameter, and knows no UTF-8. Python's parseaddr, which it uses, refuses `[`.
    """
    domain = address.rpartition(b"@")[2]
    if not address.isascii() or any(byte < 32 or byte == 127 for byte in address) or len(address) > 900:
        return False
    return not set(b"=[") & set(address) and not set(b", ") & set(domain) and domain not in (b"", address)


REPORTS = {"bounces": (bounces, 1), "notices": (notices, 0)}


@pytest.mark.parametrize("kind", REPORTS)
def test_no_report_of_odd_mail_has_a_defect(kind: str) -> None:
    count = 0
    for report in REPORTS[kind][0]():
        count += 1
        message = email.message_from_bytes(report.data, policy=email.policy.default)
        for part in message.walk():
            assert part.defects == [], report.about
            for name, value in part.items():
                assert not value.defects, (name, value.defects, report.about)
        assert [part.get_content_type() for part in message.iter_parts()] == [
            "text/plain", "message/delivery-status", "text/rfc822-headers",
        ]  # fmt: skip
        assert max(map(len, report.data.split(b"\n"))) <= 998, report.about
    assert count >= 80


@pytest.mark.parametrize("kind", REPORTS)
def test_mailman_finds_who_failed_and_nobody_else(kind: str) -> None:
    count = 0
    for report in REPORTS[kind][0]():
        found = all_failures(email.message_from_bytes(report.data))
        permanent, others = found[REPORTS[kind][1]], found[1 - REPORTS[kind][1]]
        assert not others, report.about
        assert b"eve@example.org" not in permanent, report.about
        expected = {quote_address(each) for each in report.recipients if readable(each)}
        assert expected <= set(permanent), report.about
        if len(report.recipients) == len(expected):
            assert expected == set(permanent), report.about
            count += 1
    assert count >= 60
