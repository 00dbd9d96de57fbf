"""Each rule that qmail's manuals give for qmail-inject, with its example: the rows of inject_rules.txt."""

import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from queue_base.home import Home
from queue_inject.header.completer import Completer
from queue_inject.header.fields import HeaderReader
from queue_inject.main import Options
from queue_wire.format_error import FormatError
from support.queues.home import make_home

SECONDS = 1795000000
SENDER = b"djb@silverton.berkeley.edu"
_ADDED = re.compile(rb"(Resent-)?(Date|Message-ID|From|Cc): [^\n]*")


class Rule(NamedTuple):
    """A row of the table: its title, and its lines by their first character."""

    title: str
    lines: dict[str, list[bytes]]


def read_rules() -> list[Rule]:
    """Return the rows of the table."""
    rules: list[Rule] = []
    for line in (Path(__file__).parent / "inject_rules.txt").read_text().splitlines():
        sign, _, text = line.partition(" ")
        if sign == "==":
            rules.append(Rule(text, {sign: [] for sign in "$%<+>LFT!"}))
        elif rules and sign:
            escaped = re.sub(rb"\\x(..)", lambda match: bytes.fromhex(match[1].decode()), text.encode())
            rules[-1].lines[sign].append(escaped.replace(b"\\t", b"\t"))
    return rules


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return a home with the names of qmail's examples, and hide the user who runs the test."""
    for name in list(os.environ):
        if name.startswith(("QUEUE_", "QMAIL", "MAIL")) or name in ("USER", "LOGNAME", "NAME"):
            monkeypatch.delenv(name)
    home = make_home(tmp_path / "home")
    for name in ("defaultdomain", "plusdomain"):
        Path(home.control, name).write_text("berkeley.edu\n")
    Path(home.control, "defaulthost").write_text("silverton+\n")
    return home


def completer_for(home: Home, arguments: list[str]) -> Completer:
    options = Options(arguments)
    return Completer(home, options.mode, options.sender, options.recipients)


def test_the_table_has_rows_of_every_page() -> None:
    titles = [rule.title for rule in read_rules()]
    assert len(titles) == len(set(titles)) > 50
    for page in ("qmail-inject(8)", "qmail-header(5)", "addresses(5)", "RFC 5322", "RFC 6532", "refused"):
        assert any(title.startswith(page) for title in titles)


@pytest.mark.parametrize("rule", read_rules(), ids=[rule.title for rule in read_rules()])
def test_queue_inject_keeps_the_rule(rule: Rule, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = rule.lines
    monkeypatch.setenv("USER", "djb")
    for variable in lines["%"]:
        name, _, value = variable.decode().partition("=")
        monkeypatch.setenv(name, value)
    if lines["L"]:
        Path(home.path, "lists").write_bytes(b"\n".join(lines["L"]))
        monkeypatch.setenv("QMAILMFTFILE", home.path + "/lists")
    reader = HeaderReader()
    reader.feed(b"".join(line + b"\n" for line in lines["<"]))
    reader.end()
    completer = completer_for(home, [os.fsdecode(argument) for argument in lines["$"]])
    if lines["!"]:
        with pytest.raises(FormatError) as caught:
            completer.complete(reader.fields, SECONDS * 10**9)
        assert lines["!"][0].decode() in f"unable to parse {getattr(caught.value, 'where', '')}: {caught.value}"
        return

    done = completer.complete(reader.fields, SECONDS * 10**9)

    kept = b"".join(line + b"\n" for line in lines[">"] or lines["<"])
    assert done.text.endswith(kept)
    added = done.text.removesuffix(kept).splitlines()
    if not lines["+"]:
        assert all(_ADDED.fullmatch(line) for line in added)
    else:
        added = [re.sub(rb"((?:Resent-)?(Date|Message-ID)): .+", rb"\1: \2", line) for line in added]
        assert [line.replace(b": Message-ID", b": ID").replace(b": Date", b": DATE") for line in added] == lines["+"]
    sender = lines["F"][0] if lines["F"] else SENDER
    assert done.sender == sender.replace(b"PID", b"%d" % os.getpid())
    if lines["T"]:
        assert done.recipients == lines["T"]


def test_messages_of_one_process_have_different_ids_whatever_the_clock_says(home: Home) -> None:
    completer = completer_for(home, ["a@b.x"])
    headers = [completer.complete([], SECONDS * 10**9 - later * 1000).text for later in (0, 0, 1, -1)]

    assert len({re.findall(rb"^Message-ID: <(.*)>$", header, re.MULTILINE)[0] for header in headers}) == 4
