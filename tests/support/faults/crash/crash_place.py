"""A queue that programs are run on under the crash model, and what must hold of it while they run."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from queue_base.home import Home
from queue_base.queue.layout import FILE_MODE, MESS_MODE, Layout, open_layout
from queue_wire.failures import pack_failure
from queue_wire.files.envelope import pack_info
from queue_wire.pipes.notice import (
    WRITTEN,
    Arrived,
    Ask,
    Classified,
    ClassifyAnswer,
    ClassifyDeferral,
    Held,
    Notice,
    NoticeReader,
    Reread,
    unpack_notice,
)
from support.faults.crash.crash_checks import CLASSIFIED, QUEUED, Check, Message
from support.faults.crash.crash_model import Crash, CrashModel
from support.faults.nameless import DEFINED, REFUSED
from support.faults.traced import converse_traced, run_traced
from support.processes.suite import program
from support.queues.home import make_home

BODY = b"Subject: hello\n\n" + b"This is a line of the body.\n" * 40
SENDER = b"a@example.org"
RECIPIENTS = {b"b@example.net", b"c@me.example.org", b"d@example.com"}
ENVELOPE = b"Fa@example.org\0Tb@example.net\0Tc@me.example.org\0Td@example.com\0\0"
GONE_OR_SWEPT = (1, 2)
WRITER = "from queue_inject.writers import open_writer"
# On a file system that has no nameless files; and where descriptors are short for some of them.
NAMED = f"{WRITER}\n{REFUSED}"
MIXED = f"{WRITER}\n{DEFINED}n = iter(range(99))\n"
MIXED += f"refuse_nameless(lambda mode: mode != {MESS_MODE} and next(n) % 2 == 0)\n"

# The first record about a message: its log line, or its full notice.
_FIRST = re.compile(rb"Lnew msg |[0-9]+:[AC][0-9]")
# What queue-todo says, of which bytes are a line for the log.
Sent = Notice | ClassifyAnswer | Held | Ask | bytes


class Place:
    """A home, its layout as the model sees it (`layout`) and on the disk (`disk`), and the model of its queue."""

    def __init__(self, path: Path, flat: bool = False) -> None:
        self.home: Home = make_home(path / "home", split=3, flat=flat)
        (path / "home" / "control" / "locals").write_bytes(b"me.example.org\n")
        self.disk = open_layout(self.home.queue)
        self.layout = Layout("", self.disk.split, self.disk.flat_todo, self.disk.flat_intd)
        self.trace = path / "trace"
        self.model = CrashModel(Path(self.home.queue))

    def run(self, name: str, *, envelope: bytes | None = None, stdin: bytes = b"", fault: str = "") -> int:
        command = [*program(name), "--home", self.home.path]
        return run_traced(self.model, self.trace, command, stdin=stdin, envelope=envelope, fault=fault)

    def converse(
        self,
        name: str,
        request: bytes,
        enough: Callable[[bytes], bool],
        done: Callable[[], bool] = lambda: True,
        answer: Callable[[Sent], bytes] = lambda notice: b"",
    ) -> bytes:
        """Run a daemon as `converse_traced` does. `answer` returns what is said to each notice of queue-todo."""
        command = [*program(name), "--home", self.home.path]
        answers = Answers(answer) if name == "queue-todo" else lambda output: b""
        return converse_traced(self.model, self.trace, command, request, enough, done, answers)

    def enqueue(self, count: int, writer: str = WRITER, hold: bytes = b"", priority: str = "") -> None:
        """Put messages in the queue with one process, in one group, with the writer that `open_writer` gives.

        With `hold` they are on hold from the beginning, and copied for the postmaster, for this reason. `priority`:
        their class.
        """
        script = (
            f"import sys; from queue_base.home import Home; {writer}\n"
            f"writer = open_writer(Home(sys.argv[1])); writer.priority = {priority!r}\n"
            "drafts = [writer.begin() for n in range(int(sys.argv[2]))]\n"
            f"for draft in drafts:\n draft.write({BODY!r})\n if {hold!r}: draft.hold = draft.copy = {hold!r}\n"
            f" draft.finish({SENDER!r}, {sorted(RECIPIENTS)!r})\n"
            "writer.commit(drafts)\n"
        )
        command = [sys.executable, "-c", script, self.home.path, str(count)]
        assert run_traced(self.model, self.trace, command) == 0

    def numbers(self) -> list[int]:
        return [int(name) for bucket in self.disk.directories("mess") for name in os.listdir(bucket)]

    def classified(self, count: int) -> list[int]:
        """Make messages in S5, every recipient done, with a bounce record; return their numbers."""
        numbers = []
        for _ in range(count):
            number = make_file(self.disk.queue + "/pid/x", BODY, MESS_MODE)
            os.rename(self.disk.queue + "/pid/x", self.disk.mess(number))
            make_file(self.disk.hashed("info", number), pack_info(SENDER), FILE_MODE)
            make_file(self.disk.hashed("local", number), b"Dc@me.example.org\0", FILE_MODE)
            make_file(self.disk.hashed("remote", number), b"Db@example.net\0Dd@example.com\0", FILE_MODE)
            make_file(self.disk.bounce(number), pack_failure(b"b@example.net", b"No such user."), FILE_MODE)
            numbers.append(number)
        self.model.restart()
        return numbers


def make_file(path: str, data: bytes, mode: int) -> int:
    """Make a file, return its inode number."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        os.write(handle, data)
        return os.fstat(handle).st_ino
    finally:
        os.close(handle)


