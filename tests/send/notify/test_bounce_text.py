"""The text of a bounce, read back with the standard email package: RFC 3464 whatever is in it."""

import email
import email.message
import email.policy
import re
from email.utils import parsedate_to_datetime
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_base.reports.bounce_report import BounceFacts
from queue_wire.failures import pack_failure, unpack_failures
from support.plugins.strategies import addresses
from support.send.bounce_text import compose_bounce

NOW = 1_700_000_500
REASON = b"192.0.2.1 does not like recipient.\nRemote host said: 550 5.1.1 no such user\nGiving up on 192.0.2.1.\n"


def facts(**others: Any) -> BounceFacts:
    """Return the facts of an ordinary bounce, with some of them changed."""
    base = BounceFacts(
        me=b"me.example.org",
        bouncefrom=b"MAILER-DAEMON@me.example.org",
        recipient=b"a@example.org",
        sender=b"a@example.org",
        failures=[(b"b@example.net", REASON)],
        header=b"Subject: hello\nFrom: a@example.org\n",
        birth=1_700_000_000,
        now=NOW,
        unique="1700000500.457.99.bounce",
    )
    return base._replace(**others)


Part = email.message.Message


def parse(data: bytes) -> Part:
    """Return the bounce as the standard library reads it; it must have no defects in its structure."""
    message = email.message_from_bytes(data, policy=email.policy.compat32)
    assert [part.defects for part in message.walk()] == [[]] * len(list(message.walk()))
    return message


def parts(data: bytes) -> list[Part]:
    """Return the three parts, which must be of RFC 3464's kinds."""
    message = parse(data)
    assert message.get_content_type() == "multipart/report"
    assert message.get_param("report-type") == "delivery-status"
    found = cast(list[Part], message.get_payload())
    kinds = [part.get_content_type() for part in found]
    assert kinds == ["text/plain", "message/delivery-status", "text/rfc822-headers"]
    assert found[1]["Content-Transfer-Encoding"] == "7bit"
    return found


def body(part: Part) -> bytes:
    """Return a part's bytes."""
    found = part.get_payload(decode=True)
    assert isinstance(found, bytes)
    return found


def status_blocks(data: bytes) -> list[Part]:
    """Return the blocks of fields of the delivery-status part: the message's, then one a recipient."""
    found = cast(list[Part], parts(data)[1].get_payload())
    # The parser takes the newline that ends the part for an empty block.
    return [block for block in found if block.items()]


def test_an_ordinary_bounce_has_the_header_of_a_report_that_nobody_answers() -> None:
    message = parse(compose_bounce(facts()))
    assert message["From"] == "Mail Delivery System <MAILER-DAEMON@me.example.org>"
    assert message["To"] == "<a@example.org>"
    assert message["Subject"] == "failure notice"
    assert message["Auto-Submitted"] == "auto-replied"
    assert message["MIME-Version"] == "1.0"
    assert message["Message-ID"] == "<1700000500.457.99.bounce@me.example.org>"
    assert parsedate_to_datetime(message["Date"]).timestamp() == NOW


def test_the_text_part_is_what_programs_that_read_qsbmf_look_for() -> None:
    first, *paragraphs = body(parts(compose_bounce(facts()))[0]).rstrip(b"\n").split(b"\n\n")
    assert first.startswith(b"Hi. This is the queue-send program at me.example.org.")
    assert paragraphs == [b"<b@example.net>:\n" + REASON.rstrip(b"\n")]


def test_the_status_part_has_the_fields_that_rfc_3464_requires() -> None:
    failures = [(b"b@example.net", REASON), (b"c@me.example.org", b"Sorry, no mailbox here by that name. (#5.1.1)\n")]
    about, *recipients = status_blocks(compose_bounce(facts(failures=failures)))
    assert about["Reporting-MTA"] == "dns; me.example.org"
    assert parsedate_to_datetime(about["Arrival-Date"]).timestamp() == 1_700_000_000
    assert [block["Final-Recipient"] for block in recipients] == ["rfc822; b@example.net", "rfc822; c@me.example.org"]
    assert [block["Action"] for block in recipients] == ["failed", "failed"]
    assert [block["Status"] for block in recipients] == ["5.1.1", "5.1.1"]
    assert recipients[0]["Diagnostic-Code"] == "smtp; 550 5.1.1 no such user"
    assert recipients[1]["Diagnostic-Code"].startswith("x-queue-suite; Sorry, no mailbox")


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (b"Remote host said: 550 no such user\n", "5.0.0"),
        (b"Connected to 5.1.1.1 but greeting failed.\n", "5.0.0"),
        (b"CNAME lookup failed temporarily. (#4.4.3)\nI'm not going to try again\n", "4.4.3"),
        (b"Remote host said: 250 2.1.5 fine\nRemote host said: 554 5.6.0 no\n", "5.6.0"),
        (b"Remote host said: 550 Exim 4.94.2 says no\n", "5.0.0"),
        (b"Remote host said: 550 see RFC 4.2.2\n", "5.0.0"),
        (b"Remote host said: 550 4.2.2 is of another class\n", "5.0.0"),
        (b"Remote host said: 550-first\n550 5.2.1: disabled\n", "5.2.1"),
        (b"Remote host said: 554 sorry, no mailbox here (#5.1.1)\n", "5.1.1"),
        (b"Connected to 192.0.2.1 but it is this host. (#5.4.6)\nRemote host said: 250 5.1.1 x\n", "5.4.6"),
    ],
)
def test_the_status_is_a_code_of_failure_that_the_reason_holds(reason: bytes, status: str) -> None:
    assert status_blocks(compose_bounce(facts(failures=[(b"b@c", reason)])))[1]["Status"] == status


