"""Delivery into a maildir: names, bytes, order of steps, failures."""

import os
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.errors import Temporary
from queue_local.maildir import deliver_maildir, unique_name
from support.local.mailboxes import new_mail

HEAD = b"Return-Path: <a@b>\nDelivered-To: c@d\n"


@pytest.fixture
def maildir(tmp_path: Path) -> Path:
    for name in ("tmp", "new", "cur"):
        (tmp_path / "Maildir" / name).mkdir(parents=True)
    return tmp_path / "Maildir"


def deliver(maildir: Path, data: bytes) -> None:
    message = maildir.parent / "message"
    message.write_bytes(data)
    with message.open("rb") as file:
        deliver_maildir(f"{maildir}/", HEAD, file.fileno())


def names(maildir: Path) -> list[str]:
    return sorted(str(path.relative_to(maildir)) for path in maildir.rglob("*") if path.is_file())


def test_a_name_has_time_microseconds_pid_counter_and_host() -> None:
    assert unique_name(1700000000_123456789, 42, 7, "mail.example") == "1700000000.M123456P42Q7.mail.example"


@given(st.integers(0, 2**63), st.integers(1, 2**22), st.integers(1), st.text(max_size=64))
def test_a_name_stays_one_file_name_whatever_the_host_is_called(now: int, pid: int, counter: int, host: str) -> None:
    name = unique_name(now, pid, counter, host)
    assert "/" not in name and ":" not in name and not name.startswith(".")
    assert name.split(".", 2)[2].replace("\\057", "/").replace("\\072", ":") == host or "\\0" in host


@given(st.integers(0, 2**60), st.integers(0, 2**60))
def test_names_of_one_process_differ_by_time_or_counter(now: int, later: int) -> None:
    assert unique_name(now, 1, 1, "h") != unique_name(later, 1, 2, "h")


@pytest.mark.parametrize(
    "data",
    [b"", b"no newline", b"\0\0\xff\xfe\0", b".\n..\n.\r\n", b"\n" * 3, b"x" * ((1 << 18) + 1)],
    ids=["empty", "no newline", "NULs", "dots", "newlines", "over one read"],
)
def test_the_message_follows_the_added_lines_byte_for_byte(maildir: Path, data: bytes) -> None:
    deliver(maildir, data)
    assert new_mail(maildir) == [HEAD + data]
    assert len(names(maildir)) == 1


def test_a_message_is_read_from_its_start_for_each_maildir(maildir: Path, tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_bytes(b"once and again")
    with message.open("rb") as file:
        file.read(4)
        deliver_maildir(f"{maildir}/", HEAD, file.fileno())
        deliver_maildir(f"{maildir}/", HEAD, file.fileno())
    assert new_mail(maildir) == [HEAD + b"once and again"] * 2


def test_only_its_owner_may_read_what_is_delivered(maildir: Path) -> None:
    deliver(maildir, b"secret")
    assert [file.stat().st_mode & 0o777 for file in (maildir / "new").iterdir()] == [0o600]


def test_a_missing_maildir_defers_as_in_qmail(tmp_path: Path) -> None:
    with pytest.raises(Temporary, match=r"Unable to chdir to maildir\. \(#4\.2\.1\)"):
        deliver(tmp_path / "Missing", b"x")


@pytest.mark.parametrize("part", ["tmp", "new"])
def test_a_maildir_without_its_parts_defers_and_keeps_nothing(maildir: Path, part: str) -> None:
    (maildir / part).rmdir()
    with pytest.raises(Temporary, match=r"Temporary error on maildir delivery: .*no such file"):
        deliver(maildir, b"x")
    assert names(maildir) == []


def test_a_full_disk_defers_and_leaves_nothing(maildir: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    message = maildir.parent / "message"
    message.write_bytes(b"x" * 500_000)
    with message.open("rb") as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
        try:
            with pytest.raises(Temporary, match="file too large"):
                deliver_maildir(f"{maildir}/", HEAD, file.fileno())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(maildir) == []


def test_a_message_that_cannot_be_read_defers_and_leaves_nothing(maildir: Path, tmp_path: Path) -> None:
    handle = os.open(tmp_path / "write-only", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(Temporary, match="Unable to read message: bad file descriptor"):
        deliver_maildir(f"{maildir}/", HEAD, handle)
    os.close(handle)
    assert names(maildir) == []


@pytest.mark.parametrize("failing", [1, 2])
def test_a_sync_that_fails_leaves_nothing_to_be_repeated(
    maildir: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    synced = []

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        if len(synced) == failing:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(Temporary, match="input/output error"):
        deliver(maildir, b"x")
    assert names(maildir) == []
    assert [Path(path).relative_to(maildir).parts[0] for path in synced] == ["tmp", "new"][:failing]


def test_a_name_that_is_taken_is_never_overwritten_or_removed(
    maildir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queue_local.maildir.unique_name", lambda *parts: "taken")
    (maildir / "tmp/taken").write_bytes(b"somebody's")
    with pytest.raises(Temporary, match="file exists"):
        deliver(maildir, b"x")
    (maildir / "tmp/taken").rename(maildir / "new/taken")
    with pytest.raises(Temporary, match="file exists"):
        deliver(maildir, b"x")
    assert names(maildir) == ["new/taken"]
    assert new_mail(maildir) == [b"somebody's"]
