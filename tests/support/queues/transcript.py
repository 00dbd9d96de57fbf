"""Transcripts of queuectl: the state of a home in a few words, commands, and what each prints, in a text file.

    The sentence that the commands show
        home split=3
        message one classified a@b local:Dx@y,Tz@y remote:Tr@s due:5
        $ echo 600 > control/timeoutremote
        $ queuectl list <one>
        <one> classified <age> 18 <a@b> to z@y <any>
        ! a line of stderr
        [1]

A title is at the beginning of a line, and what belongs to it is indented by four spaces. Its lines are:

- `home WORDS`: of HOMES; with `or` between two of them the transcript is run in both homes.
- `message NAME STATE`: puts a message into the queue. STATE is `incoming`; `queued SENDER RECIPIENT…`; or `classified
  SENDER`, with the records of local/ and remote/, and when they are due. In a home with several queues NAME@QUEUE.
- `result NAME CHANNEL:OFFSET NEXTHOP TIME TEXT`: puts the last result of a recipient into last/.
- `certificate`: puts certificate.pem and key.pem into control/.
- `$ COMMAND`: runs a command of the shell in the directory of the home. queuectl runs within this process; its input
  and its output may be a pipe from and to the shell, and the exit code is that of queuectl.
- All lines below a command are what it prints: those of stdout, then those of stderr after `! `, then the exit code in
  brackets unless that is 0.

A line that ends in ` \\` goes on in the next one, without its indentation. Placeholders are, in commands and in what
they print: `<home>` and `<above>`, the directory of the home and the one above it; `<uid>` and `<group>`, and `<user>`,
a uid that may have mail; and of each message `<NAME>`, its long id, `<NAME.padded>`, the same in a column of 17,
`<NAME.inode>`, and `<NAME.path>`, its path below info/. In what is printed there are also those of PATTERNS, and `...`,
a line that stands for any lines.
"""

import codecs
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from queue_admin.main import main
from queue_wire.files.last_result import pack_header, pack_result
from queue_wire.ids import pack_long_id
from support.queues.home import make_home, make_several
from support.queues.listed_queue import BIRTH, SOON, Queue
from support.servers.certificate import make_certificate

HOMES = {
    "hashed": "todo/ has buckets",
    "flat": "todo/ has none",
    "split=3": "three buckets instead of 23",
    "queues=a,b": "two queues",
    "dns": "control/resolver names a server with ZONE",
}
ZONE = """
two         MX 20 far
            MX 10 near
            MX 30 me
            MX 40 beyond
near        A 198.51.100.1
            AAAA 2001:db8::1
far         A 198.51.100.2
null        MX 0 .
half        MX 10 broken
            MX 20 far
broken      CNAME broken2
broken2     CNAME broken
bare        A 198.51.100.3
"""
PATTERNS = {
    "any": r".*",
    "age": r"\d+[smhd](?:\d+[smh])?",
    "time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "number": r"\d+",
}
PLACEHOLDER = re.compile(r"<([a-z][a-z0-9-]*(?:\.[a-z]+)?)>")


class Step(NamedTuple):
    """A line of a transcript, and what is below it as what it prints."""

    line: str
    printed: list[str]


class Transcript(NamedTuple):
    """One sentence about queuectl with the steps that show it, in one kind of home."""

    name: str
    home: list[str]
    steps: list[Step]


def read_transcripts(path: Path) -> Iterator[Transcript]:
    """Yield the transcripts of a file, one for each home."""
    text = re.sub(r"(?m)^#.*\n", "", path.read_text())
    for name, body in re.findall(r"(?m)^(\S.*)\n((?:(?: {4}.*)?\n)*)", text):
        steps: list[Step] = []
        homes = ["hashed"]
        for line in re.sub(r" \\\n +", " ", body.rstrip("\n")).split("\n"):
            line = line.removeprefix("    ")
            if line.startswith("home "):
                homes = line.removeprefix("home ").split(" or ")
            elif line.startswith(("$ ", "message ", "result ", "certificate")):
                steps.append(Step(line, []))
            else:
                steps[-1].printed.append(line)
        for home in homes:
            yield Transcript(name + f" ({home})" * (len(homes) > 1), home.split(), steps)


