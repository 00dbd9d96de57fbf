"""The options and exit codes of all commands of queuectl, as docs/design/administration.md has them."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click

from queue_admin.commands.messages.change import VERBS
from queue_admin.main import group

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "design" / "administration.md").read_text()
SECTION = re.search(r"## Options and exit codes\n(.*?)\n## ", TEXT, re.DOTALL)
ALL = {
    "changing": set(VERBS),
    "choosing": {"list", *VERBS},
    "filing": {"maildrop remove", "maildrop hold", "maildrop release"},
}


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
