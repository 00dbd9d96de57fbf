"""The archive of Java's classes: made once, by one process; never trusted from others, never a reason to fail."""

import os
import stat
import time
from pathlib import Path

import pytest

from spark.runtime import archive as module
from spark.runtime.archive import AGAIN, UNUSED, Archive, Start, find_archive, start_with
from support.processes.suite import wait_until

# As Java does where it is to make an archive of its own classes.
JAVA = """#!/bin/sh
for word do case $word in
    -XX:SharedArchiveFile=*) echo "own" >"${word#*=}" ;;
esac; done
"""
QUIET = ("-Xshare:auto", "-Xlog:cds*=off")


class Machine:
    """A Java, a directory of jars and a home."""

    def __init__(self, top: Path) -> None:
        top.chmod(0o755)
        self.java = top / "java" / "bin" / "java"
        self.own = top / "java" / "lib" / "server" / "classes.jsa"
        self.jars = top / "jars"
        self.home = top / "home"
        for directory in (self.java.parent, self.own.parent, self.jars, self.home):
            directory.mkdir(parents=True)
        self.java.write_text(JAVA)
        self.java.chmod(0o755)
        self.own.write_text("own")
        (self.jars / "spark-core.jar").write_text("jar")
        self.environment = {"HOME": str(self.home)}

    def find(self, **more: str) -> Archive | None:
        return find_archive(str(self.java), str(self.jars), self.environment | more)

    def archive(self) -> Archive:
        found = self.find()
        assert found is not None
        return found

    def run(self, written: bytes | None = b"\xf0archive", make: bool = True) -> Start:
        """Run a Java that writes an archive if it is told to, or part of one; None: it is killed before."""
        start = start_with(self.archive(), make)
        if start.lock is not None:
            if written is not None:
                new = next(word for word in start.options if word.startswith("-XX:ArchiveClassesAtExit="))
                Path(new.partition("=")[2]).write_bytes(written)
            os.close(start.lock)
        return start


def a_while_later(path: str, seconds: float) -> None:
    old = time.time() - seconds - 1
    os.utime(path, (old, old))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def files(machine: Machine) -> list[str]:
    return sorted(path.name.partition(".")[2] for path in (machine.home / ".cache" / "queue-report").iterdir())


def test_the_first_java_writes_the_archive_and_the_next_one_starts_from_it(machine: Machine) -> None:
    archive = machine.archive()
    first = machine.run()
    assert first.makes and first.options == (f"-XX:ArchiveClassesAtExit={archive.all}.new", *QUIET)
    second = machine.run()
    assert not second.makes and second.options == (f"-XX:SharedArchiveFile={archive.all}", *QUIET)
    assert machine.run(make=False) == second
    assert files(machine) == ["jsa", "jsa.tried", "lock"] and stat.S_IMODE(os.stat(archive.all).st_mode) == 0o600


def test_who_only_uses_one_makes_none(machine: Machine) -> None:
    assert machine.run(make=False) == Start() and files(machine) == []


def test_another_java_or_another_jar_has_another_archive(machine: Machine) -> None:
    names = [machine.archive()]
    (machine.jars / "spark-core.jar").write_text("another")
    names.append(machine.archive())
    (machine.jars / "more.jar").write_text("jar")
    names.append(machine.archive())
    machine.java.write_text(JAVA + "\n")
    names.append(machine.archive())
    (machine.java.parent.parent / "release").write_text('JAVA_VERSION="25"')
    names.append(machine.archive())
    assert len(set(names)) == 5


def test_one_process_at_a_time_makes_it_until_its_java_has_ended(machine: Machine) -> None:
    first = start_with(machine.archive(), make=True)
    assert first.lock is not None
    Path(f"{machine.archive().all}.new").write_bytes(b"\xf0half an archi")
    assert start_with(machine.archive(), make=True) == Start()
    # Java has it yet when the command has closed it.
    java = os.dup(first.lock)
    os.close(first.lock)
    assert start_with(machine.archive(), make=True) == Start()
    os.close(java)
    assert start_with(machine.archive(), make=True).options[0].startswith("-XX:SharedArchiveFile=")


@pytest.mark.parametrize("left", [None, b"", b"\0" * 4096])
def test_a_java_that_is_killed_while_it_makes_one_has_made_none_and_a_day_later_another_does(
    machine: Machine, left: bytes | None
) -> None:
    archive = machine.archive()
    assert machine.run(left).makes
    assert machine.run() == Start() and not os.path.exists(archive.all)
    a_while_later(f"{archive.all}.tried", AGAIN)
    assert machine.run().makes
    assert machine.run().options[0] == f"-XX:SharedArchiveFile={archive.all}"


