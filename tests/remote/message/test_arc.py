"""Forwarded mail is sealed as it leaves, other mail is not, and no fault of a key or a chain keeps it from leaving."""

import asyncio
import base64
import hashlib
import itertools
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import dkim
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from dkim.canonicalization import CanonicalizationPolicy, Relaxed, Simple
from hypothesis import given
from hypothesis import strategies as st

from queue_base.home import Home
from queue_base.queue.writer import received_line
from queue_local.headers import delivered_to
from queue_remote.control_check import check_home
from queue_remote.message import arc_seal
from queue_remote.message.arc_key import ArcLine, read_arc_key, unpack_arc
from queue_remote.message.arc_seal import (
    FIELDS_MAX,
    HEADER_MAX,
    ArcPlan,
    Unsealable,
    find_results,
    make_seal,
    plan_seal,
    seal_fields,
)
from queue_remote.message.dkim_keys import KeyLine, SigningKey, load_key
from queue_remote.message.dkim_signature import wire_fields
from queue_remote.message.file import Message
from queue_remote.message.sealing import Sealing
from queue_remote.route.router import Router
from queue_smtpd.sessions.client_facts import ClientFacts
from queue_smtpd.sessions.received_line import pack_received
from queue_wire.format_error import FormatError
from queue_wire.pipes.report import SUCCESS
from support.processes.refusals import value_or_refusal
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.dkim_keys import DkimZone, put_key, wire
from support.servers.dns.dns_server import DnsServer
from support.servers.smtp.raw_server import Peer, RawServer
from support.servers.smtp.smtp_server import SmtpServer

ZONE = DkimZone()
OURS = ZONE.rsa("one@client.example")
THEIRS = ZONE.rsa("two@list.example")
CLIENT = ClientFacts("192.0.2.1", name=b"mx.example.net", hello=b"mx.example.net", esmtp=True)
RECEIVED = pack_received(CLIENT, b"client.example", 1795000000).replace(b"\0", b"4711")
RESULTS = b"Authentication-Results: client.example; dkim=pass (ok; good) header.d=example.net;\n\tspf=pass\n"
FORWARDED = received_line(8123, 1000, 1795000001) + delivered_to(b"joe@client.example")
MAIL = b"From: Ann <ann@example.net>\nTo: j@client.example\nSubject: hello\nDKIM-Signature: v=1\n\nA  message. \n.x\n\n"
Sealer = Callable[..., bytes]


def opened(path: Path, stored: bytes) -> Message:
    path.write_bytes(stored)
    return Message(os.open(path, os.O_RDONLY))


def theirs(message: bytes, results: bytes = b"", key: bytes = THEIRS, names: tuple[bytes, ...] = ()) -> bytes:
    """Return a message with a set that another host has made."""
    results = results or b"Authentication-Results: list.example; spf=pass\r\n"
    made = dkim.arc_sign(
        results + wire(message), b"two", b"list.example", key, b"list.example", include_headers=list(names)
    )
    return b"".join(made).replace(b"\r\n", b"\n") + message


def verdict(message: bytes) -> tuple[bytes | None, int]:
    """Return what dkimpy says of a chain, and its number of sets."""
    status, sets, _ = dkim.arc_verify(message, dnsfunc=ZONE.lookup)
    return status, len(sets)


@pytest.fixture
def seal(tmp_path: Path) -> Sealer:
    home = RemoteHome(tmp_path, arc="client.example:one:arc.pem")
    put_key(tmp_path / "control", "arc.pem", OURS)
    arc = read_arc_key(Home(str(home.path)), b"client.example")
    assert arc.key is not None and arc.fault is None

    def sealed(stored: bytes, zone: Callable[[bytes], bytes | None] = ZONE.lookup) -> bytes:
        """Return the message on the wire, with its set."""
        message = opened(tmp_path / "message", stored)
        try:
            assert arc.key is not None
            plan = plan_seal(message, frozenset((b"client.example",)), arc.key, arc.authserv)
            if plan is None:
                return wire(stored)
            records = {name: zone(name + b".") or b"" for name in plan.names}
            return wire(make_seal(plan, message, message, records, arc.key, arc.authserv) + stored)
        finally:
            message.close()

    return sealed


