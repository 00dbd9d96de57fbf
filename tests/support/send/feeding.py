"""Letters into the queue: many through one process, or one through a real injector."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from queue_base.home import Home
from support.processes.suite import enqueue, inject
from support.queues.letters import Letter, letter_text

TESTS = Path(__file__).resolve().parents[2]


class Queued(NamedTuple):
    """A letter that is queued: its token, its message id, and the monotonic time in seconds when that was said."""

    token: str
    message: int
    time: float


class Bulk:
    """A process of support.inject.bulk_inject at work on some letters. `place`: the queue and the class."""

    def __init__(
        self, home: Home, letters: list[Letter], group: int = 1, pace: float = 0, place: tuple[str, ...] = ()
    ) -> None:
        # Files, because nobody reads or writes pipes while it works.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        with tempfile.TemporaryFile() as asked:
            asked.write("".join(letter.pack() + "\n" for letter in letters).encode())
            asked.seek(0)
            self.process = subprocess.Popen(
                [sys.executable, "-m", "support.inject.bulk_inject", home.path, str(group), str(pace), *place],
                stdin=asked,
                stdout=self._said,
                env={**os.environ, "PYTHONPATH": str(TESTS)},
                cwd=TESTS.parent,
            )

    def wait(self, deadline: float = 120.0) -> list[Queued]:
        """Return what it said is queued, once it has ended; it may have been killed."""
        self.process.wait(deadline)
        with self._said:
            self._said.seek(0)
            output = self._said.read()
        # A last line without its newline was cut off by a kill.
        lines = [line.split() for line in output.decode().splitlines(keepends=True) if line.endswith("\n")]
        return [Queued(token, int(message), float(time)) for token, message, time in lines]


def bulk(home: Home, letters: list[Letter], group: int = 1, pace: float = 0) -> list[Queued]:
    """Inject letters, all of them; return them as they were queued."""
    work = Bulk(home, letters, group, pace)
    queued = work.wait()
    assert work.process.returncode == 0
    assert [each.token for each in queued] == [letter.token for letter in letters]
    return queued


def by_enqueue(home: Home, letter: Letter) -> None:
    """Send one letter through queue-enqueue."""
    recipients = [recipient.encode() for recipient in letter.recipients]
    done = enqueue(home, letter.sender.encode(), recipients, letter_text(letter.token))
    assert done.returncode == 0, done.stderr


def by_inject(home: Home, letter: Letter) -> None:
    """Send one letter through queue-inject."""
    done = inject(home, letter.sender, letter.recipients, letter_text(letter.token))
    assert done.returncode == 0, done.stderr
