"""The manual pages: man/generate makes one for every program and control file, and they are clean for mandoc."""

import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import click
import pytest

from manual_pages.pages import TOP, help_of
from queue_admin.main import group as queuectl
from queue_wire.control.registry import FILES
from support.processes.forked import BIN
from support.tools import need

PROGRAMS = sorted(path.name for path in BIN.iterdir() if not path.name.startswith(("demo", "setup-")))
OPTION = re.compile(r"(?<![\w-])-{1,2}[A-Za-z0-9][\w-]*")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages by name."""
    to = tmp_path_factory.mktemp("man")
    subprocess.run([TOP / "man/generate", to, sys.executable], check=True, timeout=120)
    return {path.stem: path for path in sorted(to.glob("man?/*"))}


@pytest.fixture(scope="module")
def shown(pages: dict[str, Path]) -> Callable[[str], str]:
    """A page as mandoc prints it, without bold and underlined letters."""

    @cache
    def show(name: str) -> str:
        words = [need("mandoc"), "-T", "ascii", "-O", "width=200", str(pages[name])]
        ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
        return re.sub(".\x08", "", ran.stdout)

    return show


def options(command: click.Command) -> set[str]:
    """Return the options of a click command, and of the commands below it."""
    found = {name for parameter in command.params for name in parameter.opts if name.startswith("-")}
    if isinstance(command, click.Group):
        found.update(*(options(below) for below in command.commands.values()))
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_has_a_page_that_names_all_options_of_its_help(name: str, shown: Callable[[str], str]) -> None:
    page = shown(name)
    if name in ("queuectl", "queue-report"):
        return  # The next test compares those of each command.
    assert set(OPTION.findall(help_of(name))) <= set(OPTION.findall(page))


@pytest.mark.parametrize("name", sorted(queuectl.commands))
def test_each_command_of_queuectl_has_a_page_that_names_all_its_options(
    name: str, shown: Callable[[str], str]
) -> None:
    assert f"queuectl-{name}(8)" in shown("queuectl")
    assert options(queuectl.commands[name]) <= set(OPTION.findall(shown(f"queuectl-{name}")))


def test_each_control_file_is_in_section_5_with_its_default_and_range(shown: Callable[[str], str]) -> None:
    page = " ".join(shown("queue-control").split())
    for file in FILES:
        what = f"{file.what[0].upper()}{file.what[1:]}".replace("`", "")
        start = page.index(f" {file.name} {what}.")
        entry = page[start : page.index(". Read by ", start)]
        assert f"Default: {file.default.replace('`', '')}." in f"{entry}."
        assert file.range in entry


def test_no_page_shows_the_markup_of_its_source(pages: dict[str, Path]) -> None:
    for name, path in pages.items():
        assert "`" not in path.read_text(), name


def test_mandoc_has_nothing_to_say_and_pages_that_are_referred_to_exist(pages: dict[str, Path]) -> None:
    words = [need("mandoc"), "-T", "lint", *map(str, pages.values())]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    # mandoc looks for the pages of a reference in the system's directories alone.
    missing = re.compile(r"STYLE: referenced manual not found: Xr (\S+) (\d)|outdated mandoc.db lacks")
    assert [line for line in ran.stdout.splitlines() if not missing.search(line)] == []
    for path in pages.values():
        for name, section in re.findall(r"^\.(?:It )?Xr (\S+) (\d)", path.read_text(), re.MULTILINE):
            assert pages[name].suffix == f".{section}", f"{path.name} refers to {name}({section})"