@pytest.mark.parametrize("top", [RECEIVED + RESULTS, RESULTS + RECEIVED])
def test_a_forwarded_message_gets_a_good_seal(seal: Sealer, top: bytes) -> None:
    sent = seal(FORWARDED + top + MAIL)
    assert verdict(sent) == (b"pass", 1)
    header = b" ".join(sent.partition(b"\r\nReceived")[0].split())
    assert b"i=1; client.example; dkim=pass (ok; good) header.d=example.net; spf=pass" in header
    assert b"ARC-Seal: i=1; cv=none; a=rsa-sha256; d=client.example; s=one;" in header
    assert b"dkim-signature" in header
    assert max(map(len, sent.split(b"\r\n"))) <= 100
    assert verdict(sent.replace(b"A  message", b"Another"))[0] == b"fail"
    assert verdict(sent.replace(b"Subject: hello", b"Subject: hullo"))[0] == b"fail"
    assert verdict(sent.replace(b"spf=pass", b"spf=fail", 1))[0] == b"fail"


@pytest.mark.parametrize(
    "stored",
    [
        RECEIVED + RESULTS + MAIL,
        FORWARDED + MAIL,
        FORWARDED + RECEIVED + MAIL,
        FORWARDED + RESULTS + MAIL,
        FORWARDED + RECEIVED + RESULTS.replace(b"client.", b"other.") + MAIL,
        FORWARDED + pack_received(CLIENT._replace(user=b"ann"), b"client.example", 0) + RESULTS + MAIL,
        FORWARDED + RECEIVED.replace(b"by client.", b"by other.") + RESULTS + MAIL,
        FORWARDED + RECEIVED + b"Received: from a by b with SMTP\n" + RESULTS + MAIL,
        FORWARDED + b"ARC-Seal: i=1; d=client.example\n" + RECEIVED + RESULTS + MAIL,
        FORWARDED + RECEIVED + RESULTS + b"ARC-Seal: i=1; d=client.example\n" + MAIL,
        b"Authentication-Results: client.example; dkim=pass\n" + MAIL,
    ],
)
def test_other_mail_gets_none(seal: Sealer, stored: bytes) -> None:
    assert seal(stored) == wire(stored)


def test_a_chain_is_checked_and_continued(seal: Sealer) -> None:
    assert verdict(wire(theirs(MAIL))) == (b"pass", 1)
    sent = seal(FORWARDED + RECEIVED + RESULTS + theirs(MAIL))
    assert verdict(sent) == (b"pass", 2)
    assert b"cv=pass" in sent and b"arc=pass" in sent
    assert verdict(seal(FORWARDED + RECEIVED + RESULTS + theirs(theirs(MAIL), RESULTS_OF_CHAIN))) == (b"pass", 3)


RESULTS_OF_CHAIN = b"Authentication-Results: list.example; arc=pass\r\n"


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: stored.replace(b"A  message", b"Another"),
        lambda stored: stored.replace(b"i=1; cv=none", b"i=1; cv=pass"),
        lambda stored: stored.replace(b"ARC-Authentication-Results: i=1", b"ARC-Authentication-Results: i=3"),
        lambda stored: stored.replace(b"ARC-Authentication-Results:", b"Odd:"),
        lambda stored: stored.replace(b"ARC-Message-Signature: i=1;", b"ARC-Message-Signature: i = 1 ;"),
        lambda stored: stored.replace(b"d=list.example;", b"d=;"),
        lambda stored: stored.replace(b"; h=", b"; l=3; h=", 1),
        lambda stored: b"ARC-Seal: i=1; odd\n" + stored,
    ],
)
def test_a_chain_that_fails_gets_a_seal_that_says_so(seal: Sealer, change: Callable[[bytes], bytes]) -> None:
    sent = seal(FORWARDED + RECEIVED + RESULTS + change(theirs(MAIL)))
    assert b"cv=fail; a=rsa-sha256;" in b" ".join(sent.split())
    # The seal of a failed chain covers its own set alone.
    own = sent[: sent.index(b"Received:")]
    assert dkim.ARC(own + b"\r\n").headers[0][0] == b"ARC-Seal"
    # A chain that has ended is left alone.
    again = FORWARDED + RECEIVED + RESULTS + sent.replace(b"\r\n", b"\n").replace(b"d=client.example", b"d=x.example")
    assert seal(again) == wire(again)


