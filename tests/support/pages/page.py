"""Runs the commands of a page of the documentation on a machine, and compares what they print with what the page shows.

Every indented block of a page is commands, unless the test says that it is something else; and every command is run,
unless the test says why not. So a command that is new in a page is run by the test, or fails it.
"""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol, TypeVar

from manual_pages.markdown import CodeBlock, Table, blocks, section
from support.pages.machine import Ran
from support.processes.forked import BIN

TOP = BIN.parent
T = TypeVar("T")
# In its numbers, stamps, days and widths of columns what is printed differs from what a page shows.
_VARIES = re.compile(r"@4[0-9a-f]{23}|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b|\d+|  +|…")
# The file gets the text, for as long as it is looked at.
_CHECK = """cd /var/queue/control
mv {control} /run/control 2>/dev/null
cat >{control} <<'END'
{text}
END
queuectl config check
code=$?
rm {control}
mv /run/control {control} 2>/dev/null
cd - >/dev/null
(exit $code)
"""
_DEADLINE = 30.0


class CommandRunner(Protocol):
    """Where the commands are run, such as Machine."""

    def run(self, command: str) -> Ran:
        """Run a command; return its exit code and what it printed."""

    def must(self, command: str) -> str:
        """Run a command that has to succeed; return what it printed."""


class Command(NamedTuple):
    """A command of a page, and the lines that the page shows of what it prints; None if it shows none."""

    text: str
    shown: list[str] | None


class Page(NamedTuple):
    """How a page is run. The keys are beginnings of commands, or of first lines of blocks; each must be in the page."""

    name: str
    # The heading of the section that is run, if it is not the whole page.
    heading: str | None = None
    # Blocks that are no commands, with the reason or what else looks at them.
    texts: Mapping[str, str] = {}
    # Blocks that are the text of a control file, which `config check` has to find good: its name.
    controls: Mapping[str, str] = {}
    # Blocks that are files, such as scripts: where they are written to.
    scripts: Mapping[str, str] = {}
    # Commands that cannot be run, with the reason.
    left: Mapping[str, str] = {}
    # Text in the place of other text of commands and of what they print.
    replaced: Mapping[str, str] = {}
    # What is run before, or after, a command.
    before: Mapping[str, str] = {}
    after: Mapping[str, str] = {}
    # Commands that are to end with another code than 0.
    codes: Mapping[str, int] = {}
    # Commands that show what happens by itself, and are run until they print what the page shows.
    awaited: tuple[str, ...] = ()

    def read(self) -> list[list[str]]:
        """Return the blocks of code."""
        text = (TOP / self.name).read_text()
        if self.heading is not None:
            text = section(text, self.heading)
        return [block.lines for block in blocks(text) if isinstance(block, CodeBlock)]


def commands(lines: list[str]) -> Iterator[Command]:
    """Yield the commands of a block; with what is shown, if some of its lines begin with `$ `."""
    if any(line.startswith("$ ") for line in lines):
        text, shown = "", list[str]()
        for line in lines:
            if line.startswith("$ "):
                if text:
                    yield Command(text, shown)
                text, shown = line[2:], []
            else:
                shown.append(line)
        yield Command(text, shown)
        return
    whole: list[str] = []
    for line in lines:
        whole.append(line)
        text = "\n".join(whole)
        if not line.endswith("\\") and subprocess.run(["bash", "-n"], input=text.encode(), check=False).returncode == 0:
            if text.strip():
                yield Command(text, None)
            whole = []
    assert not whole, f"no end of a command: {whole}"


def table_commands(name: str) -> Iterator[str]:
    """Yield the commands of queuectl and sendmail in the last columns of a page's tables."""
    for block in blocks((TOP / name).read_text()):
        for row in block.rows if isinstance(block, Table) else ():
            yield from re.findall(r"`((?:queuectl|sendmail|mailq)\b[^`]*)`", row[-1])


