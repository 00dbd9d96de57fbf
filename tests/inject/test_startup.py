"""What one message costs before the queue is reached: modules and system calls beyond those of an empty program.

Neither depends on how fast the machine is. `bench/inject-startup` measures the time.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from queue_base.home import Home
from support.processes.installed import FORMS, PROGRAMS, ROOT, install
from support.tools import need

MESSAGE = b"From: a@b.example\nTo: c@d.example\nSubject: hello\n\nbody\n"
ARGUMENTS = {"queue-inject": ["-f", "a@b.example", "c@d.example"], "sendmail": ["c@d.example"], "queue-enqueue": []}
# Beyond those of an interpreter that imports os. sendmail takes the user's full name from pwd.
STANDARD = {"errno", "pwd", "select", "time"}
# The most modules of ours, their packages included, and the most system calls beyond an empty program's.
MODULES = {"queue-inject": 27, "sendmail": 32, "queue-enqueue": 22}
CALLS = {"queue-inject": 520, "sendmail": 620, "queue-enqueue": 430}


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("installed"), "setup-programs")


@pytest.fixture(scope="module", params=FORMS)
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """One of FORMS, and the directory of its programs."""
    form = str(request.param)
    return form, install(tmp_path_factory.mktemp("installed"), form)


def run(words: list[str | Path], tmp_path: Path) -> str:
    """Run a command with the message and, on descriptor 1, an envelope; return its stderr."""
    envelope = tmp_path / "envelope"
    envelope.write_bytes(b"Fa@b.example\0Tc@d.example\0\0")
    with envelope.open("rb") as addresses:
        done = subprocess.run(
            words,
            input=MESSAGE,
            stdout=addresses,
            stderr=subprocess.PIPE,
            env={"PATH": os.defpath, "USER": "ann"},
            check=False,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    return done.stderr.decode()


def imported(python: Path, words: list[str | Path], tmp_path: Path) -> set[str]:
    """Return the names of the modules that a Python program imports."""
    lines = run([python, "-I", "-S", "-X", "importtime", *words], tmp_path).splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


def count_calls(words: list[str | Path], tmp_path: Path) -> int:
    """Return how many system calls a command makes."""
    trace = tmp_path / "trace"
    run([need("strace"), "-qq", "-e", "signal=none", "-o", trace, *words], tmp_path)
    return len(trace.read_text().splitlines())


def queued(home: Home) -> int:
    return sum(1 for _ in Path(home.queue, "todo").glob("*/*"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_message_imports_few_modules_and_none_that_is_heavy(
    settled: Path, home: Home, tmp_path: Path, name: str
) -> None:
    python = settled / "python3"
    empty = imported(python, ["-c", "import os"], tmp_path)
    found = imported(python, [settled / name, "--home", home.path, *ARGUMENTS[name]], tmp_path) - empty
    ours = {module for module in found if module.startswith("queue_")}
    assert "queue_base.queue.writer" in ours and queued(home) == 1
    assert found - ours <= STANDARD
    assert len(ours) <= MODULES[name], sorted(ours)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_message_takes_few_system_calls(settled: Path, home: Home, tmp_path: Path, name: str) -> None:
    empty = count_calls([settled / "python3", "-I", "-S", "-c", "import os"], tmp_path)
    found = count_calls([settled / name, "--home", home.path, *ARGUMENTS[name]], tmp_path) - empty
    assert queued(home) == 1
    assert found <= CALLS[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_packages_are_found_without_site_unless_pip_has_put_them_elsewhere(
    installed: tuple[str, Path], home: Home, tmp_path: Path, name: str
) -> None:
    form, programs = installed
    modules = imported(programs / "python3", [programs / name, "--home", home.path, *ARGUMENTS[name]], tmp_path)
    assert queued(home) == 1
    # Only site reads the file that says where an editable installation is.
    assert ("site" in modules) == (form == "pip --editable")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_a_checkout_takes_the_packages_of_its_checkout(home: Home, tmp_path: Path, name: str) -> None:
    checkout = tmp_path / "checkout"
    for part in ("bin", "queue_base", "queue_inject", "queue_wire"):
        shutil.copytree(ROOT / part, checkout / part)
    # For site, the packages are those of another checkout.
    install(checkout / ".venv", "pip --editable")
    with (checkout / "queue_inject/__init__.py").open("a") as file:
        file.write("import os\nos.write(2, b'the copy')\n")
    assert run([checkout / "bin" / name, "--home", home.path, *ARGUMENTS[name]], tmp_path) == "the copy"
    assert queued(home) == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_packages_in_the_working_directory_are_not_taken(
    installed: tuple[str, Path], home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    trap = tmp_path / "queue_inject"
    trap.mkdir()
    (trap / "__init__.py").write_text("raise SystemExit('the working directory counts')\n")
    monkeypatch.chdir(tmp_path)
    assert run([installed[1] / name, "--home", home.path, *ARGUMENTS[name]], tmp_path) == ""
    assert queued(home) == 1