class Player:
    """Runs the steps of a transcript in a home of its own, below `path`."""

    def __init__(
        self, path: Path, words: list[str], capture: pytest.CaptureFixture[str], find_resolver: Callable[[], str]
    ) -> None:
        assert set(words) <= HOMES.keys(), words
        split = 3 if "split=3" in words else 23
        if "queues=a,b" in words:
            self.home = make_several(path / "home", "a", "b", split=split)
        else:
            self.home = make_home(path / "home", split=split, flat="flat" in words)
        Path(self.home.control, "classifyafter").unlink(missing_ok=True)
        Path(self.home.control, "locals").write_text("me.example.org\n")
        if "dns" in words:
            Path(self.home.control, "resolver").write_text(f"{find_resolver()}\n")
        self._capture = capture
        self._known = {"home": self.home.path, "above": str(path), "uid": str(os.getuid())}
        self._known |= {"user": str(os.getuid() or 12345), "group": str(os.getgid())}

    def play(self, step: Step) -> None:
        """Run a step; fail with the difference if it prints anything else."""
        kind, _, rest = step.line.partition(" ")
        if kind != "$":
            assert not step.printed, step
            if kind == "message":
                self._put_message(*rest.split(" "))
            elif kind == "result":
                self._put_result(*rest.split(" ", 4))
            else:
                make_certificate(Path(self.home.control))
            return
        code, said, errors = self._run(PLACEHOLDER.sub(lambda match: self._known.get(match[1], match[0]), rest))
        lines = [*said.splitlines(), *(f"! {line}" for line in errors.splitlines()), *([f"[{code}]"] if code else [])]
        found = self._name_known(lines, step.printed)
        assert found == step.printed, "\n".join([step.line, *difflib.ndiff(step.printed, found)])

    def _put_message(self, name: str, state: str, sender: str = "", *words: str) -> None:
        name, _, where = name.partition("@")
        home = self.home.choose(where) if where else self.home
        queue = Queue(home)
        whose = b"" if sender == "<>" else sender.encode()
        if state == "incoming":
            message = queue.mess()
        elif state == "queued":
            message = queue.queued(whose, tuple(word.encode() for word in words))
        else:
            assert state == "classified"
            options = dict(word.split(":", 1) for word in words)
            records = {
                kind: b"".join(record.encode() + b"\0" for record in options.get(kind, "").split(",") if record)
                for kind in ("local", "remote")
            }
            message = queue.classified(whose, records["local"], records["remote"], float(options.get("due", SOON)))
        path = os.path.relpath(queue.layout.mess(message), f"{home.queue}/mess")
        self._known |= {name: pack_long_id(message, BIRTH), f"{name}.inode": str(message), f"{name}.path": path}
        self._known[f"{name}.padded"] = f"{self._known[name]:<17}"

    def _put_result(self, name: str, record: str, nexthop: str, when: str, text: str) -> None:
        channel, offset = record.split(":")
        path = Path(self.home.queue, "last", self._known[f"{name}.path"])
        if not path.exists():
            path.write_bytes(pack_header(BIRTH))
        clean = codecs.escape_decode(text.encode())[0]
        with path.open("ab") as file:
            file.write(pack_result(channel, int(offset), int(when), nexthop.encode(), clean))

    def _run(self, command: str) -> tuple[int, str, str]:
        parts = re.fullmatch(r"(?:(.*) \| )?queuectl\b((?:[^|']|'[^']*')*)(?:\| (.*))?", command, re.DOTALL)
        if parts is None:
            return self._shell(command, "")
        given = self._shell(parts[1], "")[1] if parts[1] else ""
        if "$(" in parts[2]:
            words = self._shell(f"printf '%s\\0' {parts[2]}", "")[1].split("\0")[:-1]
        else:
            words = shlex.split(parts[2])
        code, said, errors = self._queuectl(words, given)
        if parts[3]:
            # A filter, as sort, is to work on what is the same at each run.
            for name, value in self._known.items():
                said = said if name in ("uid", "user", "group") or "." in name else said.replace(value, f"<{name}>")
            said = self._shell(parts[3], said)[1]
        return code, said, errors

    def _shell(self, command: str, given: str) -> tuple[int, str, str]:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.home.path,
            input=given.encode(),
            env={**os.environ, "LC_ALL": "C"},
            capture_output=True,
            timeout=60,
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def _queuectl(self, words: list[str], given: str) -> tuple[int, str, str]:
        self._capture.readouterr()
        saved, stdin = os.dup(0), sys.stdin
        with tempfile.TemporaryFile() as file:
            file.write(given.encode())
            file.seek(0)
            os.dup2(file.fileno(), 0)
        try:
            with open(0, closefd=False) as sys.stdin:
                code = main(["queuectl", "--home", self.home.path, *words])
        finally:
            sys.stdin = stdin
            os.dup2(saved, 0)
            os.close(saved)
        return code, *self._capture.readouterr()

    def _name_known(self, lines: list[str], printed: list[str]) -> list[str]:
        """Return the lines with the placeholders that were promised for them, all as promised if they match."""
        patterns = [r"(?s:.*\n|)" if line == "..." else self._pattern(line) + r"\n" for line in printed]
        if re.fullmatch("".join(patterns), "".join(line + "\n" for line in lines)):
            return printed
        promised = [(line, re.compile(self._pattern(line))) for line in printed]
        return [next((line for line, match in promised if match.fullmatch(found)), found) for found in lines]

    def _pattern(self, line: str) -> str:
        pieces = PLACEHOLDER.split(line)
        for at in range(1, len(pieces), 2):
            name = pieces[at]
            exact = f"(?:{re.escape(self._known[name])}|<{name}>)" if name in self._known else re.escape(f"<{name}>")
            pieces[at] = PATTERNS.get(name, exact)
        pieces[::2] = [re.escape(piece) for piece in pieces[::2]]
        return "".join(pieces)
