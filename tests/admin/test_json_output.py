"""--format json: an object a line, with the keys that docs/operating.md lists; it also names the commands without."""

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from queue_admin.main import group
from queue_base.home import Home
from support.processes.suite import program
from support.queues.listed_queue import Queue, lines

PAGE = Path(__file__).resolve().parents[2] / "docs/operating.md"
pytestmark = pytest.mark.usefixtures("usual_umask")
COLUMN = 29  # Where the keys, or the reason, begin.


def rows(nth: int) -> dict[str, str]:
    """Return the right side of each command in the page's list of commands with JSON (0), or of those without (1)."""
    section = PAGE.read_text().partition("### Output for scripts\n")[2].partition("\n## ")[0]
    block = [block for block in section.split("\n\n") if block.startswith("    ")][nth]
    found: dict[str, str] = {}
    names: list[str] = []
    for line in block.splitlines():
        left, right = line[:COLUMN].strip(), line[COLUMN:]
        names = re.split(", | {2,}", left) if left else names
        for name in names:
            found[name] = f"{found.get(name, '')} {right}"
    return found


def keys(text: str) -> set[str]:
    return set(re.findall(r"\b[A-Za-z_]+\b", text))


def commands(top: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield each command with its words; a group only if it does something by itself."""
    if not isinstance(top, click.Group) or top.invoke_without_command:
        yield name, top
    if isinstance(top, click.Group):
        for word, each in top.commands.items():
            yield from commands(each, f"{name} {word}".strip())


def test_each_command_has_json_with_documented_keys_or_a_reason_why_not() -> None:
    with_keys = {re.sub(r" --.*", "", name) for name in rows(0)}
    without = " ".join(rows(1))
    for name, each in commands(group):
        has = any("json" in getattr(option.type, "choices", ()) for option in each.params)
        assert (name in with_keys) == has, name
        assert has or re.search(rf"(^| ){name}( |$)", without), name


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    made = Queue(tmp_path / "home")
    made.classified(remote=b"Tc@d.example\0", due=time.time() - 9)
    made.queued()
    return made


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are looked for beside the one that runs, which is pytest here."""
    monkeypatch.setattr(sys, "argv", program("queuectl")[-1:])


@pytest.mark.parametrize(
    ("name", "words", "code"),
    [
        ("list", "list", 0),
        ("show", "show ID", 0),
        ("stat", "stat", 111),
        ("top", "top", 0),
        ("route", "route joe@[]", 100),
        ("users find", "users find joe@elsewhere.example", 100),
        ("users find", "users find no-such-user", 100),
        ("config", "config", 0),
        ("config check", "config check", 1),
        ("check", "check", 1),
        ("repair --dry-run", "repair --dry-run", 0),
        ("repair", "repair", 0),
        ("hold --standing --list", "hold --standing --list", 0),
        ("maildrop list", "maildrop list", 0),
        ("maildrop list --uid", f"maildrop list --uid {os.getuid()}", 0),
        ("version", "version", 0),
    ],
)
def test_the_objects_have_the_documented_keys(
    queue: Queue, capsys: pytest.CaptureFixture[str], name: str, words: str, code: int
) -> None:
    home = queue.home
    assert queue.run("list") == 0
    identity = lines(capsys)[0].split()[0]
    prepare(home, name, queue)
    capsys.readouterr()
    assert queue.run(*words.replace("ID", identity).split(), "--format", "json") == code
    found = [json.loads(line) for line in lines(capsys)]
    documented = rows(0)[name]
    assert found
    for each in found:
        assert set(each) <= keys(documented)
        assert name == "list" or set(each) == keys(documented)


def prepare(home: Home, name: str, queue: Queue) -> None:
    """Make what a command needs so that it prints something."""
    if name == "config check":
        Path(home.control, "queuelifetime").write_text("x\n")
    elif name in ("check", "repair", "repair --dry-run"):
        Path(home.queue, "info", "0", "12").write_text("no message\n")
    elif name == "hold --standing --list":
        assert queue.run("hold", "--standing", "--sender", "a@b") == 0
    elif name.startswith("maildrop"):
        Path(home.queue, "maildrop", "mail." + "a" * 32).write_text("x")