def test_the_diagnostic_code_has_all_lines_of_the_reply_that_refused() -> None:
    reason = (
        b"Remote host said: 250 fine\n192.0.2.1 does not like recipient.\n"
        b"Remote host said: 550-5.1.1 The account does not exist.\n550-5.1.1 Check the spelling, or see\n"
        b"550 5.1.1 https://support.example/x\nGiving up on 192.0.2.1.\n"
    )
    said = status_blocks(compose_bounce(facts(failures=[(b"b@example.net", reason)])))[1]["Diagnostic-Code"]

    assert said.replace("\n", "") == (
        "smtp; 550-5.1.1 The account does not exist. 550-5.1.1 Check the spelling, or see"
        " 550 5.1.1 https://support.example/x"
    )


def test_the_header_part_is_the_messages_header() -> None:
    header = b"Subject: =?utf-8?q?x?=\nTo: b@example.net,\n\tc@example.net\nX-Raw: \xff\xc3\xa9\n"
    assert body(parts(compose_bounce(facts(header=header)))[2]) == header


def test_a_double_bounce_says_that_it_is_one() -> None:
    text = body(parts(compose_bounce(facts(sender=b"", recipient=b"postmaster@me.example.org")))[0])
    assert text.startswith(b"Hi. This is the queue-send program at me.example.org.\nA bounce could not be delivered")


def test_an_address_that_is_not_ascii_stands_in_the_status_part_as_rfc_6533_writes_it() -> None:
    recipient = "jürgen\\x@example.net".encode()
    data = compose_bounce(facts(failures=[(recipient, "Postfach für jürgen voll".encode())]))
    block = status_blocks(data)[1]
    assert block["Final-Recipient"] == 'utf-8; "j\\x{FC}rgen\\x{5C}\\x{5C}x"@example.net'
    assert block["Diagnostic-Code"] == "x-queue-suite; Postfach f?r j?rgen voll"
    assert "<jürgen\\x@example.net>:\nPostfach für jürgen voll".encode() in body(parts(data)[0])


# Addresses of the envelope, in which nothing is quoted, and Final-Recipient (RFC 3464, RFC 6533).
FIELDS = [
    (b"john doe@x.example", 'rfc822; "john doe"@x.example'),
    (b"a  b@x.example", 'rfc822; "a  b"@x.example'),
    (b"a,b@x.example", 'rfc822; "a,b"@x.example'),
    (b'qu"o\\te@x.example', 'rfc822; "qu\\"o\\\\te"@x.example'),
    (b"a@b@x.example", 'rfc822; "a@b"@x.example'),
    (b".a..b@x.example", 'rfc822; ".a..b"@x.example'),
    (b"<a>;:(c)[d]@x.example", 'rfc822; "<a>;:(c)[d]"@x.example'),
    (b"x+y=z@[192.0.2.1]", "rfc822; x+y=z@[192.0.2.1]"),
    ("x+y=zé@x.example".encode(), 'utf-8; "x\\x{2B}y\\x{3D}z\\x{E9}"@x.example'),
    ("ann@jürgen.example".encode(), "utf-8; ann@j\\x{FC}rgen.example"),
    ("a ü\U0001f600@x.example".encode(), 'utf-8; "a\\x{20}\\x{FC}\\x{1F600}"@x.example'),
    (b"a\x01\tb@x.example", 'utf-8; "a\\x{01}\\x{09}b"@x.example'),
]


@pytest.mark.parametrize(("address", "field"), FIELDS)
def test_the_status_part_names_an_address_exactly(address: bytes, field: str) -> None:
    assert status_blocks(compose_bounce(facts(failures=[(address, REASON)])))[1]["Final-Recipient"] == field


def header_of(recipient: bytes) -> Any:
    """Return the To field of the bounce to an address; no field of the bounce may have a defect."""
    message = email.message_from_bytes(compose_bounce(facts(recipient=recipient)), policy=email.policy.default)
    assert [field.defects for part in message.walk() for field in part.values()] == [()] * sum(
        len(part.values()) for part in message.walk()
    )
    return message["To"]


