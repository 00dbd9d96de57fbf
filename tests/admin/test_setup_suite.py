"""bin/setup-suite: a new environment for each run, extras that stay, and programs that bring no python3 into PATH.

pip is a stand-in that notes its arguments, and the packages are those of this checkout; once it is pip itself.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from queue_base.home import Home
from support.processes.forked import BIN
from support.processes.suite import Suite, wait_until
from support.processes.wheels import make_wheels
from support.site import mail_site

# As `python3 -m venv`, with a pip of its own and the libraries of the tests.
PYTHON = """#!{python}
import os, sys, subprocess
from glob import glob
if sys.argv[1:3] != ["-m", "venv"]:
    os.execv("{python}", ["python3", *sys.argv[1:]])
subprocess.run(["{python}", "-m", "venv", "--without-pip", sys.argv[3]], check=True)
[packages] = glob(sys.argv[3] + "/lib/python*/site-packages")
os.mkdir(packages + "/pip")
open(packages + "/pip/__init__.py", "w").close()
with open(packages + "/pip/__main__.py", "w") as file:
    file.write({pip!r})
with open(packages + "/queue.pth", "w") as file:
    file.write({paths!r})
"""


PIP = """
import os, sys
with open("{notes}", "a") as file:
    file.write(sys.argv[-1] + " " + os.environ["QUEUE_SUITE_COMPILE"] + "\\n")
