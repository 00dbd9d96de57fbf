"""Completion at TAB in zsh and fish themselves, by the scripts that the install makes, as docs/install.md has it."""

import contextlib
import os
import pty
import select
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.shell_completion import write_scripts
from support.processes.suite import program
from support.tools import need

SECONDS = 60.0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the scripts below share/, queuectl in bin/, and two directories to complete."""
    write_scripts(str(tmp_path / "share"))
    binary = tmp_path / "bin" / "queuectl"
    binary.parent.mkdir()
    binary.write_text(f'#!/bin/sh\nexec {shlex.join(program("queuectl"))} "$@"\n')
    binary.chmod(0o755)
    (tmp_path / "homes" / "one home").mkdir(parents=True)
    (tmp_path / "homes" / "aliases").touch()
    return tmp_path


def environment(place: Path) -> dict[str, str]:
    return {
        "PATH": f"{place}/bin:/usr/bin:/bin",
        "HOME": str(place),
        "XDG_DATA_DIRS": str(place / "share"),
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
    }


def offered_by_fish(place: Path, lines: list[str]) -> list[list[str]]:
    """Return what fish offers in place of the last word of each line, without the descriptions."""
    script = "; echo; ".join(f"complete --do-complete {shlex.quote(line)}" for line in lines)
    nothing, variables = subprocess.DEVNULL, environment(place)
    words = [need("fish"), "--command", script]
    done = subprocess.run(
        words, env=variables, cwd=place, stdin=nothing, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.stderr == ""
    answers = done.stdout.removesuffix("\n").split("\n\n")
    return [[each.partition("\t")[0] for each in answer.split("\n")] for answer in answers]


# At ^X it writes its line, and a NUL.
SETUP = """
PS1=
fpath=($PWD/share/zsh/site-functions $fpath)
autoload -Uz compinit
compinit -u -D
tell() { print -rn -- $BUFFER$'\\0' >told; BUFFER= }
zle -N tell
bindkey '^X' tell
print -n 'ready\\0' >told
"""


class Zsh:
    """An interactive zsh on a terminal of its own."""

    def __init__(self, place: Path) -> None:
        os.mkfifo(place / "told")
        (place / "setup").write_text(SETUP)
        self._reader = os.open(place / "told", os.O_RDONLY | os.O_NONBLOCK)
        self._keeper = os.open(place / "told", os.O_WRONLY)  # So that there is no end of file between two lines.
        self._terminal, slave = pty.openpty()
        words, variables = [need("zsh"), "-f", "-i"], environment(place)
        with os.fdopen(slave, "r+b", buffering=0) as end:
            self._process = subprocess.Popen(
                words, env=variables, cwd=place, stdin=end, stdout=end, stderr=end, start_new_session=True
            )
        self._type(". ./setup\n")
        assert self._read() == "ready"

    def _type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _read(self) -> str:
        """Return what comes up to a NUL; what the shell shows meanwhile is taken."""
        found, end = b"", time.monotonic() + SECONDS
        self.shown = b""
        while not found.endswith(b"\0"):
            ready = select.select([self._reader, self._terminal], [], [], max(0.0, end - time.monotonic()))[0]
            assert ready, (found, self.shown)
            if self._reader in ready:
                found += os.read(self._reader, 1000)
            if self._terminal in ready:
                self.shown += os.read(self._terminal, 10_000)
        return found[:-1].decode()

    def complete(self, line: str) -> str:
        """Return what a line is after TAB."""
        self._type(f"{line}\t\x18")
        return self._read()

    def close(self) -> None:
        self._process.kill()
        self._process.wait(SECONDS)
        for descriptor in (self._terminal, self._reader, self._keeper):
            os.close(descriptor)


@pytest.fixture
def zsh(place: Path) -> Iterator[Zsh]:
    with contextlib.closing(Zsh(place)) as shell:
        yield shell


def test_zsh_completes_commands_options_values_and_paths(zsh: Zsh) -> None:
    assert zsh.complete("queuectl config sh") == "queuectl config show "  # It loads the script now.
    assert zsh.complete("queuectl --home 'one home' li") == "queuectl --home 'one home' list "
    assert zsh.complete("queuectl --home=homes/o") == "queuectl --home=homes/one\\ home/"
    assert zsh.complete("queuectl list --sort=a") == "queuectl list --sort=age "
    assert zsh.complete("queuectl import-aliases homes/al") == "queuectl import-aliases homes/aliases "
    assert zsh.complete("queuectl sh") == "queuectl sh"  # Of several it only shows them.
    assert b"shape" in zsh.shown and b"show" in zsh.shown


def test_fish_completes_commands_options_values_and_paths(place: Path) -> None:
    offered = {
        "queuectl config sh": ["show"],
        "queuectl --home 'one home' li": ["list"],
        "queuectl --home homes/o": ["homes/one home/"],
        "queuectl list --sort=a": ["--sort=age"],
        "queuectl import-aliases homes/al": ["homes/aliases"],
        "queuectl sh": ["shape", "show"],
    }
    assert offered_by_fish(place, list(offered)) == list(offered.values())
