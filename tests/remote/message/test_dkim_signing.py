"""Signatures are good for what goes on the wire, and break when it is changed; keys that are no good sign nothing."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queue_base.home import Home
from queue_remote.message.dkim_keys import BadKey, Keyring, SigningKey, read_keyring
from queue_remote.message.dkim_signature import make_fields
from queue_remote.message.file import HEADER_MAX, Message
from queue_remote.message.signing import Signing, Unsigned
from support.processes.remote_daemon import RemoteHome
from support.servers.dkim_keys import DkimZone, put_key, wire

MAIL = b"From: Ann <ann@example.org>\nTo: bob@example.net\nSubject: hello\n\nA message.\n"
ZONE = DkimZone()
RSA = ZONE.rsa("one@example.org")
ED25519 = ZONE.ed25519("two@example.org")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    path = tmp_path_factory.mktemp("home")
    made = RemoteHome(path, dkim="example.org:one:rsa.pem\nexample.org:two:ed.pem\n.example.org:one:rsa.pem")
    put_key(made.path / "control", "rsa.pem", RSA)
    put_key(made.path / "control", "ed.pem", ED25519)
    return Home(str(path))


def signed(keyring: Keyring, path: Path, stored: bytes, sender: bytes = b"") -> bytes:
    """Store and sign a message; return it as it goes on the wire."""
    path.write_bytes(stored)
    message = Message(os.open(path, os.O_RDONLY))
    try:
        size = asyncio.run(Signing(keyring).sign(message, sender))
        read = b""
        while not message.ended:
            read += message.read()
    finally:
        message.close()
    assert len(wire(read)) == len(wire(stored)) + size
    assert path.read_bytes() == stored
    return wire(read)


@pytest.fixture
def sign(home: Home, tmp_path: Path) -> Callable[..., bytes]:
    keyring = read_keyring(home)
    return lambda stored, sender=b"": signed(keyring, tmp_path / "message", stored, sender)


def test_two_keys_make_two_good_signatures(sign: Callable[..., bytes]) -> None:
    sent = sign(MAIL)
    assert ZONE.judge(sent) == [True, True]
    assert sent.count(b"a=rsa-sha256") == sent.count(b"a=ed25519-sha256") == 1
    assert max(map(len, sent.split(b"\r\n"))) <= 78


def test_the_authors_domain_decides_then_the_senders(sign: Callable[..., bytes]) -> None:
    assert ZONE.judge(sign(MAIL.replace(b"@example.org", b"@sub.example.org"))) == [True]
    assert b"d=example.org" in sign(MAIL.replace(b"@example.org", b"@sub.example.org"))
    assert ZONE.judge(sign(MAIL.replace(b"@example.org", b"@other.example"), b"ann@example.org")) == []
    assert b"h=from : subject" in sign(b"Subject: no author\n\nx\n", b"ann@Example.org")
    assert sign(b"Subject: no author\n\nx\n") == wire(b"Subject: no author\n\nx\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda sent: b"From: eve@example.org\r\n" + sent,
        lambda sent: b"Subject: second\r\n" + sent,
        lambda sent: sent.replace(b"Subject: hello", b"Subject: hullo"),
        lambda sent: sent.replace(b"A message.", b"Another."),
        lambda sent: sent.replace(b"To: bob", b"To: eve"),
    ],
)
def test_a_changed_message_has_no_good_signature(sign: Callable[..., bytes], change: Callable[[bytes], bytes]) -> None:
    assert ZONE.judge(change(sign(MAIL))) == [False, False]


def test_what_may_change_on_the_way_leaves_signatures_good(sign: Callable[..., bytes]) -> None:
    sent = sign(MAIL)
    sent = b"Received: from a by b\r\n" + sent.replace(b"Subject: hello", b"SUBJECT:  hello ")
    assert ZONE.judge(sent + b"\r\n\r\n") == [True, True]


@pytest.mark.parametrize("value", [b"x\v", b"\fx", b"x\vy", b"x\n y\f ", b"\0"])
def test_fields_that_verifiers_read_differently_are_not_signed(sign: Callable[..., bytes], value: bytes) -> None:
    sent = sign(MAIL.replace(b"hello", b"hello\nSubject:" + value))
    assert ZONE.judge(sent) == [True, True]
    assert sent.count(b"h=from : from : to : to;") == 2
    assert ZONE.judge(sign(MAIL.replace(b"From: Ann", b"From: An\vn"))) == [True, True]


FIELDS = st.sampled_from([b"To: a@b\n", b"Subject: x\n\ty\n", b"Cc:\n", b"List-Id: z\n", b"X-Odd: \xff\n", b"To: c\n"])
BODY = st.lists(st.sampled_from([b" ", b"\t", b"\r", b"\r\n", b"\n", b"x", b".\n", b"\0", b"\xe4", b"From me\n"])).map(
    b"".join
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(FIELDS, max_size=30).map(b"".join), st.sampled_from([b"\n", b"\r\n"]), BODY)
def test_whatever_the_message_its_signatures_are_good(
    sign: Callable[..., bytes], fields: bytes, end: bytes, body: bytes
) -> None:
    message = (b"From: ann@example.org\n" + fields).replace(b"\n", end) + end + body
    assert ZONE.judge(sign(message)) == [True, True]


def test_a_header_without_end_is_not_signed_and_not_sent(sign: Callable[..., bytes]) -> None:
    with pytest.raises(Unsigned) as caught:
        sign(b"From: ann@example.org\n" + b"X: y\n" * (HEADER_MAX // 5))
    assert caught.value.verdict[0] == b"D"
    others = b"From: ann@other.example\n" + b"X: y\n" * (HEADER_MAX // 5)
    assert sign(others) == wire(others)


@pytest.fixture
def message(tmp_path: Path) -> Iterator[Message]:
    path = tmp_path / "message"
    path.write_bytes(MAIL + b"0123456789abcdef \n" * 1_000_000)
    opened = Message(os.open(path, os.O_RDONLY))
    yield opened
    opened.close()


def test_a_message_is_signed_once_for_all_who_ask_at_once_or_later(
    home: Home, tmp_path: Path, message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Message] = []

    def make(asked: Message, keys: list[SigningKey]) -> bytes:
        made.append(asked)
        return make_fields(asked, keys)

    async def sign_all() -> None:
        signing = Signing(read_keyring(home))
        await asyncio.gather(*[signing.sign(message, b"") for _ in range(5)])
        await signing.sign(message, b"")
        assert len(made) == 1
        with (tmp_path / "message").open("ab") as file:
            file.write(b"more")
        await signing.sign(message, b"")
        assert len(made) == 2

    monkeypatch.setattr("queue_remote.message.dkim_signature.make_fields", make)
    asyncio.run(sign_all())


def test_the_event_loop_turns_while_a_message_is_signed(home: Home, message: Message) -> None:
    async def sign_and_turn() -> int:
        turns = 0
        task = asyncio.ensure_future(Signing(read_keyring(home)).sign(message, b""))
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(sign_and_turn()) > 10


@pytest.mark.parametrize(
    ("data", "mode", "fault"),
    [
        (RSA, 0o644, "everybody can use it"),
        (b"rubbish", 0o600, "not a private key"),
        (ZONE.rsa("weak@example.org", 1024)[:-200], 0o600, "not a private key"),
        (None, 0o600, "no such file"),
    ],
)
def test_a_key_that_is_no_good_defers_its_domain_only(
    tmp_path: Path, data: bytes | None, mode: int, fault: str
) -> None:
    made = RemoteHome(tmp_path, dkim="example.org:one:good.pem\nexample.org:two:bad.pem\nexample.net:one:good.pem")
    put_key(tmp_path / "control", "good.pem", RSA)
    if data is not None:
        put_key(tmp_path / "control", "bad.pem", data, mode)
    keyring = read_keyring(Home(str(made.path)))
    with pytest.raises(BadKey, match=fault):
        keyring.find(b"example.org")
    assert [key.selector for key in keyring.find(b"example.net")] == [b"one"]
    with pytest.raises(Unsigned) as caught:
        signed(keyring, tmp_path / "message", MAIL)
    assert caught.value.verdict[0] == b"Z"


def test_small_rsa_keys_are_refused_and_seeds_in_base64_taken(tmp_path: Path) -> None:
    made = RemoteHome(tmp_path, dkim="a.example:one:small.pem\nb.example:one:seed")
    put_key(tmp_path / "control", "seed", b"MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=\n")
    # openssl genrsa 768
    put_key(tmp_path / "control", "small.pem", SMALL)
    keyring = read_keyring(Home(str(made.path)))
    assert "768 bits" in keyring.faults[b"a.example"]
    assert keyring.find(b"b.example")[0].algorithm == b"ed25519-sha256"


SMALL = b"""-----BEGIN RSA PRIVATE KEY-----
MIIBygIBAAJhAKwTBdFpYsEhLPTJHCTldYXBM8BeLrPpXJrB0HuAvPt/uvHh7xGc
UhVmWhTd0RE2dL4AzP16hSX/Xb+lmIgNEOZqYyuNMk+DtqpIlwLT1S60ysPjTWG+
KlP3kFpGOVVUEQIDAQABAmBf2wj2qxpUM8LzacS/2QMqy4Gku9KQboMjwqv84K5l
+7WMYSvoR4iCW037KcX5LLfZmvcgo0KgMeDnuPZ+hVeZa1IuSpz2s9nqgjCSLU92
vJgT+qbYstGcZeNTMYrDabECMQDeB1Fk6BSvryA2uO8nI7grK4cv1b2hfLEfVTu3
Mng8eTPyGxxuVOT/HeaY1HnA+CMCMQDGZwkh2nkwaaUNGsk+1WOffCX+CgIXgz6p
TGrjTeD4ixZaRo8Ao3SggD73hBtDjDsCMFguleA64MRqDKRPTQTBhgr3Tcjs3lT9
/icQphf7no9+H+h/ZgpYA19j08tNUFIY+wIwKFFr86s4EXSGjAEzgEdQ9Wn/Nn7G
Kg0LwM+8sPB0lU1+f13zVYfh/XPSV+5KtBFdAjEAxmHmJoT9OI9leoMWB6AqzC9u
DqcioCseAgfik47KGsClegQF1qxq5QA8q6o6KAey
-----END RSA PRIVATE KEY-----
"""