sys.exit(os.path.exists("{notes}.broken"))
"""


class Place:
    """A directory to install into, and what pip was asked for."""

    def __init__(self, top: Path) -> None:
        self.suite = top / "opt/suite"
        self.notes = top / "notes"
        self._python = top / "python"
        libraries = [path for path in sys.path if path.endswith("site-packages")]
        paths = "".join(f"{path}\n" for path in (BIN.parent, BIN.parent / "spark", *libraries))
        self._python.write_text(PYTHON.format(python=sys.executable, pip=PIP.format(notes=self.notes), paths=paths))
        self._python.chmod(0o755)

    def set_up(self, *extras: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return set_up(self.suite, *extras, PYTHON=str(self._python), **variables)

    def asked(self) -> list[str]:
        """Return what the calls of pip have asked for: extras, and whether it compiles."""
        return [line.partition("/source")[2] for line in self.notes.read_text().splitlines()]


def set_up(suite: Path, *extras: str, **variables: str) -> subprocess.CompletedProcess[str]:
    words = [str(BIN / "setup-suite"), str(suite), *extras]
    environment = {"PATH": os.defpath, "HOME": str(suite.parent.parent), **variables}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=1800)


pytestmark = pytest.mark.long


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_run_makes_an_environment_and_the_next_another_that_the_link_then_leads_to(place: Place) -> None:
    done = place.set_up()
    assert (done.returncode, os.readlink(place.suite)) == (0, "suite.1"), done.stderr
    assert f"the programs are in {place.suite}/programs" in done.stdout
    first = (place.suite / "programs/queuectl").read_bytes()
    assert first.startswith(f"#!{place.suite}.1/bin/python3 -I\n".encode())
    done = place.set_up()
    assert (done.returncode, os.readlink(place.suite)) == (0, "suite.2"), done.stderr
    assert f"then {place.suite}.1 may be removed\n" in done.stdout
    # Daemons that run from it go on with what they have.
    assert Path(f"{place.suite}.1/programs/queuectl").read_bytes() == first
    assert sorted(os.listdir(place.suite.parent)) == ["suite", "suite.1", "suite.2"]


def test_extras_and_the_form_are_chosen_once_and_kept_until_they_are_chosen_again(place: Place) -> None:
    for extras, variables in (
        (("spark", "report"), {"QUEUE_SUITE_COMPILE": "1"}), ((), {}),
        (("none",), {"QUEUE_SUITE_COMPILE": "0"}), ((), {}),
    ):  # fmt: skip
        assert place.set_up(*extras, **variables).returncode == 0
    assert place.asked() == ["[spark,report] 1", "[spark,report] 1", " 0", " 0"]


def test_a_run_that_fails_leaves_what_was_there(place: Place) -> None:
    assert place.set_up().returncode == 0
    Path(f"{place.notes}.broken").touch()
    done = place.set_up("report")
    assert done.returncode == 1 and "setup-suite: fatal: unable to install: " in done.stderr
    assert sorted(os.listdir(place.suite.parent)) == ["suite", "suite.1"]
    assert os.readlink(place.suite) == "suite.1"


@pytest.mark.parametrize(
    ("extras", "said"),
    [(("sparks",), "unable to install sparks: the extras are spark, connect and report"), ((), "it is a directory")],
)
def test_what_cannot_be_done_is_said_and_nothing_is_made(place: Place, extras: tuple[str, ...], said: str) -> None:
    if not extras:
        place.suite.mkdir(parents=True)
    done = place.set_up(*extras)
    assert done.returncode == 1 and said in done.stderr
    assert not list(place.suite.parent.glob("suite.*"))


def test_the_directory_for_path_has_the_programs_and_no_python_and_they_find_one_another(place: Place) -> None:
    assert place.set_up().returncode == 0
    programs = place.suite / "programs"
    names = {path.name for path in BIN.iterdir() if not path.name.startswith(("setup-", "demo"))}
    assert {path.name for path in programs.iterdir()} == names
    home, service = place.suite.parent / "home", place.suite.parent / "service"
    for queuectl in (programs / "queuectl", place.suite / "bin/queuectl"):
        words = ["init", f"{home}", "--as-me", "--me", "mail.example.org", "--service", f"{service}", "--force"]
        subprocess.run([str(queuectl), *words], check=True, capture_output=True, timeout=60)
        # The link stays in it, so that the service is that of the next version after the next run.
        assert f" {programs}/queue-start\n" in (service / "run").read_text()


def output(*words: str | Path) -> str:
    done = subprocess.run(words, input="Subject: it\n\n", capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(directory: Path) -> dict[Path, tuple[int, int]]:
    """Return what shows a change of the files of an environment, but of the bytecode that its programs leave."""
    found = [path for path in directory.rglob("*") if "__pycache__" not in path.parts]
    return {path: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in found}


@contextmanager
def running(suite: Path, home: Home) -> Iterator[Suite]:
    """Run queue-start by its first line, and not under the Python of this test."""
    with Suite(home, programs=suite / "programs", wrapper=("sh", "-c", 'shift; exec "$@"', "sh")) as found:
        yield found


@pytest.mark.exhaustive
@pytest.mark.parametrize(("extra", "module", "compiled"), [("report", "duckdb", "0"), ("spark", "pyspark", "1")])
def test_pip_itself_installs_it_and_a_later_run_keeps_the_choice_while_the_suite_goes_on(
    tmp_path: Path, extra: str, module: str, compiled: str
) -> None:
    (tmp_path / "wheels").mkdir()
    variables = make_wheels(tmp_path / "wheels", extra)
    suite, first = tmp_path / "suite", tmp_path / "suite.1"

    def check() -> None:
        assert "queue-suite " in output(suite / "programs/queuectl", "version")
        words = f"import {module}, queue_send.peers as peers; print(peers.__file__.endswith('.so'))"
        assert output(suite / "bin/python3", "-I", "-c", words) == f"{compiled == '1'}\n"
        assert "build" in output(suite / "programs/queue-report", "--help")

    def pass_mail(number: int) -> None:
        output(suite / "programs/sendmail", "--home", site.home.path, "ann@me.example.org")
        wait_until(lambda: len(site.delivered()) == number, why="the delivery")

    done = set_up(suite, extra, QUEUE_SUITE_COMPILE=compiled, **variables)
    assert done.returncode == 0, done.stderr
    check()
    with mail_site() as site:
        with running(suite, site.home):
            pass_mail(1)
            before = files(first)
            done = set_up(suite, **variables)
            assert done.returncode == 0 and os.readlink(suite) == "suite.2", done.stderr
            assert files(first) == before
            check()
            pass_mail(2)
        shutil.rmtree(first)
        with running(suite, site.home):
            pass_mail(3)
