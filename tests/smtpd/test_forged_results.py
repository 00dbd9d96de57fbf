"""Authentication-Results in our name that strangers write do not come in; all else does."""

import email
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.home import Home
from queue_remote.message.arc_seal import find_results
from queue_remote.message.dkim_signature import wire_fields
from queue_smtpd.config import read_config
from queue_smtpd.sessions.client_facts import ClientFacts
from queue_smtpd.sessions.forged_results import FIELD_MAX, ForgedResults
from support.inject.injectors import shared_home
from support.smtpd.sessions import STRANGER, DrivenSession

OURS = frozenset((b"mx.example.org", b"other id"))
SLICE = 32768


def passed(text: bytes, size: int = 0, bare: bool = False) -> bytes:
    """Return what goes on of a message that comes in pieces of a size, 0 for one piece."""
    removal = ForgedResults(OURS, bare)
    pieces = [text] if not size else [text[at : at + size] for at in range(0, len(text), size)]
    return b"".join([removal.feed(piece) for piece in pieces] + [removal.end()])


FORGED = [
    b"Authentication-Results: mx.example.org; dkim=pass\n",
    b"authentication-results:MX.Example.ORG;dkim=pass\n",
    b"AUTHENTICATION-RESULTS \t:\tmx.example.org 1; spf=pass\n",
    b"Authentication-Results: mx.example.org\n",
    b"Authentication-Results:\n\tmx.example.org\n\t1;\n dkim=pass\n (x;\n y)\n",
    b"Authentication-Results: (a (b\\) c) ; d)\n (e) mx.example.org (f) 1; none\n",
    b'Authentication-Results: "mx.example.org"; none\n',
    b'Authentication-Results: "mx.ex\\ample.org" 1; none\n',
    b'Authentication-Results: "other id"; none\n',
    b"Authentication-Results: mx.example.org(1) 1; none\n",
    # A reader that takes comments out first sees our id.
    b"Authentication-Results: mx(a).example(b).org; none\n",
    # A backslash stands for nothing here.
    b"Authentication-Results: mx.example.org\\; none\n",
    b"Authentication-Results: mx.exam\\ple.org; none\n",
    b"Authentication-Results: \"mx.example.org\"evil; none\n",
    # OpenDMARC reads the parts of an id with spaces, comments and quotes between them.
    b"Authentication-Results: mx .example. org; none\n",
    b"Authentication-Results: mx (a) . (b) example\n .org 1; none\n",
    b'Authentication-Results: mx "." example \\. org; none\n',
    b"Authentication-Results: mx ).example ).org; none\n",
    b'Authentication-Results: "(a" mx.example.org; none\n',
    b"Authentication-Results: \\( mx.example.org; none\n",
    # Readers that put lines together before they look for the colon.
    b"Authentication-Results\n : mx.example.org; none\n",
    b"Authentication-Results\n\t\n :\n mx.example.org; none\n",
    # Readers that decode encoded words, such as email.policy.default.
    b"Authentication-Results: =?us-ascii?q?mx.example.org?=; none\n",
    b"Authentication-Results: =?us-ascii?q?mx.example.org=3B_none?=\n",
    b"Authentication-Results: (=?us-ascii?q?=29_mx.example.org=3B_dkim=3Dpass_=28?=) mx.example.net; none\n",
    # Nobody can say whose they are.
    "Authentication-Results: \uff4dx.example.org; none\n".encode(),
    "Authentication-Results: mx\u3002example.org 1; none\n".encode(),
    b"Authentication-Results: (never ends; mx.example.org; none\n",
    b'Authentication-Results: "never ends; none\n',
    b"Authentication-Results: " + b"(c)" * FIELD_MAX + b" mx.example.org; none\n",
    b"Authentication-Results: " + b"\n " * FIELD_MAX + b" mx.example.org; none\n",
    b"Authentication-Results" + b" " * FIELD_MAX + b": mx.example.org; none\n",
    b"Authentication-Results: mx.example.org; " + b"dkim=pass;\n " * FIELD_MAX + b"spf=pass\n",
    # Where bare CRs are taken, they are spaces for some readers.
    b"Authentication-Results\r:\rmx.example.org\r; none\n",
    b"Authentication-Results:\n\rmx.example.org; none\n",
]
FOREIGN = [
    b"Authentication-Results: mx.example.net; dkim=pass\n",
    b"Authentication-Results: mx.example.org.example.net; dkim=pass\n",
    b"Authentication-Results: mx.example.net; x=mx.example.org\n",
    "Authentication-Results: (\u00fc) mx.example.net; x=\u00fc\n".encode(),
    b"Authentication-Results: mx.example.net (mx.example.org) mx.example.org; none\n",
    b"Authentication-Results: (mx.example.org) mx.example.net; none\n",
    b"Authentication-Results: mx.example.net; " + b"dkim=pass;\n " * FIELD_MAX + b"spf=pass\n",
    b"Authentication-Results:\n",
    b"Authentication-Results\n",
    b"Authentication-Results\n x\n",
    b"Authentication-Results: spf=pass (sender IP is 192.0.2.1) smtp.mailfrom=example.net; none\n",
    b"Authentication-Results are mx.example.org; none\n",
    b"Authentication-Results " + b"are " * FIELD_MAX + b"mx.example.org; none\n",
    b"Authentication-Results-X: mx.example.org; none\n",
    b"X-Authentication-Results: mx.example.org; none\n",
    b"ARC-Authentication-Results: i=1; mx.example.org; none\n",
    b"Subject: a\n Authentication-Results: mx.example.org; none\n",
    b"Subject: \xff\0\n",
]


