"""Paths that lead through directories of other accounts: root follows only links that root has made."""

import os
from pathlib import Path

import pytest

from queue_base.safe_open import UnsafePath, open_given, resolve_given
from support.queues.others import ACCOUNT, STRANGER

JOE, ANN = ACCOUNT, STRANGER


@pytest.fixture
def joes(place: Path) -> Path:
    path = place / "joe"
    path.mkdir()
    os.chown(path, JOE, JOE)
    return path


def content(path: Path | str) -> bytes:
    handle = open_given(str(path))
    try:
        return os.read(handle, 1000)
    finally:
        os.close(handle)


def make(path: Path, mode: int, owner: int = 0) -> Path:
    path.write_bytes(b"text")
    path.chmod(mode)
    os.chown(path, owner, owner)
    return path


def link(path: Path, target: Path | str, owner: int = 0) -> Path:
    path.symlink_to(target)
    os.chown(path, owner, owner, follow_symlinks=False)
    return path


def test_links_of_root_are_followed_wherever_they_lead(place: Path) -> None:
    (place / "a/b").mkdir(parents=True)
    file = make(place / "a/b/file", 0o600)
    link(place / "last", "a/../a/./b//file")
    link(place / "up", f"{place}/a/b/..")
    link(place / "twice", "up/b/")
    for path in (place / "last", place / "up/b/file", place / "twice/file", f"//{place}/up/../last"):
        assert content(path) == b"text"
        assert resolve_given(str(path)) == str(file)
    assert resolve_given(str(place / "up/none")) == str(place / "a/none")
    assert resolve_given("/") == "/" and resolve_given(f"{place}/up/..") == str(place)
    os.close(open_given("/", os.O_RDONLY | os.O_DIRECTORY))
    assert content(f"/proc/{os.getpid()}/root{place}/last") == b"text"


def test_a_link_in_a_directory_of_another_account_is_refused_last_and_on_the_way(place: Path, joes: Path) -> None:
    secret = make(place / "secret", 0o600)
    for name in (link(joes / "x", secret, JOE), link(joes / "d", place, JOE) / "secret", link(place / "l", "joe/x")):
        with pytest.raises(UnsafePath, match="is a symbolic link"):
            content(name)
        with pytest.raises(UnsafePath, match="is a symbolic link"):
            resolve_given(str(name))


def test_where_others_may_write_only_links_of_root_are_followed(place: Path) -> None:
    everybodys = place / "tmp"
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    make(place / "file", 0o600)
    assert content(link(everybodys / "ours", "../file")) == b"text"
    with pytest.raises(UnsafePath, match="theirs is a symbolic link"):
        content(link(everybodys / "theirs", "../file", JOE))


def test_another_name_of_somebodys_file_is_refused_unless_everybody_may_read_it(place: Path, joes: Path) -> None:
    for owner in (0, ANN):
        os.link(make(place / f"of{owner}", 0o600, owner), joes / f"name{owner}")
        with pytest.raises(UnsafePath, match=f"it belongs to uid {owner}, its directory to uid {JOE}"):
            content(joes / f"name{owner}")
    assert content(make(joes / "own", 0o600, JOE)) == b"text"
    assert content(make(joes / "public", 0o644, ANN)) == b"text"
    os.mkfifo(joes / "fifo")
    os.close(open_given(str(joes / "fifo")))  # The caller has to check what it is.


def test_another_name_of_somebodys_file_is_not_opened_for_writing_though_everybody_may_read_it(
    place: Path, joes: Path
) -> None:
    os.link(make(place / "public", 0o644), joes / "name")
    with pytest.raises(UnsafePath, match=f"it belongs to uid 0, its directory to uid {JOE}"):
        open_given(str(joes / "name"), os.O_RDWR)
    for _ in range(2):  # What root has made there itself.
        os.close(open_given(str(joes / "lock"), os.O_RDWR | os.O_CREAT, 0o600))


def test_links_that_lead_round_in_circles_end(place: Path) -> None:
    link(place / "a", "b")
    link(place / "b", "a/x")
    with pytest.raises(OSError, match="Too many levels"):
        content(place / "a")
    with pytest.raises(FileNotFoundError):
        content(link(place / "broken", "nothing"))


def test_every_descriptor_is_closed(place: Path, joes: Path) -> None:
    link(joes / "x", "/etc/shadow", JOE)
    link(place / "up", f"{place}/joe/..")
    before = len(os.listdir("/proc/self/fd"))
    for path in ("x", "none/x", "none"):
        with pytest.raises(OSError, match=r"symbolic|No such"):
            content(joes / path)
    resolve_given(str(place / "up/joe/y"))
    assert len(os.listdir("/proc/self/fd")) == before
