"""What must hold of a queue after any power cut: every message is in one of S1 to S5, and what counts is whole.

The rule for states is the queue's own (queue_base.queue.layout), asked about the files of a Crash instead of
the disk. `check_queue` runs a model through these checks and others, and fails with the first few
disks that break one.
"""

from collections.abc import Callable, Iterable, Iterator

from queue_base.queue.layout import PRIORITY, Layout, Presence
from queue_base.queue.marks_file import read_seed
from queue_wire.files.cluster import ClusterRecord, cluster_number, unpack_cluster
from queue_wire.files.envelope import unpack_info, unpack_todo
from queue_wire.files.marks import DoneMarks, unpack_file
from queue_wire.files.recipients import unpack_pending
from queue_wire.format_error import FormatError
from support.faults.crash.crash_model import Crash, CrashModel, File

KINDS = ("mess", "intd", "todo", "info", "local", "remote", "bounce")
QUEUED = 4
CLASSIFIED = 5


class Message:
    """A message as a Crash has it: `files` maps kinds to File, `state` is 1 to 5 or None."""

    def __init__(self, number: int, files: dict[str, File]) -> None:
        self.number = number
        self.files = files
        listed = {kind: {number} if kind in files else set[int]() for kind in KINDS}
        self.state = Presence(Layout("", 1, False, False), number, listed).state()

    def sender(self) -> bytes:
        """Return the envelope sender of a message in S4 or S5. Raises FormatError."""
        if self.state == QUEUED:
            return unpack_todo(self.files["todo"].content).sender
        return unpack_info(self.files["info"].content)

    def owed(self) -> set[bytes]:
        """Return the recipients that a message in S4 or S5 will still be sent to. Raises FormatError."""
        if self.state == QUEUED:
            return set(unpack_todo(self.files["todo"].content).recipients)
        files = [self.files[kind] for kind in ("local", "remote") if kind in self.files]
        return {address for file in files for _, address in unpack_pending(file.content)}

    def done(self) -> set[bytes]:
        """Return the recipients that are marked in local/ and remote/."""
        contents = [self.files[kind].content for kind in ("local", "remote") if kind in self.files]
        return {field[1:] for content in contents for field in content.split(b"\0") if field[:1] == b"D"}


Check = Callable[[Crash, dict[int, Message]], Iterable[str]]


def messages(crash: Crash, layout: Layout) -> dict[int, Message]:
    """Return the messages that have any file, by number. `layout.queue` is relative to the model's root."""
    found: dict[int, dict[str, File]] = {}
    top = layout.queue + "/" if layout.queue else ""
    for path, file in crash.files.items():
        kind, _, rest = path.removeprefix(top).partition("/")
        name = rest.rpartition("/")[2]
        if kind == PRIORITY and not rest.startswith("."):
            kind = "todo"  # It is in the tree of a class.
            assert kind not in found.get(int(name), {}), f"{name} has two envelopes"
        if path.startswith(top) and kind in KINDS and name.isdigit():
            found.setdefault(int(name), {})[kind] = file
    return {number: Message(number, files) for number, files in found.items()}


def problems(crash: Crash, found: dict[int, Message], layout: Layout) -> list[str]:
    """Return what is wrong with the queue, whatever was being done."""
    wrong = []
    for number, message in found.items():
        files = message.files
        if message.state is None:
            wrong.append(f"message {number} is in no state: it has {', '.join(sorted(files))}")
            continue
        if crash.files.get(layout.mess(number).removeprefix("/")) is not files["mess"]:
            wrong.append(f"mess of {number} is in the wrong directory")
        if files["mess"].inode.number != number:
            wrong.append(f"mess of {number} has the inode number {files['mess'].inode.number}")
        if message.state < QUEUED:
            continue
        wrong += [
            f"message {number} is in S{message.state} and its {kind} is not whole: {files[kind].content[:60]!r}"
            for kind in (("mess", "todo") if message.state == QUEUED else ("mess", "info", "local", "remote"))
            if kind in files and not files[kind].whole
        ]
        try:
            message.sender()
            message.owed()
        except FormatError as error:
            wrong.append(f"message {number} is in S{message.state} and cannot be read: {error}")
    return wrong


def records(crash: Crash, layout: Layout) -> dict[int, DoneMarks]:
    """Return the valid records in queue/marks by message. They count after a kill, not after a power cut."""
    file = crash.files.get(f"{layout.queue}/marks".removeprefix("/"))
    found = {} if file is None else unpack_file(file.content, read_seed())
    return {marks.envelope.message: marks for marks in found.values()}


def waiting_records(crash: Crash) -> Iterator[tuple[str, int, ClusterRecord]]:
    """Yield (domain, cluster, record) for all stored mail that a process would find. The model's root is queue/."""
    for path, file in crash.files.items():
        top, _, rest = path.partition("/")
        domain, _, name = rest.partition("/")
        number = cluster_number(name)
        if top == "ondemand" and number is not None:
            for record in unpack_cluster(file.content).pending:
                yield domain, number, record


def broken(model: CrashModel, layout: Layout, *checks: Check, most: int = 2048) -> tuple[int, list[str]]:
    """Return how many disks were looked at, and a line for each of the first ten that break something.

    With `most` 0 the disks are those that a kill of all processes leaves.
    """
    count, lines = 0, []
    for crash in model.crashes(most):
        count += 1
        found = messages(crash, layout)
        wrong = problems(crash, found, layout)
        if not wrong:
            wrong = [line for check in checks for line in check(crash, found)]
        if wrong:
            what = "power cut" if most else "kill"
            lines.append(f"a {what} after {crash.point}: {crash.call} may leave: {'; '.join(wrong)}")
            if len(lines) == 10:
                break
    return count, lines


def check_queue(model: CrashModel, layout: Layout, *checks: Check, most: int = 2048) -> int:
    """Return how many disks were looked at; fail where one of them breaks the queue or a check."""
    count, lines = broken(model, layout, *checks, most=most)
    assert not lines, "\n".join(lines)
    return count
