"""bin/setup-venv, with a stand-in for Python that notes what it is asked to do: what it says, and when it installs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("sh", "cat", "chmod", "cksum", "dirname", "flock", "id", "ln", "mkdir", "mktemp", "mv", "rm", "sed", "tail")
SYSTEM = "python-of-the-system"

# Answers a one-line program itself, but for one that needs what is told to be missing; makes .venv; notes pip's calls.
PYTHON = """
here=CHECKOUT
case "$1 ${2:-}" in
    *"MISSING"*) [ -f HERE/installed ] || exit 1 ;;
    *_base_executable*) echo HERE/tools/NAME VERSION ;;
    "-c print"* | "-c import sys; print"*) echo VERSION ;;
    "-m venv")
        echo NOTE >>HERE/calls
        mkdir -p "$here/.venv/bin"
        ln -sf HERE/tools/NAME "$here/.venv/bin/python3" ;;
    "-m pip") echo pip >>HERE/calls; [ ! -f HERE/offline ] || { echo "Connection refused"; exit 1; } ;;
esac
"""


class Checkout:
    """A checkout with nothing but what setup-venv looks at, and a PATH with nothing but what it needs."""

    def __init__(self, top: Path, name: str = "checkout") -> None:
        self.top = top
        self.path = top / name
        self.path.mkdir(parents=True)
        shutil.copytree(ROOT / "bin", self.path / "bin")
        for file in ("setup.cfg", "pyproject.toml"):
            shutil.copy(ROOT / file, self.path / file)
        self.tools = top / "tools"
        self.tools.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None, tool
            (self.tools / tool).symlink_to(found)

    def python(
        self, missing: str = "nothing of the kind", name: str = "python3", note: str = "venv", version: str = "3.11"
    ) -> None:
        """Put the stand-in on PATH; a program that holds `missing` fails, and making .venv leaves a note."""
        text = PYTHON.replace("MISSING", missing).replace("CHECKOUT", f"'{self.path}'").replace("VERSION", version)
        self.tool(name, text.replace("NAME", name).replace("NOTE", note))

    def system_python(self, missing: str = "nothing of the kind") -> None:
        """Make the one that the system would have."""
        self.python(missing, SYSTEM, "system-venv")

    def be(self, uid: int) -> None:
        """Let `id -u` say this."""
        self.tool("id", f"echo {uid}")

    def calls(self) -> list[str]:
        """Return what was done with Python."""
        return (self.top / "calls").read_text().split() if (self.top / "calls").exists() else []

    def tool(self, name: str, text: str) -> None:
        """Put a shell script on PATH, in place of what has the name."""
        (self.tools / name).unlink(missing_ok=True)
        (self.tools / name).write_text(f"#!/bin/sh\n{text}\n".replace("HERE", f"'{self.top}'"))
        (self.tools / name).chmod(0o755)

    def set_up(self, ci: str = "", python: str = "", within: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run it, with $PYTHON where one is given, in the directory `within`."""
        environment = {**os.environ, "PATH": str(self.tools), "CI": ci, "SYSTEM_PYTHON": str(self.tools / SYSTEM)}
        environment.pop("PYTHON", None)
        if python:
            environment["PYTHON"] = python
        words = [str(self.path / "bin" / "setup-venv")]
        return subprocess.run(
            words, env=environment, cwd=within, capture_output=True, text=True, check=False, timeout=60
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_a_machine_without_a_recent_python_is_told_so(checkout: Checkout) -> None:
    checkout.python(missing="3, 11")
    end = checkout.set_up()
    assert end.returncode == 1
    assert end.stderr.startswith("setup-venv: fatal: unable to find Python 3.11 or later")
    assert "apt-get install python3 python3-venv" in end.stderr


def test_a_machine_without_the_venv_module_is_told_what_to_install(checkout: Checkout) -> None:
    checkout.python(missing="ensurepip")
    end = checkout.set_up()
    assert end.returncode == 1
    assert "setup-venv: fatal: unable to make .venv: python3 lacks the module venv or ensurepip" in end.stderr
    assert "apt-get install python3-venv" in end.stderr
    assert checkout.calls() == []


@pytest.mark.parametrize(("ci", "uid", "installs"), [("true", 0, True), ("true", 1000, False), ("", 0, False)])
def test_only_root_under_ci_gets_the_package_installed(checkout: Checkout, ci: str, uid: int, installs: bool) -> None:
    checkout.python(missing="ensurepip")
    checkout.be(uid)
    checkout.tool("apt-get", '[ "$1" = update ] || { echo "$*" >>HERE/asked; : >HERE/installed; }')
    assert checkout.set_up(ci).returncode == (0 if installs else 1)
    asked = checkout.top / "asked"
    assert installs == asked.exists()
    assert not installs or asked.read_text().endswith(" python3-venv\n")


@pytest.mark.parametrize(("uid", "note"), [(0, "system-venv"), (1000, "venv")])
def test_root_gets_the_systems_python_because_other_accounts_must_run_it(
    checkout: Checkout, uid: int, note: str
) -> None:
    checkout.python()
    checkout.system_python()
    checkout.be(uid)
    assert checkout.set_up().returncode == 0
    assert checkout.calls() == [note, "pip"]


def test_root_takes_the_python_on_path_where_the_systems_will_not_do(checkout: Checkout) -> None:
    checkout.python()
    checkout.system_python(missing="3, 11")
    checkout.be(0)
    assert checkout.set_up().returncode == 0
    assert checkout.set_up().stderr == ""
    assert checkout.calls() == ["venv", "pip"]


def test_root_under_ci_has_the_systems_python_made_complete_though_another_would_do(checkout: Checkout) -> None:
    checkout.python()
    checkout.system_python(missing="ensurepip")
    checkout.be(0)
    checkout.tool("apt-get", "[ \"$1\" = update ] || : >HERE/installed")
    assert checkout.set_up("true").returncode == 0
    assert checkout.calls() == ["system-venv", "pip"]


def test_an_environment_of_another_python_is_made_again_for_root_and_root_s_will_do_for_others(
    checkout: Checkout,
) -> None:
    checkout.python()
    checkout.system_python()
    for uid in (1000, 0, 0, 1000):
        checkout.be(uid)
        assert checkout.set_up().returncode == 0
    assert checkout.calls() == ["venv", "pip", "system-venv", "pip"]


def test_a_second_python_that_will_do_is_taken(checkout: Checkout) -> None:
    checkout.python(missing="ensurepip")
    checkout.python(name="python3.12")
    assert checkout.set_up().returncode == 0
    assert checkout.calls() == ["venv", "pip"]


@pytest.mark.parametrize("uid", [0, 1000])
def test_the_python_that_is_given_is_taken_and_replaces_an_environment_of_another(checkout: Checkout, uid: int) -> None:
    checkout.python()
    checkout.system_python()
    checkout.python(name="python3.13", note="given-venv", version="3.13")
    checkout.be(uid)
    assert checkout.set_up().returncode == 0
    for python in ("python3.13", str(checkout.tools / "python3.13"), "python3.13"):
        assert checkout.set_up(python=python).returncode == 0
    assert checkout.calls()[2:] == ["given-venv", "pip"]
    assert (checkout.path / ".venv/setup-stamp").read_text().splitlines()[1] == f"{checkout.tools}/python3.13 3.13"


def test_a_path_that_is_given_is_relative_to_where_the_caller_is(checkout: Checkout) -> None:
    checkout.python()
    checkout.python(name="python3.13", note="given-venv", version="3.13")
    assert checkout.set_up(python="tools/python3.13", within=checkout.top).returncode == 0
    assert checkout.calls() == ["given-venv", "pip"]
    end = checkout.set_up(python="tools/python3.13", within=checkout.path)
    assert end.returncode == 1
    assert end.stderr == (
        f"setup-venv: fatal: unable to use PYTHON={checkout.path}/tools/python3.13: there is no such program\n"
    )


@pytest.mark.parametrize("there", [False, True], ids=["no environment", "an environment of another"])
@pytest.mark.parametrize(
    ("missing", "why"),
    [
        ("3, 11", "it is Python 3.9, expected 3.11 or later"),
        ("print", "it is no Python, or one that does not run: "),
        ("ensurepip", "unable to make .venv: python3.13 lacks the module venv or ensurepip"),
    ],
)
def test_a_python_that_is_given_and_will_not_do_is_an_error_and_no_other_is_taken(
    checkout: Checkout, missing: str, why: str, there: bool
) -> None:
    checkout.python()
    if there:
        assert checkout.set_up().returncode == 0
    before = checkout.calls()
    checkout.python(missing, name="python3.13", version="3.9")
    end = checkout.set_up(python="python3.13")
    assert end.returncode == 1 and end.stderr.startswith("setup-venv: fatal: unable to ") and why in end.stderr
    assert checkout.calls() == before
    end = checkout.set_up(python="python3.99")
    assert end.stderr == "setup-venv: fatal: unable to use PYTHON=python3.99: there is no such program\n"
    assert (end.returncode, checkout.calls()) == (1, before)


def test_the_environment_s_own_python_may_be_given(checkout: Checkout) -> None:
    checkout.python()
    assert checkout.set_up().returncode == 0
    # It would be removed before it could make the next one.
    (checkout.path / "setup.cfg").write_text("changed\n")
    end = checkout.set_up(python=".venv/bin/python3", within=checkout.path)
    assert (end.returncode, checkout.calls()) == (0, ["venv", "pip", "pip"])


def test_a_python_that_became_another_one_gets_a_new_environment(checkout: Checkout) -> None:
    checkout.python()
    assert checkout.set_up().returncode == 0
    checkout.python(version="3.13")
    assert checkout.set_up().returncode == 0
    assert checkout.set_up().stderr == ""
    assert checkout.calls() == ["venv", "pip", "venv", "pip"]


def test_a_package_index_that_cannot_be_reached_is_told_and_tried_again_by_the_next_run(checkout: Checkout) -> None:
    checkout.python()
    (checkout.top / "offline").touch()
    end = checkout.set_up()
    assert end.returncode == 1
    assert "Connection refused" in end.stderr
    assert "setup-venv: fatal: unable to install the Python packages" in end.stderr
    (checkout.top / "offline").unlink()
    assert checkout.set_up().returncode == 0


def test_a_second_run_does_nothing_and_says_nothing(checkout: Checkout) -> None:
    checkout.python()
    assert checkout.set_up().returncode == 0
    end = checkout.set_up()
    assert (end.returncode, end.stdout, end.stderr) == (0, "", "")
    assert checkout.calls() == ["venv", "pip"]


@pytest.mark.parametrize("changed", ["setup.cfg", "bin/queue-inject"])
def test_a_changed_file_is_installed_into_the_environment_that_is_there(checkout: Checkout, changed: str) -> None:
    checkout.python()
    checkout.set_up()
    with open(checkout.path / changed, "a") as file:
        file.write("# changed\n")
    assert checkout.set_up().returncode == 0
    assert checkout.calls() == ["venv", "pip", "pip"]


def test_a_checkout_that_was_moved_gets_a_new_environment(checkout: Checkout) -> None:
    checkout.python()
    checkout.set_up()
    checkout.path = checkout.path.rename(checkout.top / "elsewhere")
    checkout.python()
    assert checkout.set_up().returncode == 0
    assert checkout.calls() == ["venv", "pip", "venv", "pip"]


def test_programs_start_also_in_a_path_with_spaces(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, "a mail queue")
    checkout.python()
    assert checkout.set_up().returncode == 0
    program = checkout.path / ".venv" / "bin" / "queue-inject"
    python = checkout.path / ".venv" / "bin" / "python3"
    python.unlink()
    python.symlink_to(sys.executable)
    program.chmod(0o755)
    program.write_text("".join(program.read_text().splitlines(keepends=True)[:3]) + "import sys\nprint(sys.argv[1:])\n")
    end = subprocess.run([str(program), "two words"], capture_output=True, text=True, check=True, timeout=60)
    assert end.stdout == "['two words']\n"
