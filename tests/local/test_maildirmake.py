"""maildirmake makes a maildir as qmail's does: for its user alone, completely or not at all."""

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.errors import Temporary
from queue_local.maildir import deliver_maildir
from queue_local.maildirmake import main, make_maildir
from support.processes.suite import program


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Restore the umask, which main sets."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(maildir: Path) -> dict[str, int]:
    """Return the modes of a maildir and of what is in it."""
    return {str(path.relative_to(maildir)): stat.S_IMODE(path.stat().st_mode) for path in [maildir, *maildir.iterdir()]}


def test_a_maildir_has_tmp_new_and_cur_for_its_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    done = subprocess.run([*program("maildirmake"), "Mail dir/"], cwd=tmp_path, umask=0, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert modes(tmp_path / "Mail dir") == {".": 0o700, "tmp": 0o700, "new": 0o700, "cur": 0o700}


def test_mail_can_be_delivered_into_it(tmp_path: Path) -> None:
    make_maildir(f"{tmp_path}/Maildir")
    (tmp_path / "message").write_bytes(b"Subject: first\n\n")
    with (tmp_path / "message").open("rb") as message:
        deliver_maildir(f"{tmp_path}/Maildir/", b"", message.fileno())
    assert len(os.listdir(tmp_path / "Maildir/new")) == 1


@pytest.mark.parametrize("kind", ["maildir", "empty directory", "file"])
def test_what_exists_is_refused_and_left_as_it_is(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "Maildir"
    if kind == "file":
        path.write_text("mine")
    elif kind == "maildir":
        make_maildir(str(path))
    else:
        path.mkdir()
    before = modes(path) if path.is_dir() else path.read_text()
    assert main(["maildirmake", str(path)]) == 111
    assert capfd.readouterr().err == f"maildirmake: fatal: unable to mkdir {path}: file exists\n"
    assert before == (modes(path) if path.is_dir() else path.read_text())


def test_a_parent_that_is_missing_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["maildirmake", f"{tmp_path}/no/Maildir"]) == 111
    assert capfd.readouterr().err.endswith("no/Maildir: no such file or directory\n")


def test_a_maildir_that_cannot_be_completed_is_removed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = os.mkdir

    def full(path: str, mode: int) -> None:
        if path.endswith("/cur"):
            raise OSError(28, "No space left on device")
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(Temporary, match=r"unable to mkdir .*/Maildir/cur: no space left on device"):
        make_maildir(f"{tmp_path}/Maildir")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("words", [[], ["a", "b"], [""], ["-x"]])
def test_wrong_usage_is_100_and_makes_nothing(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["maildirmake", *words]) == 100
    assert os.listdir(tmp_path) == []
