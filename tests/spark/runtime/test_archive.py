"""The archive of Java's classes: made by Java itself, never trusted from others, never a reason to fail."""

import os
import stat
import time
from pathlib import Path

import pytest

from queue_report.runtime import archive as module
from queue_report.runtime.archive import AGAIN, OLDEST, UNUSED, Archive, use_archive
from queue_report.runtime.java import Java

# As Java does where it is to make an archive of its own classes.
JAVA = """#!/bin/sh
for word do case $word in
    -XX:SharedArchiveFile=*) echo "own" >"${word#*=}" ;;
esac; done
"""
AUTO = "-XX:+AutoCreateSharedArchive"


class Machine:
    """A Java, a directory of jars and a home."""

    def __init__(self, top: Path) -> None:
        top.chmod(0o755)
        self.program = top / "java" / "bin" / "java"
        self.own = top / "java" / "lib" / "server" / "classes.jsa"
        self.jars = top / "jars"
        self.home = top / "home"
        for directory in (self.program.parent, self.own.parent, self.jars, self.home):
            directory.mkdir(parents=True)
        self.program.write_text(JAVA)
        self.program.chmod(0o755)
        (top / "java" / "lib" / "modules").write_text("modules")
        self.own.write_text("own")
        self.environment = {"HOME": str(self.home)}

    def start(self, make: bool = True, release: int = OLDEST, **more: str) -> Archive:
        return use_archive(Java(str(self.program), release), str(self.jars), self.environment | more, make)

    def made(self) -> Path:
        """Start a Java that makes the archive, as it does when it ends; return its path."""
        started = self.start()
        assert started.makes
        path = Path(started.options[0].partition("=")[2].rpartition(":")[2])
        path.touch(0o600)
        return path


def a_while_later(path: Path, seconds: float) -> None:
    old = time.time() - seconds - 1
    os.utime(path, (old, old))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_java_makes_the_archive_and_later_ones_start_from_it(machine: Machine) -> None:
    path = machine.made()
    assert path.parent == machine.home / ".cache" / "queue-report"
    again = machine.start()
    assert again == machine.start(make=False) == Archive((f"-XX:SharedArchiveFile={path}", AUTO), (), makes=False)


def test_a_java_that_makes_none_by_itself_has_none(machine: Machine) -> None:
    assert machine.start(release=OLDEST - 1) == Archive()


def test_who_may_make_none_makes_none(machine: Machine) -> None:
    assert machine.start(make=False) == Archive()
    assert machine.start().makes


def test_a_java_that_does_not_make_it_is_not_asked_again_at_once(machine: Machine) -> None:
    assert machine.start().makes
    assert machine.start() == Archive()
    (mark,) = (machine.home / ".cache" / "queue-report").iterdir()
    a_while_later(mark, AGAIN)
    assert machine.start().makes


def test_another_java_or_other_jars_in_the_same_place_have_another_archive(machine: Machine) -> None:
    names = {machine.made()}
    a_while_later(machine.jars, 100)
    names.add(machine.made())
    a_while_later(machine.program.parent.parent / "lib" / "modules", 100)
    names.add(machine.made())
    assert len(names) == 3


def test_a_java_without_an_archive_of_its_own_classes_gets_one_first(machine: Machine) -> None:
    machine.own.unlink()
    path = machine.made()
    started = machine.start()
    (small,) = started.small
    own = Path(small.partition("=")[2])
    assert own.read_text() == "own\n" and stat.S_IMODE(own.stat().st_mode) == 0o600
    assert started.options == (f"-XX:SharedArchiveFile={own}:{path}", AUTO)


def test_a_java_that_cannot_make_it_is_no_trouble(machine: Machine) -> None:
    machine.own.unlink()
    machine.program.write_text("#!/bin/sh\nexit 1\n")
    assert machine.start() == Archive()


def test_a_full_disk_is_not_filled_further(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROOM", 1 << 62)
    assert machine.start() == Archive()


@pytest.mark.parametrize("call", ["mkdir", "utime", "statvfs"])
def test_a_directory_that_cannot_be_written_is_no_trouble(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(path: str, *words: object, **more: object) -> None:
        raise OSError(30, "read-only file system", path)

    if call == "utime":
        machine.made()
    monkeypatch.setattr(os, call, fail)
    assert machine.start() == Archive()


def test_what_is_not_there_is_no_trouble(machine: Machine) -> None:
    machine.jars.rmdir()
    assert machine.start() == Archive()


def test_an_archive_that_nobody_used_for_a_month_is_removed_when_another_is_made(machine: Machine) -> None:
    before = machine.made()
    a_while_later(machine.jars, 100)
    assert machine.made() and before.exists()
    a_while_later(before, UNUSED)
    a_while_later(machine.jars, 200)
    assert machine.made() and not before.exists()


def test_an_archive_that_is_used_stays(machine: Machine) -> None:
    path = machine.made()
    a_while_later(path, UNUSED)
    machine.start()
    assert path.stat().st_mtime > time.time() - 100


def test_the_cache_directory_is_where_xdg_says_or_in_the_home(machine: Machine, tmp_path: Path) -> None:
    started = machine.start(XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert f"={tmp_path}/cache/queue-report/spark-" in started.options[0]
    assert stat.S_IMODE((tmp_path / "cache" / "queue-report").stat().st_mode) == 0o700
    assert machine.start(XDG_CACHE_HOME="relative", HOME="") == machine.start(HOME="") == Archive()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_directory_that_others_can_write_to_has_no_archive(machine: Machine, mode: int) -> None:
    directory = machine.home / ".cache" / "queue-report"
    directory.mkdir(parents=True)
    directory.chmod(mode)
    assert machine.start() == Archive() and not list(directory.iterdir())


def test_a_directory_above_that_others_can_write_to_has_none_either(machine: Machine) -> None:
    machine.home.chmod(0o777)
    assert machine.start() == Archive()
    # Of such a one they cannot take what is not theirs.
    machine.home.chmod(0o1777)
    assert machine.start().makes


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_an_archive_or_a_home_of_another_user_is_not_trusted(machine: Machine) -> None:
    os.chown(machine.made(), 1, 1)
    assert machine.start() == Archive()
    os.chown(machine.home, 1, 1)
    assert machine.start() == machine.start(HOME=str(machine.home / "new")) == Archive()
    assert not (machine.home / "new").exists()


def test_an_archive_that_others_can_write_to_or_a_link_is_not_trusted(machine: Machine, tmp_path: Path) -> None:
    path = machine.made()
    path.chmod(0o666)
    path.parent.chmod(0o755)
    assert machine.start() == Archive()
    path.chmod(0o600)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert machine.start() == Archive()


def test_an_archive_that_java_made_writable_for_its_group_is_ours_where_nobody_else_can_come(machine: Machine) -> None:
    path = machine.made()
    path.chmod(0o664)
    assert machine.start().options and path.stat().st_mode & 0o777 == 0o600


def test_a_path_that_spark_would_split_has_no_archive(machine: Machine, tmp_path: Path) -> None:
    assert machine.start(XDG_CACHE_HOME=str(tmp_path / "my cache")) == Archive()