def test_the_results_of_this_host_count_more_than_a_check(seal: Sealer) -> None:
    changed = theirs(MAIL).replace(b"A  message", b"Another")
    passed = RESULTS.replace(b"spf=pass", b"spf=pass; arc=pass (i=1)")
    assert b"i=2; cv=pass" in b" ".join(seal(FORWARDED + RECEIVED + passed + changed).split())
    failed = RESULTS.replace(b"spf=pass", b"arc=fail")
    assert b"i=2; cv=fail" in b" ".join(seal(FORWARDED + RECEIVED + failed + theirs(MAIL)).split())
    commented = RESULTS.replace(b"spf=pass", b"spf=pass (x; arc=pass)")
    assert b"i=2; cv=fail" in b" ".join(seal(FORWARDED + RECEIVED + commented + changed).split())


def test_keys_that_do_not_exist_or_are_odd_fail_the_chain(seal: Sealer) -> None:
    stored = FORWARDED + RECEIVED + RESULTS + theirs(MAIL)
    for record in (None, b"", b"rubbish", b"v=DKIM1; p=", b"v=DKIM1; p=" + b"A" * 4000, b"k=ed25519; p=AAAA"):
        assert b"cv=fail" in seal(stored, lambda name, record=record: record)


def test_a_key_with_a_large_exponent_fails_the_chain(seal: Sealer) -> None:
    """dkimpy takes any. Its arithmetic with it holds all threads up."""
    key = load_pem_private_key(THEIRS, None)
    assert isinstance(key, rsa.RSAPrivateKey)
    old = key.private_numbers()
    order = (old.p - 1) * (old.q - 1)
    exponent = next(number for number in itertools.count((1 << 64) + 1, 2) if math.gcd(number, order) == 1)
    secret = pow(exponent, -1, order)
    public = rsa.RSAPublicNumbers(exponent, old.public_numbers.n)
    crt = secret % (old.p - 1), secret % (old.q - 1)
    odd = rsa.RSAPrivateNumbers(old.p, old.q, secret, *crt, old.iqmp, public).private_key()
    shown = odd.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    record = b"v=DKIM1; p=" + base64.b64encode(shown)
    chain = theirs(MAIL, key=odd.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    assert dkim.arc_verify(wire(chain), dnsfunc=lambda name, timeout=0: record)[0] == b"pass"
    assert b"cv=fail" in seal(FORWARDED + RECEIVED + RESULTS + chain, lambda name: record)


def test_a_signature_of_very_many_names_fails_the_chain(seal: Sealer) -> None:
    """dkimpy looks for each of them in all fields."""
    chain = theirs(MAIL, names=(b"from", *(b"x-%d" % number for number in range(300))))
    assert verdict(wire(chain)) == (b"pass", 1)
    assert b"cv=fail" in seal(FORWARDED + RECEIVED + RESULTS + chain)


@pytest.mark.parametrize(
    ("sets", "tags"),
    [
        (1, b"h=a" + b"\x0b" * 60000 + b"b"),
        (49, b"h=from\nX: " + b" y" * 20000),
    ],
    ids=["white space", "sets"],
)
def test_a_hostile_chain_takes_little_time(seal: Sealer, sets: int, tags: bytes) -> None:
    digest = base64.b64encode(hashlib.sha256(Relaxed.canonicalize_body(wire(MAIL.partition(b"\n\n")[2]))).digest())
    chain = [
        b"ARC-Seal: i=%d; cv=%s; a=rsa-sha256; d=list.example; s=two; b=AAAA\n"
        b"ARC-Authentication-Results: i=%d; x\n"
        b"ARC-Message-Signature: i=%d; a=rsa-sha256; d=list.example; s=two; b=AAAA; bh=%s; %s\n"
        % (number, b"pass" if number > 1 else b"none", number, number, digest, tags if number == sets else b"h=from")
        for number in range(sets, 0, -1)
    ]
    begun = time.thread_time()
    assert b"cv=fail" in seal(FORWARDED + RECEIVED + RESULTS + b"".join(chain) + MAIL)
    assert time.thread_time() - begun < 0.7


def test_a_long_chain_is_left_alone(seal: Sealer) -> None:
    ends = b"".join(
        b"ARC-Seal: i=%d; cv=pass; d=x\nARC-Message-Signature: i=%d\nARC-Authentication-Results: i=%d; x\n" % (n, n, n)
        for n in range(50, 0, -1)
    )
    stored = FORWARDED + RECEIVED + RESULTS + ends + MAIL
    assert seal(stored) == wire(stored)


@pytest.mark.parametrize("more", [b"X-A: " + b"x" * HEADER_MAX + b"\n", b"X: y\n" * (FIELDS_MAX + 1)])
def test_a_header_over_the_limits_is_not_sealed(seal: Sealer, more: bytes) -> None:
    with pytest.raises(Unsealable, match="header has over"):
        seal(FORWARDED + RECEIVED + RESULTS + more + MAIL)


def test_a_chain_with_the_simple_form_of_the_body_is_checked(seal: Sealer, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, sign = load_key(THEIRS)
    with monkeypatch.context() as patch:
        patch.setattr(arc_seal, "POLICY", CanonicalizationPolicy.from_c_value(b"relaxed/simple"))
        header, _, body = MAIL.partition(b"\n\n")
        digest = hashlib.sha256(Simple.canonicalize_body(wire(body))).digest()
        made = seal_fields(
            ArcPlan(b"spf=pass", b"none", 1, [], []),
            wire_fields(header, Every()),
            digest,
            SigningKey(b"list.example", b"two", algorithm, sign),
            b"list.example",
            1795000000,
        )
    assert verdict(wire(made + MAIL)) == (b"pass", 1)
    assert verdict(seal(FORWARDED + RECEIVED + RESULTS + made + MAIL)) == (b"pass", 2)
    spaces = MAIL.replace(b"A  message", b"A message")
    assert b"cv=fail" in seal(FORWARDED + RECEIVED + RESULTS + made + spaces)


@given(
    st.lists(
        st.sampled_from(
            [
                *(b"Delivered-To: a\n", RECEIVED, RESULTS, FORWARDED, b"ARC-Seal: i=1; d=x\n", b"ARC-Seal:\n"),
                *(b"ARC-Message-Signature: i=1;\n", b"ARC-Authentication-Results: i=\xff\n", b" \x0b\n", b"\0:\n"),
            ]
        )
    ).map(b"".join)
)
def test_no_header_raises_anything_else(stored: bytes) -> None:
    fields = wire_fields(stored, Every())
    found = find_results(fields, frozenset((b"client.example",)), b"client.example", b"client.example")
    assert all(b"dkim=pass" in value for value in found)


class Every:
    def __contains__(self, name: object) -> bool:
        return True


def test_the_line_of_control_arc() -> None:
    key = KeyLine(b"example.org", b"2026a", b"arc.pem")
    assert unpack_arc(b"# none\n") is None
    assert unpack_arc(b"Example.org:2026a:arc.pem\n") == ArcLine(key, b"")
    assert unpack_arc(b"example.org:2026a:arc.pem MX.example.org\n") == ArcLine(key, b"mx.example.org")


@pytest.mark.parametrize(
    "lines", [b"a.org", b".a.org:s:k", b"a.org:s:k two words", b"a.org:s:k a;b", b"a.org:s:k\nb.org:s:k", b"a.org:/:k"]
)
def test_other_lines_are_refused(lines: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_arc(lines)


@given(st.binary(max_size=40))
def test_no_line_raises_anything_but_a_format_error(line: bytes) -> None:
    value_or_refusal(unpack_arc, line)


def test_what_a_server_gets_is_sealed_and_signed_by_keys_from_the_dns(tmp_path: Path) -> None:
    """A small message and a large one, over a connection that is open; a key at a server that fails is no delay."""
    home = RemoteHome(tmp_path, arc="client.example:one:arc.pem", dkim="example.net:one:arc.pem", timeoutremote="60")
    put_key(tmp_path / "control", "arc.pem", OURS)
    record = (ZONE.lookup(b"two._domainkey.list.example.") or b"").decode()
    name = "two._domainkey.list.example"
    small = FORWARDED + RECEIVED + RESULTS + theirs(MAIL)
    large = FORWARDED + RECEIVED + RESULTS + theirs(MAIL + b"0123456789 \n" * 20000)
    with DnsServer({(name, "TXT"): [f'"{record[:200]}" "{record[200:]}"']}, ttl=0) as dns, SmtpServer() as server:
        home.route_all_to(server.port)
        home.control("resolver", f"127.0.0.1:{dns.port}")
        with RemoteDaemon(home) as daemon:
            for content in (small, large, MAIL):
                assert daemon.deliver(home.message(content), b"x@b.example").verdicts[0][0] == SUCCESS
            dns.broken = frozenset((name,))
            other = home.message(small, 24)
            assert daemon.deliver(other, b"x@b.example").verdicts[0][0] == SUCCESS
            warning = daemon.wait_for_error(b"without a seal")
        contents = [message.content for message in server.received]
        sizes = [int(option.removeprefix("SIZE=")) for [option] in server.mail_options]
    assert [verdict(content) for content in contents] == [(b"pass", 2), (b"pass", 2), (b"none", 0), (b"pass", 1)]
    assert all(content.startswith(b"DKIM-Signature:") for content in contents)
    assert sizes == list(map(len, contents))
    assert b"warning: unable to seal a forwarded message: unable to look up a key of its ARC chain" in warning


def test_mail_goes_without_a_seal_while_the_key_is_no_good(tmp_path: Path) -> None:
    home = RemoteHome(tmp_path, arc="client.example:one:arc.pem", timeoutremote="60")
    put_key(tmp_path / "control", "arc.pem", OURS, 0o644)
    assert [name for name, why in check_home(Home(str(tmp_path))) if "unable to seal forwarded mail" in why] == ["arc"]
    with SmtpServer() as server:
        home.route_all_to(server.port)
        path = home.message(FORWARDED + RECEIVED + RESULTS + MAIL)
        with RemoteDaemon(home) as daemon:
            assert b"alert: unable to seal forwarded mail: " in daemon.wait_for_error(b"it is sent without a seal")
            assert daemon.deliver(path, b"x@b.example").verdicts[0][0] == SUCCESS
        assert server.received[0].stored == FORWARDED + RECEIVED + RESULTS + MAIL


def test_a_key_of_another_kind_is_no_good(tmp_path: Path) -> None:
    home = RemoteHome(tmp_path, arc="client.example:one:arc.pem")
    put_key(tmp_path / "control", "arc.pem", ZONE.ed25519("three@client.example"))
    fault = read_arc_key(Home(str(home.path)), b"client.example").fault
    assert fault is not None and "not RSA" in fault


def test_what_was_made_7_bit_is_sealed_as_it_goes_out_with_the_result_of_what_came(tmp_path: Path) -> None:
    home = RemoteHome(tmp_path, arc="client.example:one:arc.pem", timeoutremote="60")
    put_key(tmp_path / "control", "arc.pem", OURS)
    record = (ZONE.lookup(b"two._domainkey.list.example.") or b"").decode()
    heard: list[bytes] = []

    def serve(peer: Peer) -> None:
        peer.greet(b"SIZE")
        heard.append(peer.take_message())

    stored = FORWARDED + RECEIVED + RESULTS + theirs(MAIL.replace(b"A  message", b"\xe9"))
    records = {("two._domainkey.list.example", "TXT"): [f'"{record[:200]}" "{record[200:]}"']}
    with DnsServer(records) as dns, RawServer(serve) as server:
        home.route_all_to(server.port)
        home.control("resolver", f"127.0.0.1:{dns.port}")
        with RemoteDaemon(home) as daemon:
            assert daemon.deliver(home.message(stored), b"x@b.example").verdicts[0][0] == SUCCESS
    content = heard[0].removesuffix(b".\r\n").replace(b"\r\n..", b"\r\n.")
    assert content.isascii()
    assert b"cv=pass" in content
    assert verdict(content) == (b"pass", 2)


def test_warnings_that_strangers_cause_are_few(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    home = RemoteHome(tmp_path, arc="client.example:one:arc.pem")
    put_key(tmp_path / "control", "arc.pem", OURS)
    sealing = Sealing(read_arc_key(Home(str(home.path)), b"client.example"), b"client.example", Router(b"me", {}, None))

    async def seal_all() -> None:
        for number in range(5):
            stored = FORWARDED + RECEIVED + RESULTS + b"X: y\n" * (FIELDS_MAX + number) + MAIL
            message = opened(tmp_path / "message", stored)
            assert await sealing.seal(message, message) == 0
            message.close()

    asyncio.run(seal_all())
    [line] = capfd.readouterr().err.splitlines()
    assert line.endswith("its header has over 1000 fields; it is sent without a seal")