@pytest.mark.parametrize("field", FORGED)
@pytest.mark.parametrize("size", [0, 1, 7, 4096])
def test_a_field_with_our_authserv_id_is_removed_and_nothing_else(field: bytes, size: int) -> None:
    before, after = b"Subject: x\n folded\n", b"From: a\n\nAuthentication-Results: mx.example.org; body\n"
    assert passed(before + field + after, size) == before + after
    assert passed(field + after, size) == after
    assert passed(field * 3 + after + field, size) == after + field
    assert passed(before + field, size) == before
    assert passed(before + field.removesuffix(b"\n"), size) == before


@pytest.mark.parametrize("field", FOREIGN)
@pytest.mark.parametrize("size", [0, 1, 7, 4096])
def test_other_fields_stay_as_they_are(field: bytes, size: int) -> None:
    forged = FORGED[0]
    assert passed(field + forged + field + b"\nbody\n", size) == field + field + b"\nbody\n"
    assert passed(field, size) == field
    assert passed(field.removesuffix(b"\n"), size) == field.removesuffix(b"\n")


PARTS = st.sampled_from([
    b"Authentication-Results", b"authentication-results:", b" ", b"\t", b"\r", b":", b"mx.example.org", b"mx", b";",
    b"\n", b"\n ", b"(", b")", b'"', b"\\", b"a", b"1", b".example.org", FORGED[0], FOREIGN[0], b"Received: x\n",
])  # fmt: skip


@pytest.mark.parametrize("size", [0, 1, 7, 4096])
def test_where_bare_crs_are_taken_a_field_may_begin_behind_one(size: int) -> None:
    ours, other = b"Authentication-Results: mx.example.org; dkim=pass", b"Authentication-Results: mx.example.net; x=y"
    for text, left in [
        (b"Subject: a\r%s\nTo: b\n", b"Subject: a\r\nTo: b\n"),
        (b"Subject: a\r%s\rTo: b\n", b"Subject: a\rTo: b\n"),
        (b"Subject: a\r%s\n folded\nTo: b\n", b"Subject: a\r\nTo: b\n"),
        (b"%s\rTo: b\n", b"To: b\n"),
        (other + b"\r%s\n", other + b"\r\n"),
        (b"Subject: a\r%s\r\r%s\n\nbody\n", b"Subject: a\r\n\nbody\n"),
        (b"Subject: a\r%s", b"Subject: a\r"),
    ]:
        forged = text.replace(b"%s", ours)
        assert passed(forged + b"\nbody\n", size, True) == left + b"\nbody\n", forged
    for field in FORGED:
        assert passed(b"A: b\n" + field + b"C: d\n\nbody", size, True) == b"A: b\nC: d\n\nbody"
    for field in FOREIGN:
        assert passed(field + b"\nbody", size, True) == field + b"\nbody"


@given(st.lists(PARTS, max_size=30).map(b"".join))
def test_pythons_email_sees_no_forged_field_behind_a_bare_cr(text: bytes) -> None:
    message = email.message_from_bytes(passed(text + b"\n\nbody\n", 0, True))
    for value in message.get_all("Authentication-Results") or []:
        assert not re.match(r"\s*mx\.example\.org\s*(;|$)", str(value)), text


