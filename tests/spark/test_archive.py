"""The archive of Java's classes: made once, by one process; never trusted from others, never a reason to fail.

Java is a script here, which writes what it is told to.
"""

import os
import stat
import time
from pathlib import Path

import pytest

from spark.runtime import archive as module
from spark.runtime.archive import AGAIN, UNUSED, Archive, Making, find_archive, options_to_use

# As Java does: the archive is the list and the class path.
JAVA = """#!/bin/sh
for word do case $word in
    -XX:SharedClassListFile=*) list=${word#*=} ;;
    -XX:SharedArchiveFile=*) new=${word#*=} ;;
esac; done
echo "$*" >>"$0.log"
[ ! -e "$0.fails" ] || exit 1
cat "$list" >"$new"
"""


class Machine:
    """A Java, a directory of jars and a home."""

    def __init__(self, top: Path) -> None:
        top.chmod(0o755)
        self.java = top / "java" / "bin" / "java"
        self.jars = top / "jars"
        self.home = top / "home"
        for directory in (self.java.parent, self.jars, self.home):
            directory.mkdir(parents=True)
        self.java.write_text(JAVA)
        self.java.chmod(0o755)
        (self.jars / "spark-core.jar").write_text("jar")
        self.environment = {"HOME": str(self.home)}

    def find(self, **more: str) -> Archive | None:
        return find_archive(str(self.java), str(self.jars), self.environment | more)

    def archive(self) -> Archive:
        found = self.find()
        assert found is not None
        return found

    def make(self) -> bool:
        """Run a Java that lists its classes, then make the archive."""
        making = Making(self.archive())
        options = making.begin()
        if options:
            Path(options[0].partition("=")[2]).write_text("java/lang/Object\n")
        return making.end(str(self.java), "/spark/jars/*")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def files(machine: Machine) -> list[str]:
    return sorted(path.name.partition(".")[2] for path in (machine.home / ".cache" / "queue-report").iterdir())


def test_the_first_java_lists_its_classes_and_the_second_starts_from_the_archive(machine: Machine) -> None:
    assert options_to_use(machine.archive()) == []
    assert machine.make()
    archive = machine.archive()
    assert options_to_use(archive) == [f"-XX:SharedArchiveFile={archive.path}", "-Xshare:auto", "-Xlog:cds*=off"]
    assert Path(archive.path).read_text() == "java/lang/Object\n"
    assert files(machine) == ["jsa", "lock"] and stat.S_IMODE(os.stat(archive.path).st_mode) == 0o600
    assert not machine.make()
    assert "-cp /spark/jars/*" in machine.java.with_suffix(".log").read_text()


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


def test_one_process_at_a_time_makes_it(machine: Machine) -> None:
    first, second = Making(machine.archive()), Making(machine.archive())
    assert first.begin() and not second.begin()
    assert not second.end(str(machine.java), "x")
    first.close()
    assert second.begin()
    second.close()
    assert files(machine) == ["lock"]


def test_what_a_killed_process_has_left_is_begun_anew(machine: Machine) -> None:
    archive = machine.archive()
    Path(archive.classes).write_text("half a li")
    Path(f"{archive.path}.new").write_text("half an archive")
    assert options_to_use(archive) == []
    assert machine.make() and files(machine) == ["jsa", "lock"]
    assert Path(archive.path).read_text() == "java/lang/Object\n"


def test_a_java_that_cannot_make_one_is_asked_again_after_a_week(machine: Machine) -> None:
    Path(f"{machine.java}.fails").touch()
    assert not machine.make() and files(machine) == ["lock", "refused"]
    Path(f"{machine.java}.fails").unlink()
    assert Making(machine.archive()).begin() == []
    old = time.time() - AGAIN - 1
    os.utime(machine.archive().refused, (old, old))
    assert machine.make()


def test_a_full_disk_is_not_filled_further(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROOM", 1 << 62)
    assert Making(machine.archive()).begin() == []


def test_a_java_that_is_not_there_or_hangs_is_no_trouble(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    making = Making(machine.archive())
    assert making.begin()
    assert not making.end("/nonexistent/java", "x")
    assert find_archive("/nonexistent/java", str(machine.jars), machine.environment) is None
    assert find_archive(str(machine.java), "/nonexistent/jars", machine.environment) is None


def test_an_archive_that_nobody_used_for_a_month_is_removed(machine: Machine) -> None:
    assert machine.make()
    before = machine.archive()
    (machine.jars / "spark-core.jar").write_text("another")
    old = time.time() - UNUSED - 1
    os.utime(before.path, (old, old))
    assert machine.make()
    assert not os.path.exists(before.path) and os.path.exists(machine.archive().path)


def test_an_archive_that_is_used_stays(machine: Machine) -> None:
    assert machine.make()
    before = machine.archive()
    old = time.time() - UNUSED - 1
    os.utime(before.path, (old, old))
    assert options_to_use(before)
    (machine.jars / "spark-core.jar").write_text("another")
    assert machine.make() and os.path.exists(before.path)


def test_the_cache_directory_is_where_xdg_says_or_in_the_home(machine: Machine, tmp_path: Path) -> None:
    assert machine.archive().base.startswith(f"{machine.home}/.cache/queue-report/spark-")
    other = machine.find(XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert other and other.base.startswith(f"{tmp_path}/cache/queue-report/spark-")
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
    assert machine.make()
    archive = machine.archive()
    os.chown(archive.path, 1, 1)
    assert options_to_use(archive) == []
    os.chown(machine.home, 1, 1)
    assert machine.find() is None
    assert find_archive(str(machine.java), str(machine.jars), {"HOME": str(machine.home / "new")}) is None


def test_an_archive_that_others_can_write_to_or_a_link_is_not_trusted(machine: Machine, tmp_path: Path) -> None:
    assert machine.make()
    archive = machine.archive()
    os.chmod(archive.path, 0o666)
    assert options_to_use(archive) == []
    os.rename(archive.path, tmp_path / "elsewhere")
    os.chmod(tmp_path / "elsewhere", 0o600)
    os.symlink(tmp_path / "elsewhere", archive.path)
    assert options_to_use(archive) == []


def test_a_path_that_spark_would_split_has_no_archive(machine: Machine, tmp_path: Path) -> None:
    assert machine.find(XDG_CACHE_HOME=str(tmp_path / "my cache")) is None
