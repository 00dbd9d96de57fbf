"""Whatever the message, three programs that are none of ours find our signatures and seals good."""

import os
from collections.abc import Iterator
from pathlib import Path

import dkim
import pytest

from queue_base.home import Home
from queue_base.queue.writer import received_line
from queue_local.headers import delivered_to
from queue_remote.message.arc_key import read_arc_key
from queue_remote.message.arc_seal import make_seal, plan_seal
from queue_remote.message.dkim_keys import read_keyring
from queue_remote.message.dkim_signature import make_fields
from queue_remote.message.file import Message
from queue_smtpd.sessions.client_facts import ClientFacts
from queue_smtpd.sessions.received_line import pack_received
from support.processes.remote_daemon import RemoteHome
from support.servers.dkim_keys import DkimZone, put_key, wire
from support.servers.dkim_verifiers import judge_by_opendkim, judge_by_perl

ZONE = DkimZone()
RSA = ZONE.rsa("one@example.org")
ED25519 = ZONE.ed25519("two@example.org")
THEIRS = ZONE.rsa("three@list.example")

FROM = b"From: Ann <ann@example.org>\n"
# What stands in Subject, and behind the address in From. All of it is legal in SMTP.
VALUES = (
    *(b"", b" ", b" \t ", b"x", b" x ", b"\tx\t"),
    *(b"a  b\t\tc", b"a\n b", b"a\n\tb\n  c", b"a \n b", b"\n a", b"\n a\n b"),
    *(b"a\rb", b"a\r", b"a\x7f", b"a\x01b", b"\x1ca", b"a\x1c"),
    *(b"a\x1f ", b"\x85x", b"x\x85", b"\xa0x", b"x\xa0", b"\xff\xfe"),
    *(b"x\xc2\xa0", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"x" * 2000, b"x " * 900),
    *(b": x :", b"a;b=c;", b"b=", b" b=; bh=", b"=?x?"),
    *(b"x\v", b"x\f", b"\vx", b"\f x", b"x\vy", b"x \f "),
    *(b"\v", b"a\n \vb", b"a\v\n b", b"\\", b"%s", b"\xc3\xa9" * 200),
)
BODIES = (
    *(b"", b"\n", b"\n\n\n", b"  \n", b" ", b"\t\n \n"),
    *(b"a \t b\t\n\n", b"\v\n\f", b"x\f", b"a\rb\r\n\r", b"\r", b"abc", b"abc  "),
    *(b".\n", b"..\n.", b"From x\n", b"x" * 5000, b"x" + b"\n" * 2000),
    *(b"\n\n\nx", b" x\n  y", bytes(range(1, 256)), b"\xe4" * 999),
    *(b"x \n" * 5000, b"\t" * 5000, b"x\r\ny\nz\r\n", b"--b\n\nx\n--b--", b"\x1a", b" \n\n \n", b"\xa0\n\x85\n"),
)
HEADERS = (
    *(FROM, FROM + FROM, b"Subject: a\n" + FROM + b"Subject: b\n", FROM + b"To: x\n" * 40, FROM + b"X:\n" * 500),
    *(b"fRoM: ann@example.org\nSUBJECT: x\n", b"From:ann@example.org\n", b"From:\n ann@example.org\n"),
    *(FROM + b"X-Odd: \v\n", FROM + b"!#$%: x\n", FROM + b"Comments: x\n", FROM + b"List-Id: a\nList-Id: b\n"),
    *(b'From: "a;b" <ann@example.org>\n', b"From: (x\\)y) ann@example.org (c)\n", b"From: a: ann@example.org;\n"),
    *(b"Received: x\n" * 30 + FROM, b"Return-Path: <>\n" + FROM, FROM + b"Content-Type: text/plain;\n\tcharset=x\n"),
    *(b"Resent-From: b@c\nResent-From: d@e\n" + FROM, FROM + b"Cc:\nCc: \n", FROM + b"Reply-To: \xff\nReply-To:\n"),
)
MESSAGES = (
    *(FROM + b"Subject:" + value + b"\n\nbody\n" for value in VALUES),
    *(b"From: <ann@example.org>" + value + b"\nTo: b@c\n\nbody\n" for value in VALUES if not set(value) & set(b"\v\f")),
    *(b"Cc:" + value + b"\n" + FROM + b"To: b@c\nCc:" + value + b"\n\nx" for value in VALUES),
    *(FROM + b"\n" + body for body in BODIES),
    *(header + b"\n\nx\n" for header in HEADERS),
    *((header + b"\nx\n").replace(b"\n", b"\r\n") for header in HEADERS),
    *(header for header in HEADERS),
)


