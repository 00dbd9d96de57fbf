"""The options and exit codes of all commands of queuectl, as docs/design/administration.md has them."""

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from queue_admin.commands.messages.change import VERBS
from queue_admin.main import group
from queue_admin.messages.survey import look
from support.processes.suite import Suite
from support.queues.listed_queue import Queue

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "design" / "administration.md").read_text()
SECTION = re.search(r"## Options and exit codes\n(.*?)\n## ", TEXT, re.DOTALL)
ALL = {
    "changing": set(VERBS),
    "choosing": {"list", *VERBS},
    "filing": {"maildrop remove", "maildrop hold", "maildrop release"},
}
ABSENT, NUMBER = "99999999-abc", "99999999"
BY_ID = ("list", "show", "log --logs LOG", "resubmit", *VERBS)
# Uses of each command that name what is not there.
NAMED = [
    *(f"{command} {name}" for command in (*BY_ID, "stored no.example", "stored no.example --delete")
      for name in (ABSENT, NUMBER)),
    "hold --reason x " + ABSENT, "stored no.example", "stored no.example --bounce", "destinations no.example",
    "passwd --delete ann", "postman show 99999999_no-date", "postman remove 99999999_no-date",
]  # fmt: skip
# And by selectors, or by the whole of a kind.
CHOSEN = [
    *(f"{command} --sender no@no.example" for command in ("list", *VERBS)), "maildrop list --uid 4711", "postman list",
    *(f"maildrop {verb} --uid 4711" for verb in ("remove", "hold", "release")),
]  # fmt: skip


def walk(command: click.Command, name: str = "queuectl") -> Iterator[tuple[str, click.Command]]:
    """Yield all commands with their names."""
    yield name, command
    if isinstance(command, click.Group):
        for word, below in command.commands.items():
            yield from walk(below, word if name == "queuectl" else f"{name} {word}")


COMMANDS = dict(walk(group))


def rows(head: str) -> list[list[str]]:
    """Return the cells of the rows of a table of the page."""
    assert SECTION is not None
    table = SECTION[1].split(f"| {head} |", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def names(cell: str) -> set[str]:
    """Return the commands that a cell names."""
    return set().union(*(ALL.get(word, {word}) for word in cell.split(", ")))


def helps(command: click.Command) -> str:
    return " ".join(command.get_help(click.Context(command)).split())


def test_each_option_of_each_command_is_in_the_table_and_has_one_name() -> None:
    told: dict[str, set[str]] = defaultdict(set)
    for options, commands, _ in rows("option"):
        for option in re.findall(r"`(--?[^`]+)`", options):
            told[option] |= names(commands)
    found: dict[str, set[str]] = defaultdict(set)
    for name, command in COMMANDS.items():
        for parameter in command.params:
            for option in parameter.opts if isinstance(parameter, click.Option) else ():
                found[option].add(name)
    # Which have that, and what they print, is in docs/operating.md.
    assert found.pop("--format") and told.pop("--format")
    assert found == told


def test_each_command_that_exits_with_1_is_in_the_table_and_says_so_in_its_help() -> None:
    told = set().union(*(names(commands) for _, commands in rows("exit code 1")))
    said = {name for name, command in COMMANDS.items() if re.search(r"Exit (0[^.]*, )?1\b", helps(command))}
    assert said == told


def test_options_of_one_kind_are_of_one_type() -> None:
    kinds: dict[str, set[str]] = defaultdict(set)
    for command in COMMANDS.values():
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.opts[-1] not in ("--list", "--delete", "--force"):
                kinds[parameter.opts[-1]].add(f"{parameter.is_flag}")
    assert [option for option, kind in kinds.items() if len(kind) > 1] == []


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Queue, str]]:
    """Yield a queue whose suite runs, and the number of a message in it that is deferred for long."""
    queue = Queue(tmp_path_factory.mktemp("options") / "home")
    message = queue.classified(remote=b"Tc@d.example\0")
    with Suite(queue.home):
        yield queue, f"{message}"


def run(queue: Queue, words: str) -> int:
    return queue.run(*words.replace("LOG", f"{queue.home.path}/control").split())


def test_what_is_not_there_is_exit_code_1_in_all_commands_and_is_named(
    running: tuple[Queue, str], capfd: pytest.CaptureFixture[str]
) -> None:
    queue, _ = running
    os.makedirs(f"{queue.home.queue}/postman", exist_ok=True)
    told = set().union(*(names(commands) for cause, commands in rows("exit code 1") if cause != "something was found"))
    # Each command of the table has its uses here.
    tried = {name for name in COMMANDS for words in NAMED + CHOSEN if f"{words} ".startswith(f"{name} ")}
    assert {name for name in tried if name in told} == told and tried - told <= {"maildrop", "postman"}
    for words in NAMED:
        assert run(queue, words) == 1, words
        said = capfd.readouterr().err
        assert re.match(r"queuectl: fatal: unable to find .|[0-9]+[-_][^ ]+: no such (message|copy)$", said), words
    for words in CHOSEN:
        assert (run(queue, words), capfd.readouterr().err) == (1, ""), words


def test_a_text_that_is_no_id_and_a_bare_number_for_a_long_id_are_wrong_in_all_commands(
    running: tuple[Queue, str], capfd: pytest.CaptureFixture[str]
) -> None:
    queue, number = running
    found = look(queue.layout, int(number))
    assert found is not None
    for command in (*BY_ID, "stored no.example"):
        assert run(queue, f"{command} 5-") == 100
        assert "unable to use this id: " in capfd.readouterr().err
    for command in BY_ID:
        if command not in ("show", "log --logs LOG"):
            assert run(queue, f"{command} {number}") == 100
            assert f"name its long id (it is {found.long_id} now)" in capfd.readouterr().err
