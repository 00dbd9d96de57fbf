"""What a program in a .qmail file finds in its environment (qmail-command(8))."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.daemon.processes import program_path
from queue_local.environment import Site, make_environment
from queue_local.headers import HeaderLines
from queue_local.local_delivery import deliver_as
from queue_wire.dotqmail import default_part, qmail_names
from queue_wire.mailbox import Account, Mailbox
from support.local.deliveries import run
from support.local.mailboxes import UID, MailHome

LINES = HeaderLines(b"From f@g date\n", b"Return-Path: <f@g>\n", b"Delivered-To: joe@h\n")
ALWAYS = {
    "SENDER", "NEWSENDER", "RECIPIENT", "LOCAL", "HOST", "HOST2", "HOST3", "HOST4", "USER", "LOGNAME", "HOME", "SHELL",
    "PATH", "QUEUE_HOME", "RPLINE", "DTLINE", "UFLINE", "EXT", "EXT2", "EXT3", "EXT4",
}  # fmt: skip


def made(extension: bytes = b"", host: bytes = b"h", default: bytes | None = None) -> dict[str, bytes]:
    """Return the environment of a delivery to joe."""
    mailbox = Mailbox(Account("joe", 7, 8, "/home/joe"), b"-", extension)
    site = Site("/var/queue", "/opt/queue/bin")
    found = make_environment(site, mailbox, b"f@g", b"o@g", (b"joe-" + extension, host), default, LINES)
    return {name.decode(): value for name, value in found.items()}


def test_it_says_who_and_where_and_has_the_lines_with_their_newlines() -> None:
    found = made(b"x", b"host.example", b"y")
    assert set(found) == ALWAYS | {"DEFAULT"}
    assert {name: found[name] for name in found if not name[-1].isdigit()} == {
        "SENDER": b"f@g",
        "NEWSENDER": b"o@g",
        "RECIPIENT": b"joe-x@host.example",
        "LOCAL": b"joe-x",
        "HOST": b"host.example",
        "USER": b"joe",
        "LOGNAME": b"joe",
        "HOME": b"/home/joe",
        "SHELL": b"/bin/sh",
        "PATH": b"/usr/local/bin:/usr/bin:/bin:/opt/queue/bin",
        "QUEUE_HOME": b"/var/queue",
        "RPLINE": b"Return-Path: <f@g>\n",
        "DTLINE": b"Delivered-To: joe@h\n",
        "UFLINE": b"From f@g date\n",
        "EXT": b"x",
        "DEFAULT": b"y",
    }


@pytest.mark.parametrize(
    ("extension", "parts"),
    [
        (b"", [b"", b"", b"", b""]),
        (b"A", [b"A", b"", b"", b""]),
        (b"a-b", [b"a-b", b"b", b"", b""]),
        (b"a-b-C-d-e", [b"a-b-C-d-e", b"b-C-d-e", b"C-d-e", b"d-e"]),
        (b"-", [b"-", b"", b"", b""]),
        (b"--x", [b"--x", b"-x", b"x", b""]),
    ],
)
def test_each_ext_is_what_follows_one_more_dash(extension: bytes, parts: list[bytes]) -> None:
    found = made(extension)
    assert [found[name] for name in ("EXT", "EXT2", "EXT3", "EXT4")] == parts


@pytest.mark.parametrize(
    ("host", "parts"),
    [
        (b"h", [b"h", b"h", b"h", b"h"]),
        (b"a.b.c.d.e", [b"a.b.c.d.e", b"a.b.c.d", b"a.b.c", b"a.b"]),
        (b"a.b", [b"a.b", b"a", b"a", b"a"]),
        (b"", [b"", b"", b"", b""]),
        (b".x", [b".x", b"", b"", b""]),
    ],
)
def test_each_host_is_what_comes_before_one_more_dot(host: bytes, parts: list[bytes]) -> None:
    found = made(host=host)
    assert [found[name] for name in ("HOST", "HOST2", "HOST3", "HOST4")] == parts


@pytest.mark.parametrize(
    ("extension", "name", "default"),
    [
        (b"a-B", b".qmail-a-b", None),
        (b"a-B", b".qmail-a-default", b"B"),
        (b"a-B", b".qmail-default", b"a-B"),
        (b"A.b-C", b".qmail-a:b-default", b"C"),
        (b"", b".qmail-", None),
        (b"", b".qmail-default", b""),
        (b"Default", b".qmail-default", b"Default"),
        (b"a-default", b".qmail-a-default", b"default"),
        (b"xdefault", b".qmail-xdefault", b"default"),
    ],
)
def test_default_is_what_the_word_stands_for_in_the_file_s_name(
    extension: bytes, name: bytes, default: bytes | None
) -> None:
    assert name in qmail_names(b"-", extension)
    assert default_part(b"-", extension, name) == default
    assert made(extension, default=default).get("DEFAULT") == default


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_any_address_makes_an_environment(extension: bytes, host: bytes) -> None:
    found = made(extension, host)
    assert found["EXT"] == extension and extension.endswith(found["EXT4"]) and host.startswith(found["HOST4"])
    for name in qmail_names(b"-", extension)[1:]:
        assert extension.endswith(default_part(b"-", extension, name) or b"")


def test_a_program_has_this_environment_and_nothing_of_ours(
    mail: MailHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of the administrator")
    mail.qmail(".qmail-a-default", b"|env -0 >seen; pwd >where; umask >mask; ls /proc/self/fd | wc -l >open\n")
    mailbox = Mailbox(Account("joe", UID, UID, str(mail.alias)), b"-", b"a-$(touch pwned)")
    recipient = b"joe-a-$(touch pwned)@host.example"
    path = mail.path / "queue" / mail.message(b"Subject: x\n\n").decode()

    def work(message: int) -> str:
        return deliver_as(mail.home, mailbox, b"f g@far", recipient, message, b"#\n").text

    assert run(work, path) == (b"K", b"did 0+0+1\n")
    seen = dict(line.split(b"=", 1) for line in (mail.alias / "seen").read_bytes().split(b"\0") if line)
    # What sh adds by itself.
    names = {os.fsdecode(name) for name in seen} - {"PWD", "OLDPWD", "SHLVL", "_"}
    assert names == ALWAYS | {"DEFAULT"}
    assert seen[b"DEFAULT"] == b"$(touch pwned)" and seen[b"LOCAL"] == b"joe-a-$(touch pwned)"
    assert seen[b"RPLINE"] == b'Return-Path: <"f g"@far>\n' and seen[b"DTLINE"] == b"Delivered-To: %s\n" % recipient
    assert seen[b"UFLINE"].startswith(b"From f-g@far ") and seen[b"QUEUE_HOME"] == mail.home.path.encode()
    # Last: a virtual environment's python3 is not the one that a user's program means.
    own = os.fsencode(Path(program_path("queue-local")).parent)
    assert seen[b"PATH"].split(b":") == [b"/usr/local/bin", b"/usr/bin", b"/bin", own]
    assert not (mail.alias / "pwned").exists()
    assert (mail.alias / "where").read_text() == f"{mail.alias}\n"
    # fd 0 to 2, and that of ls itself.
    assert (mail.alias / "mask").read_text() == "0077\n" and (mail.alias / "open").read_text().strip() == "4"