def test_the_to_of_a_bounce_names_its_recipient_and_nobody_else() -> None:
    signs = [chr(code) for code in range(32, 127)]
    odd = [f"{sign}a{sign}{sign} b" for sign in signs] + [f"a{sign}" for sign in signs]
    for local in [*odd, 'x, "y" <z@w>', "a" * 64]:
        [mailbox] = header_of(f"{local}@x.example".encode()).addresses
        assert (mailbox.username, mailbox.domain) == (local, "x.example")
    assert header_of("ann@jürgen.example.".encode()).addresses[0].addr_spec == "ann@xn--jrgen-kva.example"


@pytest.mark.parametrize(
    "address",
    ["jürgen@x.example", "a b\U0001f600@jürgen.example", "a@x..example", "a@b c", "postmaster", "ü" * 400 + "@x.y"],
)
def test_an_address_that_no_ascii_header_can_hold_is_the_name_of_an_empty_group(address: str) -> None:
    to = header_of(address.encode())

    assert to.addresses == () and len(to.groups) == 1
    # Python's parser keeps the folding between two encoded words as a space.
    assert to.groups[0].display_name.replace(" ", "") == address.replace(" ", "")


@pytest.mark.parametrize("address", [b"a\n\x00\x7fb@x.example", b"a@\xff.example", b"\xff@x.example"])
def test_an_address_that_is_no_text_makes_no_defect(address: bytes) -> None:
    assert header_of(address).addresses == ()


@pytest.mark.parametrize("length", [900, 1002, 3000])
def test_an_address_of_any_length_makes_no_line_that_is_too_long(length: int) -> None:
    long = b"a" * length + b"@example.net"
    data = compose_bounce(facts(recipient=long, sender=long, failures=[(long, long)], me=long, bouncefrom=long))
    assert max(len(line) for line in data.split(b"\n")) <= 998
    assert len(status_blocks(data)) == 2


def test_a_carriage_return_of_the_messages_header_does_not_come_along() -> None:
    assert body(parts(compose_bounce(facts(header=b"A: b\r\nC: d\re\n")))[2]) == b"A: b\nC: de\n"


hostile = st.one_of(
    st.binary(max_size=80),
    st.lists(
        st.sampled_from(
            [
                b"--report-1700000500.457.99.bounce-0",
                b"--report-1700000500.457.99.bounce-0--",
                b"\n",
                b"\r\n",
                b"\n\n",
                b"\x00",
                b"<",
                b">:\n",
                b"Content-Type: text/html",
                b"Remote host said: 5",
                b"5.1.1",
                b"\xff",
                b"\xc3\xa9",
                b"x" * 1200,
                b"\x0b\x0c\x1c\x85",
                b"\xe2\x80\xa8",
                b"Final-Recipient: rfc822; x",
                b" ",
                b"\t",
                b".",
            ]
        ),
        max_size=10,
    ).map(b"".join),
)


@settings(max_examples=300, deadline=None)
@given(
    failures=st.lists(
        st.tuples(addresses, hostile), min_size=1, max_size=4, unique_by=lambda pair: pair[0].replace(b"\n", b"_")
    ),
    sender=addresses,
    header=hostile,
)
def test_nothing_that_strangers_write_breaks_the_report(
    failures: list[tuple[bytes, bytes]], sender: bytes, header: bytes
) -> None:
    kept = unpack_failures(b"".join(pack_failure(recipient, text) for recipient, text in failures))
    data = compose_bounce(facts(failures=kept, sender=sender, recipient=sender, header=header))
    text = parts(data)[0]
    assert max(len(line) for line in data.split(b"\n")) <= 998
    assert b"\0" not in data and b"\r" not in data
    boundary = str(parse(data).get_boundary()).encode()
    # In the head, before each part, and at the end: nowhere in what the parts hold.
    assert (data.count(boundary), data.count(b"\n--" + boundary)) == (5, 4)
    # One block for the message and one a recipient, each with its own fields, whatever the reasons hold.
    blocks = status_blocks(data)
    assert len(blocks) == 1 + len(kept)
    for block in blocks[1:]:
        assert [name for name, _ in block.items()] == ["Final-Recipient", "Action", "Status", "Diagnostic-Code"]
        assert re.fullmatch(r"[45]\.\d{1,3}\.\d{1,3}", block["Status"])
    raw = data.split(b"\n--" + boundary)[2]
    assert raw.isascii(), "RFC 3464: the status part is 7 bit"
    # One paragraph a recipient, each under its address.
    paragraphs = body(text).rstrip(b"\n").split(b"\n\n")
    assert len(paragraphs) == 1 + len(kept)
    assert all(paragraph.startswith(b"<") for paragraph in paragraphs[1:])