def queued_when_exit_code_is_0(count: int) -> Check:
    """After exit 0 there are `count` messages in S4 or S5, whole, with everything that was asked for."""

    def check(crash: Crash, found: dict[int, Message]) -> list[str]:
        if crash.exit_code != 0:
            return []
        wrong = [] if len(found) == count else [f"exit 0, and {len(found)} messages"]
        for number, message in found.items():
            if message.state not in (QUEUED, CLASSIFIED):
                wrong.append(f"exit 0, and message {number} is in S{message.state}")
            elif message.sender() != SENDER or message.owed() != RECIPIENTS:
                wrong.append(f"exit 0, and the envelope of {number} is {message.sender()!r} {message.owed()!r}")
            elif not message.files["mess"].content.endswith(BODY):
                wrong.append(f"exit 0, and mess of {number} is not what was given")
        return wrong

    return check


def nobody_is_forgotten(crash: Crash, found: dict[int, Message]) -> list[str]:
    """Every message is in S4 or S5 and still owes every recipient."""
    return [
        f"message {number} is in S{message.state} and owes {message.owed()!r}"
        for number, message in found.items()
        if message.state not in (QUEUED, CLASSIFIED) or message.owed() != RECIPIENTS
    ]


class Answers:
    """What queue-send writes to queue-todo, given all that this has said: to each notice what `answer` returns, and
    that its lines are in the log, where it asks for that.
    """

    def __init__(self, answer: Callable[[Sent], bytes]) -> None:
        self._answer = answer
        self._seen = 0
        self._given = b""

    def __call__(self, said: bytes) -> bytes:
        sent = queue_notices(said)
        for notice in sent[self._seen :]:
            self._given += WRITTEN if notice is Ask.WRITTEN else self._answer(notice)
        self._seen = len(sent)
        return self._given


def queue_notices(said: bytes) -> list[Sent]:
    """Return the whole records of what queue-todo said."""
    found = [unpack_notice(record) for record in _records(said)]
    return [notice for notice in found if not isinstance(notice, Reread | ClassifyDeferral)]


def _records(said: bytes) -> list[bytes]:
    """Return the whole records of what queue-todo said; a child of it may have said something before."""
    begin = _FIRST.search(said)
    return NoticeReader().feed(said[begin.start() :]) if begin else []


def announced(said: bytes) -> list[int]:
    """Return the ids in the whole notices of what queue-todo said."""
    return [notice.message for notice in queue_notices(said) if isinstance(notice, Classified | Arrived)]


def classified_when_announced(crash: Crash, found: dict[int, Message]) -> list[str]:
    """What queue-send was told of stays classified: it may be delivered and removed at once."""
    return [
        f"message {number} was announced and is in S{found[number].state if number in found else 1}"
        for number in announced(crash.said)
        if number not in found or found[number].state != CLASSIFIED
    ]


def gone_when_answered(numbers: list[int]) -> Check:
    """A message for which queue-clean has said + never comes back, but as S2."""

    def check(crash: Crash, found: dict[int, Message]) -> list[str]:
        done = [number for number, answer in zip(numbers, crash.said, strict=False) if answer == ord("+")]
        return [
            f"message {number} was removed and is in S{found[number].state}"
            for number in done
            if number in found and found[number].state not in GONE_OR_SWEPT
        ]

    return check


def dropped_or_queued(count: int) -> Check:
    """After exit 0 each message is whole in maildrop/, or in S4 with everything that was asked for, or both."""

    def check(crash: Crash, found: dict[int, Message]) -> list[str]:
        if crash.exit_code != 0:
            return []
        finished = [file for path, file in crash.files.items() if path.startswith("maildrop/mail.")]
        queued = [message for message in found.values() if message.state == QUEUED]
        wrong = [f"a piece in maildrop: {file.content[:40]!r}" for file in finished if not file.whole]
        wrong += ["a wrong envelope" for message in queued if message.owed() != RECIPIENTS]
        wrong += ["a wrong message" for message in queued if not message.files["mess"].content.endswith(BODY)]
        enough = len(finished) + len(queued) >= count
        return wrong if enough else [*wrong, f"{len(finished)} left, {len(queued)} queued"]

    return check


def classified_until_cleaned(crash: Crash, found: dict[int, Message]) -> list[str]:
    """Once it was announced a message is never S4 again, whatever queue-clean is doing to it."""
    again = [number for number in announced(crash.said) if number in found and found[number].state == QUEUED]
    return [f"message {number} is in S4 again" for number in again]
