"""A message comes out byte for byte as it went in, but for the lines that are added on top of it.

    local    Return-Path, Delivered-To and Received lines, then the message
    remote   a Received line, then the message; SMTP ends every line with CRLF, so a last line without
             its end gets one, and a CR that ends no line becomes a space

queue-inject may also add fields that the header lacks, and completes addresses; what follows the
header is untouched.
"""

import email
import os
import random
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support.processes.suite import Suite, enqueue, inject, program, wait_until
from support.servers.smtp.smtp_server import SmtpServer
from support.site import LOCAL, Site, mail_site
from support.tools import need

pytestmark = pytest.mark.both_ways

MEGABYTE = 1_000_000

HEADER = (
    b"Date: 20 Nov 2026 13:00:00 -0000\nMessage-ID: <1@me.example.org>\nFrom: Joe <joe@me.example.org>\n"
    b"To: somebody@remote.example\nSubject: a test\n\n"
)


def large_body() -> bytes:
    """Return 30 MB of lines that differ, of 8-bit bytes."""
    line = bytes(byte for byte in range(256) if byte not in b"\r\n\0")
    lines = (b"%d %s\n" % (number, line[number % 200 :]) for number in range(30 * MEGABYTE // 100))
    return b"".join(lines)[: 30 * MEGABYTE]


def random_body(seed: int) -> bytes:
    """Return bytes in which line ends, dots, CRs and NULs are frequent."""
    return bytes(random.Random(seed).choices([10, 13, 46, 0, 255, 65], k=5000))


BODIES = {
    "one line": b"hello\n",
    "no final newline": b"hello\nthis is the end",
    "lines of dots": b".\n..\n...\n.x\n\n.\n..\r\n.\n",
    "a dot and nothing else": b".",
    "NULs and 8-bit bytes": bytes(range(256)) * 3 + b"\0\0\n\0\n\xff\xfe\n",
    "bare CRs": b"one\rtwo\r\rthree\r\nfour\r\r\nfive\n\rsix\r",
    "empty lines": b"\n\n\n\n",
    "header-like lines": b"Received: here\nReturn-Path: <there>\nFrom nobody Mon\n>From me\n",
    "random bytes": random_body(1),
    "30 MB": large_body(),
}
BODY = pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())


class Arrived(NamedTuple):
    """What came out: the file in the maildir, and what the remote host was sent between DATA and the dot."""

    local: bytes
    remote: bytes


class Running:
    """A running suite, its site, and the server that takes its remote mail; every test has names of its own."""

    def __init__(self, site: Site, server: SmtpServer) -> None:
        self.site = site
        self.server = server
        self._count = 0

    def addresses(self) -> tuple[str, str]:
        """Return a local and a remote address that nobody has used."""
        self._count += 1
        self._maildir = self.site.user_maildir(f"u{self._count}")
        return f"u{self._count}@{LOCAL}", f"u{self._count}@remote.example"

    def arrived(self) -> Arrived:
        """Return the message to the last addresses, once it has come to both."""
        wait_until(lambda: list((self._maildir / "new").iterdir()), 60, "the local copy")
        [path] = (self._maildir / "new").iterdir()
        [received] = self.server.wait_for(1, 60)
        self.server.received.clear()
        assert received.recipients == [f"u{self._count}@remote.example"]
        return Arrived(path.read_bytes(), received.content)


@pytest.fixture(scope="module")
def running(way: None) -> Iterator[Running]:
    server = SmtpServer()
    with mail_site() as site:
        site.route(server.port)
        with server, Suite(site.home):
            yield Running(site, server)


def on_the_wire(message: bytes) -> bytes:
    """Return what stands below a line on top as SMTP carries it: lines end with CRLF, and no CR is anywhere else."""
    message = re.sub(rb"\r(?!\n)", b" ", message).replace(b"\r\n", b"\n")
    whole = not message or message.endswith(b"\n")
    return message.replace(b"\n", b"\r\n") + (b"" if whole else b"\r\n")


def strip_lines(message: bytes, *names: bytes) -> bytes:
    """Return a message without its first lines, which must be the named fields, each on one line."""
    for name in names:
        line, _, message = message.partition(b"\n")
        assert line.startswith(name + b": "), (name, line)
    return message


def check(arrived: Arrived, message: bytes) -> None:
    """Fail where what came out is not the message, but for the lines on top and the final line end."""
    same(strip_lines(arrived.local, b"Return-Path", b"Delivered-To", b"Received"), message)
    same(strip_lines(arrived.remote, b"Received"), on_the_wire(message))


def same(found: bytes, expected: bytes) -> None:
    """Fail, without a comparison of 30 MB, where two messages differ."""
    if found != expected:
        assert len(found) == len(expected)
        place = next(number for number in range(len(found)) if found[number] != expected[number])
        assert found[place - 20 : place + 20] == expected[place - 20 : place + 20]


@BODY
def test_what_queue_enqueue_is_given_comes_out_byte_for_byte(running: Running, body: bytes) -> None:
    local, remote = running.addresses()
    done = enqueue(running.site.home, b"joe@me.example.org", [local.encode(), remote.encode()], body)
    assert done.returncode == 0, done.stderr
    check(running.arrived(), body)


def test_a_message_of_0_bytes_comes_out_as_the_added_lines_alone(running: Running) -> None:
    local, remote = running.addresses()
    assert enqueue(running.site.home, b"joe@me.example.org", [local.encode(), remote.encode()], b"").returncode == 0
    check(running.arrived(), b"")


@BODY
def test_the_body_that_queue_inject_is_given_comes_out_byte_for_byte(running: Running, body: bytes) -> None:
    local, remote = running.addresses()
    done = inject(running.site.home, "joe@me.example.org", [local, remote], HEADER + body)
    assert done.returncode == 0, done.stderr
    check(running.arrived(), HEADER + body)


def test_a_message_of_0_bytes_gets_a_header_from_queue_inject_and_no_body(running: Running) -> None:
    local, remote = running.addresses()
    assert inject(running.site.home, "joe@me.example.org", [local, remote], b"").returncode == 0
    arrived = running.arrived()
    stored = strip_lines(arrived.local, b"Return-Path", b"Delivered-To", b"Received")
    names = [line.partition(b":")[0] for line in stored.splitlines()]
    assert {b"Date", b"Message-ID", b"From"} <= set(names)
    same(strip_lines(arrived.remote, b"Received"), on_the_wire(stored))


# 8 bits as they are: an encoding would hide what the queue does to them.
@pytest.mark.parametrize("encoding", ["8b", "quoted-printable", "base64"])
def test_a_message_typed_in_s_nail_comes_out_as_s_nail_wrote_it(
    running: Running, tmp_path: Path, encoding: str
) -> None:
    local, remote = running.addresses()
    # Keeps what s-nail hands over on its way into queue-inject.
    words = " ".join(shlex.quote(word) for word in [*program("queue-inject"), "--home", running.site.home.path])
    script = tmp_path / "mta"
    script.write_text(f'#!/bin/sh\ntee {shlex.quote(str(tmp_path / "typed"))} | {words} -a "$@"\n')
    script.chmod(0o755)
    typed = "Dear all,\n.\n..\n.dots\n\nGr\u00fc\u00dfe \u2026\nFrom here on\n"
    subprocess.run(
        [
            need("s-nail"), "-n", "-S", f"mta={script}", "-S", "mta-no-default-arguments", "-S", "ttycharset=utf-8",
            "-S", "sendcharsets=utf-8", "-S", f"mime-encoding={encoding}", "-S", "from=joe@me.example.org",
            "-S", "sendwait", "-s", "typed by hand", local, remote,
        ],
        input=typed.encode(),
        env={**os.environ, "LC_ALL": "C.UTF-8", "HOME": str(tmp_path)},
        check=True,
        timeout=60,
    )
    arrived = running.arrived()
    stored = strip_lines(arrived.local, b"Return-Path", b"Delivered-To", b"Received")
    original = (tmp_path / "typed").read_bytes()
    assert b"Subject: typed by hand\n" in original
    same(body_of(stored), body_of(original))
    # Nothing of the header is lost; address fields may be written differently, in the same words.
    assert [*map(words_of, header_of(original))] == [
        words_of(field) for field in header_of(stored) if words_of(field) in [*map(words_of, header_of(original))]
    ]
    same(strip_lines(arrived.remote, b"Received"), on_the_wire(stored))
    decoded = email.message_from_bytes(stored).get_payload(decode=True)
    assert decoded == typed.encode()


def header_of(message: bytes) -> list[bytes]:
    """Return the fields of a header."""
    return message.partition(b"\n\n")[0].replace(b"\n ", b" ").replace(b"\n\t", b" ").split(b"\n")


def body_of(message: bytes) -> bytes:
    """Return what follows the header."""
    return message.partition(b"\n\n")[2]


def words_of(field: bytes) -> list[bytes]:
    """Return a field's words, however they are spaced."""
    return field.replace(b",", b" ").replace(b"<", b" ").replace(b">", b" ").split()