def test_a_full_disk_is_not_filled_further(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROOM", 1 << 62)
    assert machine.run() == Start() and files(machine) == ["lock"]


def test_a_directory_that_cannot_be_written_is_no_trouble(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str, *words: object, **more: object) -> int:
        raise OSError(30, "read-only file system", path)

    archive = machine.archive()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fail)
        assert machine.run() == Start()
    with monkeypatch.context() as patch:
        patch.setattr(os, "makedirs", fail)
        assert machine.find() is None
    machine.run()
    machine.run()
    with monkeypatch.context() as patch:
        patch.setattr(os, "utime", fail)
        assert machine.run() == Start()
    assert machine.run().options[0] == f"-XX:SharedArchiveFile={archive.all}"


def test_what_is_not_there_is_no_trouble(machine: Machine) -> None:
    assert find_archive("/nonexistent/java", str(machine.jars), machine.environment) is None
    assert find_archive(str(machine.java), "/nonexistent/jars", machine.environment) is None


def test_a_java_without_an_archive_of_its_own_classes_gets_one_first(machine: Machine) -> None:
    machine.own.unlink()
    archive = machine.archive()
    assert archive.rests and machine.run() == Start()
    # That Java is not waited for.
    wait_until(lambda: os.path.exists(f"{archive.own}.new"))
    wait_until(lambda: machine.run() != Start())
    assert machine.run().options == (f"-XX:SharedArchiveFile={archive.own}:{archive.all}", *QUIET)


def test_an_archive_that_nobody_used_for_a_month_is_removed(machine: Machine) -> None:
    machine.run()
    machine.run()
    before = machine.archive()
    for ending in ("", ".tried"):
        a_while_later(before.all + ending, UNUSED)
    (machine.jars / "spark-core.jar").write_text("another")
    machine.run()
    machine.run()
    assert not os.path.exists(before.all) and os.path.exists(machine.archive().all)


def test_an_archive_that_is_used_stays(machine: Machine) -> None:
    machine.run()
    machine.run()
    before = machine.archive()
    a_while_later(before.all, UNUSED)
    machine.run()
    (machine.jars / "spark-core.jar").write_text("another")
    machine.run()
    machine.run()
    assert os.path.exists(before.all)


def test_the_cache_directory_is_where_xdg_says_or_in_the_home(machine: Machine, tmp_path: Path) -> None:
    assert machine.archive().name.startswith(f"{machine.home}/.cache/queue-report/spark-")
    other = machine.find(XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert other and other.name.startswith(f"{tmp_path}/cache/queue-report/spark-")
    assert stat.S_IMODE((tmp_path / "cache" / "queue-report").stat().st_mode) == 0o700
    assert machine.find(XDG_CACHE_HOME="relative", HOME="") is None
    assert machine.find(HOME="") is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_directory_that_others_can_write_to_has_no_archive(machine: Machine, mode: int) -> None:
    directory = machine.home / ".cache" / "queue-report"
    directory.mkdir(parents=True)
    directory.chmod(mode)
    assert machine.find() is None


def test_a_directory_above_that_others_can_write_to_has_none_either(machine: Machine) -> None:
    machine.home.chmod(0o777)
    assert machine.find() is None
    # Of such a one they cannot take what is not theirs.
    machine.home.chmod(0o1777)
    assert machine.find() is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_an_archive_or_a_home_of_another_user_is_not_trusted(machine: Machine) -> None:
    machine.run()
    machine.run()
    os.chown(machine.archive().all, 1, 1)
    assert machine.run() == Start()
    os.chown(machine.home, 1, 1)
    assert machine.find() is None
    assert find_archive(str(machine.java), str(machine.jars), {"HOME": str(machine.home / "new")}) is None


def test_an_archive_that_others_can_write_to_or_a_link_is_not_trusted(machine: Machine, tmp_path: Path) -> None:
    machine.run()
    machine.run()
    archive = machine.archive()
    os.chmod(archive.all, 0o666)
    assert machine.run() == Start()
    os.rename(archive.all, tmp_path / "elsewhere")
    os.chmod(tmp_path / "elsewhere", 0o600)
    os.symlink(tmp_path / "elsewhere", archive.all)
    assert machine.run() == Start()


def test_a_path_that_spark_would_split_has_no_archive(machine: Machine, tmp_path: Path) -> None:
    assert machine.find(XDG_CACHE_HOME=str(tmp_path / "my cache")) is None