def differences(shown: list[str], printed: str) -> list[str]:
    """Return the lines that are shown and not printed, or printed and not shown; `…` is any text, or any lines."""
    patterns = [(line, _pattern(line)) for line in shown if line.strip() != "…"]
    lines = printed.splitlines()
    missing = [f"not printed: {line}" for line, pattern in patterns if not any(map(pattern.fullmatch, lines))]
    if len(patterns) < len(shown):
        return missing
    return missing + [f"not shown: {line}" for line in lines if not any(each.fullmatch(line) for _, each in patterns)]


def _pattern(line: str) -> re.Pattern[str]:
    parts, at = [], 0
    for match in _VARIES.finditer(line):
        parts += [re.escape(line[at : match.start()]), _any(match[0])]
        at = match.end()
    return re.compile("".join(parts) + re.escape(line[at:]))


def _any(text: str) -> str:
    if text.startswith("@4"):
        return "@4[0-9a-f]{23}"
    return {"…": ".*", " ": " +"}.get(text[0], r"\d+" if text[0].isdigit() else "[A-Z][a-z][a-z]")


class Walk:
    """A page on a machine. `used` has the keys of the page's tables that were met."""

    def __init__(self, page: Page, machine: CommandRunner) -> None:
        self._page = page
        self._machine = machine
        self._used: set[str] = set()

    def run(self) -> None:
        """Run the whole page."""
        for lines in self._page.read():
            if self._find(self._page.texts, lines[0]) is None:
                self._block(lines)
        page = self._page
        blocks_only = (page.texts, page.controls, page.scripts)
        tables = (*blocks_only, page.left, page.replaced, page.before, page.after, page.codes)
        unused = {key for table in tables for key in table} | set(page.awaited)
        assert unused == self._used, f"{page.name} has no such commands or blocks: {sorted(unused - self._used)}"

    def _block(self, lines: list[str]) -> None:
        control, script = self._find(self._page.controls, lines[0]), self._find(self._page.scripts, lines[0])
        if control is not None:
            text = self._replace("\n".join(lines))
            self._machine.must(_CHECK.format(control=control, text=text))
            return
        if script is not None:
            text = self._replace("\n".join(lines))
            self._machine.must(f"cat >{script} <<'END'\n{text}\nEND")
            if text.startswith("#!"):
                self._machine.must(f"chmod 755 {script}")
            return
        for command in commands(lines):
            if self._find(self._page.left, command.text) is None:
                self._command(command)

    def _command(self, command: Command) -> None:
        page = self._page
        for script in self._all(page.before, command.text):
            self._machine.must(script)
        text = self._replace(command.text)
        shown = None if command.shown is None else [self._replace(line) for line in command.shown]
        code = self._find(page.codes, command.text) or 0
        awaited = next((key for key in page.awaited if command.text.startswith(key)), None)
        end = time.monotonic() + (_DEADLINE if awaited else 0)
        self._used |= {awaited} if awaited else set()
        while True:
            ran = self._machine.run(text)
            wrong = [] if shown is None else differences(shown, ran.text)
            if ran.code == code and not wrong:
                break
            if time.monotonic() >= end:
                logs = self._machine.run("tail -n 20 /var/log/queue*/current").text
                told = [f"{page.name}: {text}", f"exit code {ran.code}", ran.text[-4000:], *wrong, logs]
                raise AssertionError("\n".join(told))
            time.sleep(0.1)
        for script in self._all(page.after, command.text):
            self._machine.must(script)

    def _find(self, table: Mapping[str, T], text: str) -> T | None:
        return next(iter(self._all(table, text)), None)

    def _all(self, table: Mapping[str, T], text: str) -> list[T]:
        found = [key for key in table if text.startswith(key)]
        self._used.update(found)
        return [table[key] for key in found]

    def _replace(self, text: str) -> str:
        for old, new in self._page.replaced.items():
            if old in text:
                self._used.add(old)
                text = text.replace(old, new)
        return text
