"""control/locallimits: what a delivery may use."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.errors import Temporary
from queue_local import config
from queue_local.config import DeliveryFiles, apply_limits
from queue_wire.control.locallimits import DEFAULT_LIMITS, unpack_local_limits
from queue_wire.format_error import FormatError
from support.local.deliveries import run
from support.local.local_daemon import LocalDaemon
from support.local.mailboxes import UID, MailHome, mail_home, new_mail

KINDS = ("AS", "CPU", "NPROC", "NOFILE", "FSIZE", "CORE")


@pytest.fixture
def mail() -> Iterator[MailHome]:
    with mail_home() as made:
        made.qmail(".qmail-default", b"./Maildir/\n")
        yield made


def limits(mail: MailHome) -> dict[str, tuple[int, int]]:
    """Return the soft and hard limits of a delivery."""

    def work(message: int) -> str:
        apply_limits(DeliveryFiles(mail.home).read().limits)
        return repr({kind: resource.getrlimit(getattr(resource, f"RLIMIT_{kind}")) for kind in KINDS})

    letter, text = run(work, mail.path / "control/me")
    assert letter == b"K", text
    found: dict[str, tuple[int, int]] = eval(text)
    return found


def test_without_the_file_there_is_no_core_and_1024_files_and_the_rest_is_inherited(mail: MailHome) -> None:
    found = limits(mail)
    assert (found["CORE"], found["NOFILE"]) == ((0, 0), (1024, 1024))
    for kind in ("AS", "CPU", "NPROC", "FSIZE"):
        assert found[kind] == resource.getrlimit(getattr(resource, f"RLIMIT_{kind}"))


def test_each_line_sets_a_limit_for_good(mail: MailHome) -> None:
    text = "# ours\nmemory 2G\ncpu 600\nprocesses 200\nfiles 64\nsize  1G\ncore 1M\n"
    Path(mail.home.control, "locallimits").write_text(text)
    values = (2 << 30, 600, 200, 64, 1 << 30, 1 << 20)
    assert limits(mail) == {kind: (value, value) for kind, value in zip(KINDS, values, strict=True)}


def test_who_may_not_raise_a_limit_gets_what_he_has(mail: MailHome) -> None:
    Path(mail.home.control, "locallimits").write_text("files 4096\ncpu unlimited\n")

    def work(message: int) -> str:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
        resource.setrlimit(resource.RLIMIT_CPU, (300, 300))
        if not os.geteuid():
            os.setuid(UID)
        apply_limits(DeliveryFiles(mail.home).read().limits)
        return f"{resource.getrlimit(resource.RLIMIT_NOFILE)} {resource.getrlimit(resource.RLIMIT_CPU)}"

    assert run(work, mail.path / "control/me") == (b"K", b"(200, 200) (300, 300)\n")


@pytest.mark.parametrize("line", [b"memory", b"memory lots", b"disk 5", b"cpu -1", b"files 10 20", b"\xff 1"])
def test_a_line_that_makes_no_sense_is_quoted(mail: MailHome, line: bytes) -> None:
    Path(mail.home.control, "locallimits").write_bytes(b"core 0\n" + line + b"\n")
    with pytest.raises(Temporary, match=r"unable to parse .*/locallimits line 2: not (a limit|one of .*): '"):
        apply_limits(DeliveryFiles(mail.home).read().limits)


def test_a_mistake_that_comes_later_leaves_the_old_values_in_force(
    mail: MailHome, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "ALERTS_APART", 0)
    files = DeliveryFiles(mail.home)
    Path(mail.home.control, "locallimits").write_text("files 64\n")
    assert files.read().limits["files"] == 64
    Path(mail.home.control, "localtimeout").write_text("0\n")
    Path(mail.home.control, "locallimits").write_text("files 32\n")
    assert files.read()[:3] == (1200, b"./Maildir/\n", {"files": 64, "core": 0})
    assert "localtimeout line 1: not a number from 1 to 86400: '0'; the old values stay" in capfd.readouterr().err
    Path(mail.home.control, "localtimeout").write_text("60\n")
    assert files.read()[:3] == (60, b"./Maildir/\n", {"files": 32, "core": 0})
    assert capfd.readouterr().err.splitlines() == [
        "queue-local: config locallimits 1 line, changed",
        "queue-local: config localtimeout 60, was default",
    ]


def test_mail_over_the_size_is_deferred_and_leaves_nothing_behind(mail: MailHome) -> None:
    maildir = mail.maildir()
    Path(mail.home.control, "locallimits").write_text("size 10K\n")
    with LocalDaemon(mail.home) as daemon:
        daemon.ready()
        letter, text = daemon.verdict(1, mail.message(b"x" * 20_000), b"info@host.example")
        assert letter == b"Z" and b"file too large" in text.lower(), text
        assert daemon.verdict(2, mail.message(b"x" * 5_000), b"info@host.example")[0] == b"K"
    assert len(new_mail(maildir)) == 1 and list((maildir / "tmp").iterdir()) == []


@given(st.binary(max_size=60))
def test_any_bytes_are_limits_or_a_format_error(data: bytes) -> None:
    try:
        found = unpack_local_limits(data)
    except FormatError:
        return
    assert all(value is None or value >= 0 for value in found.values()) and found.keys() >= DEFAULT_LIMITS.keys()