@given(st.lists(PARTS, max_size=30).map(b"".join), st.lists(st.integers(0, 600), max_size=20), st.booleans())
def test_the_pieces_make_no_difference(text: bytes, cuts: list[int], bare: bool) -> None:
    removal = ForgedResults(OURS, bare)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    found = b"".join([removal.feed(text[begin:end]) for begin, end in pairwise(places)] + [removal.end()])
    assert found == passed(text, 0, bare)
    assert passed(found, 0, bare) == found


@given(st.lists(PARTS, max_size=30).map(b"".join))
def test_what_is_left_is_never_sealed_by_queue_remote(text: bytes) -> None:
    ours = b"Delivered-To: a\nReceived: from x by mx.example.org with ESMTP id 1; date\n"
    names = frozenset((b"delivered-to", b"received", b"authentication-results", b"arc-seal"))
    header = (ours + passed(text + b"\n\nbody\n")).partition(b"\n\n")[0]
    fields = wire_fields(header + b"\n", names)
    assert not find_results(fields, frozenset((b"mx.example.org",)), b"example.org", b"mx.example.org")


def test_a_header_of_many_fields_takes_little_time_and_memory() -> None:
    comments = b"Authentication-Results:" + b"()" * (FIELD_MAX // 2 - 20) + b"a;\n"
    for line in (b"A:\n", FORGED[1], FOREIGN[0], b"\n".join([b"A: b", b" c", b""]), comments):
        text = line * ((1 << 20) // len(line))
        removal = ForgedResults(OURS)
        worst = 0.0
        for at in range(0, len(text), SLICE):
            begun = time.thread_time()
            removal.feed(text[at : at + SLICE])
            worst = max(worst, time.thread_time() - begun)
        # A turn has 20 ms for all that is done with a slice.
        assert worst < 0.02, line


ENVELOPE = b"EHLO c\r\nMAIL FROM:<a@example.net>\r\nRCPT TO:<joe@example.org>\r\n"
HEADER = b"Authentication-Results: mx.example.org; dkim=pass\r\nSubject: x\r\n"
TRUSTED = [
    ClientFacts("192.0.2.5", "192.0.2.1"),
    STRANGER._replace(user=b"joe", mechanism=b"PLAIN"),
    STRANGER._replace(relays=True),
]


def received(client: ClientFacts, chunks: bool) -> bytes:
    """Return the header of a message that a client has sent, behind the Received field."""
    session = DrivenSession(client)
    body = HEADER + b"\r\nhello\r\n"
    if chunks:
        first, rest = body[:30], body[30:]
        session.feed(ENVELOPE + b"BDAT %d\r\n%sBDAT %d LAST\r\n%s" % (len(first), first, len(rest), rest))
    else:
        session.feed(ENVELOPE + b"DATA\r\n" + body + b".\r\n")
    text = session.messages[0][0]
    assert text.startswith(b"Received: ") and text.endswith(b"\n\nhello\n")
    return text.partition(b"-0000\n")[2].partition(b"\n\n")[0]


@pytest.mark.parametrize("chunks", [False, True])
def test_a_stranger_cannot_send_them_and_others_can(chunks: bool) -> None:
    assert received(STRANGER, chunks) == b"Subject: x"
    for client in TRUSTED:
        assert received(client, chunks) == HEADER.replace(b"\r", b"").removesuffix(b"\n")


def test_a_message_that_ends_within_such_a_field_is_complete() -> None:
    session = DrivenSession()
    session.feed(ENVELOPE + b"BDAT 25 LAST\r\nSubject: x\r\nAuthenticatio")
    assert session.messages[0][0].endswith(b"-0000\nSubject: x\nAuthenticatio")


def test_our_ids_are_those_of_me_of_arc_and_of_the_milters() -> None:
    with shared_home(0) as home:
        check_ids(home)


def check_ids(home: Home) -> None:
    control = Path(home.control)
    me = (control / "me").read_text().strip()
    assert read_config(home).authserv == {me.encode()}
    (control / "me").write_text("MX.example.org\n")
    (control / "arc").write_text("# seals\nexample.org:s:key Seal.example.org\n")
    (control / "milters").write_text("inet:127.0.0.1:1 mx\ninet:127.0.0.1:2 authserv=Check.example.org\n")
    assert read_config(home).authserv == {b"mx.example.org", b"seal.example.org", b"check.example.org"}
    (control / "arc").write_text("example.org:s:key\n")
    (control / "milters").unlink()
    assert read_config(home).authserv == {b"mx.example.org"}