def opened(path: Path, stored: bytes) -> Iterator[Message]:
    path.write_bytes(stored)
    message = Message(os.open(path, os.O_RDONLY))
    yield message
    message.close()


@pytest.mark.exhaustive
def test_signatures_are_good_for_three_other_programs(tmp_path: Path) -> None:
    home = RemoteHome(tmp_path, dkim="example.org:one:rsa.pem\nexample.org:two:ed.pem")
    put_key(tmp_path / "control", "rsa.pem", RSA)
    put_key(tmp_path / "control", "ed.pem", ED25519)
    keys = read_keyring(Home(str(home.path))).find(b"example.org")
    files = []
    for number, stored in enumerate(MESSAGES):
        for message in opened(tmp_path / "stored", stored):
            files.append(tmp_path / f"message{number}")
            files[-1].write_bytes(wire(make_fields(message, keys) + stored))
    perl = judge_by_perl(files, ZONE.records, tmp_path)
    opendkim = judge_by_opendkim(files, ZONE.records, tmp_path)
    for stored, file, one, two in zip(MESSAGES, files, perl, opendkim, strict=True):
        # Mail::DKIM before 1.20230630 knows no Ed25519.
        assert one in ("pass pass arc=none", "pass invalid arc=none"), stored
        assert two == "pass pass", stored
        assert ZONE.judge(file.read_bytes()) == [True, True], stored


@pytest.mark.exhaustive
@pytest.mark.parametrize("instance", [1, 2])
def test_seals_are_good_for_two_other_programs(tmp_path: Path, instance: int) -> None:
    home = RemoteHome(tmp_path, arc="client.example:one:arc.pem")
    put_key(tmp_path / "control", "arc.pem", ZONE.rsa("one@client.example"))
    arc = read_arc_key(Home(str(home.path)), b"client.example")
    assert arc.key is not None
    client = ClientFacts("192.0.2.1", name=b"mx.example.net", hello=b"mx.example.net", esmtp=True)
    ahead = received_line(8123, 1000, 1795000001) + delivered_to(b"joe@client.example")
    ahead += pack_received(client, b"client.example", 1795000000).replace(b"\0", b"4711")
    ahead += b"Authentication-Results: client.example; dkim=pass (ok; good) header.d=example.net;\n\tspf=pass\n"
    files, sealed = [], []
    for number, odd in enumerate(MESSAGES):
        results = b"Authentication-Results: list.example; spf=pass\r\n"
        made: list[bytes] = []
        if instance == 2:
            made = dkim.arc_sign(results + wire(odd), b"three", b"list.example", THEIRS, b"list.example")
        stored = ahead + b"".join(made).replace(b"\r\n", b"\n") + odd
        for message in opened(tmp_path / "stored", stored):
            plan = plan_seal(message, frozenset((b"client.example",)), arc.key, arc.authserv)
            assert plan is not None
            records = {name: ZONE.lookup(name + b".") or b"" for name in plan.names}
            files.append(tmp_path / f"message{number}")
            sealed.append(wire(make_seal(plan, message, message, records, arc.key, arc.authserv) + stored))
            files[-1].write_bytes(sealed[-1])
    for odd, text, one in zip(MESSAGES, sealed, judge_by_perl(files, ZONE.records, tmp_path), strict=True):
        status, sets, _ = dkim.arc_verify(text, dnsfunc=ZONE.lookup)
        assert (status, len(sets)) == (b"pass", instance), odd
        assert one.endswith("arc=pass"), odd
