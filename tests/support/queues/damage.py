"""Queues with known messages, damage done to them, and what could be delivered from them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from queue_admin.checks.inspection import inspect
from queue_admin.checks.message_paths import PLACES, path_of
from queue_admin.checks.queue_stamp import write_stamp
from queue_admin.checks.structure import find_layout
from queue_admin.home.create import create_home
from queue_admin.system_accounts import myself
from queue_base.home import Home
from queue_base.queue.layout import Layout, open_layout
from queue_wire.failures import pack_failure
from queue_wire.files.envelope import Envelope, pack_info, pack_todo, unpack_info, unpack_todo
from queue_wire.files.recipients import pack_marked, unpack_recipients

NOW = 1_800_000_000.0
BIRTH = 1_700_000_000_123_456_000  # Nanoseconds.
DUE = 1_700_000_500


class Deliverable(NamedTuple):
    """What is to be delivered of one message: everything that repair has to keep."""

    body: bytes
    state: str
    birth: int
    sender: bytes
    recipients: tuple[tuple[str, bool, bytes], ...]
    due: tuple[int, ...]
    hold: bytes | None
    bounce: bytes | None


def rename_message(layout: Layout, old: int, new: int) -> None:
    """Give all files of a message another number."""
    for kind in PLACES:
        if os.path.lexists(path_of(layout, kind, old)):
            os.rename(path_of(layout, kind, old), path_of(layout, kind, new))


class KnownQueue:
    """A home that init made, with messages in every state."""

    def __init__(self, path: Path, split: int = 3, fill: bool = True) -> None:
        self.home = Home(str(path))
        before = os.umask(0o022)
        try:
            create_home(self.home, myself(), myself(), me="me.example.org", split=split)
        finally:
            os.umask(before)
        self.layout: Layout = open_layout(self.home.queue)
        self.messages: dict[str, int] = {}
        if fill:
            self.messages = {
                "queued": self.queued("queued"),
                "local": self.classified("local", local=[(b"ann@me.example.org", False)]),
                "both": self.classified(
                    "both",
                    local=[(b"bob@me.example.org", True)],
                    remote=[(b"c@example.net", False)],
                    failed=b"d@example.com",
                ),
                "held": self.classified("held", remote=[(b"e@example.net", False)], hold=b"ask Jo\n"),
            }

    def put(self, kind: str, message: int, data: bytes, mtime_ns: int = BIRTH) -> Path:
        path = Path(path_of(self.layout, kind, message))
        path.write_bytes(data)
        path.chmod(0o640 if kind == "mess" else 0o600)
        os.utime(path, ns=(mtime_ns, mtime_ns))
        return path

    def mess(self, name: str) -> int:
        path = Path(self.home.queue, "pid", "new")
        path.write_bytes(b"Subject: %s\n\nbody\n" % name.encode())
        path.chmod(0o640)
        os.utime(path, ns=(BIRTH, BIRTH))
        message = path.stat().st_ino
        path.rename(self.layout.mess(message))
        return message

    def queued(self, name: str, recipients: tuple[bytes, ...] = (b"ann@me.example.org", b"x@example.net")) -> int:
        message = self.mess(name)
        self.put("todo", message, pack_todo(Envelope(1, 2, b"%s@example.org" % name.encode(), list(recipients))))
        return message

    def classified(
        self,
        name: str,
        local: list[tuple[bytes, bool]] | None = None,
        remote: list[tuple[bytes, bool]] | None = None,
        failed: bytes = b"",
        hold: bytes = b"",
    ) -> int:
        message = self.mess(name)
        for kind, recipients in (("local", local), ("remote", remote)):
            if recipients:
                self.put(kind, message, pack_marked(recipients), DUE * 10**9)
        if failed:
            self.put("bounce", message, pack_failure(failed, b"no such user"))
        if hold:
            self.put("hold", message, hold)
        self.put("info", message, pack_info(b"%s@example.org" % name.encode()))
        return message

    def path(self, kind: str, name: str) -> Path:
        """Return the path of a file of a message, by its name."""
        return Path(path_of(self.layout, kind, self.messages[name]))

    def rename(self, old: int, new: int) -> None:
        """Give all files of a message another number."""
        rename_message(self.layout, old, new)

    def cycle(self) -> None:
        """Name each message by the number of the next one, as a restore may."""
        numbers = list(self.messages.values())
        for number in numbers:
            self.rename(number, number + 10**9)
        for number, following in zip(numbers, [*numbers[1:], numbers[0]], strict=True):
            self.rename(number + 10**9, following)

    def shift(self) -> None:
        """Name each message by a number that none has."""
        for number in self.messages.values():
            self.rename(number, number + 10**9)

    def shift_but(self, name: str) -> None:
        """Do the same with all but one."""
        self.messages.pop(name)
        self.shift()

    def codes(self) -> list[str]:
        """Return the codes of all findings, sorted, each once."""
        layout = find_layout(self.home.queue)
        owner = os.stat(self.home.queue)
        return sorted({each.code for each in inspect(layout, (owner.st_uid, owner.st_gid), NOW, 0.0)})

    def deliverable(self) -> list[Deliverable]:
        """Return what queue-todo and queue-send would deliver: messages in S4 and S5 that are not parked."""
        return sorted(deliverables(self.home))

    def unplaced(self) -> list[str]:
        """Return the files in corrupt/unplaced/."""
        top = Path(self.home.queue, "corrupt", "unplaced")
        return sorted(str(path.relative_to(top)) for path in top.glob("*/*"))


def deliverables(home: Home) -> list[Deliverable]:
    """Return what could be delivered from a queue whose numbers are right."""
    layout, found = open_layout(home.queue), []
    for directory in layout.directories("mess"):
        for name in os.listdir(directory):
            if not name.isdigit() or os.stat(f"{directory}/{name}").st_ino != int(name):
                continue
            files = {kind: Path(path_of(layout, kind, int(name))) for kind in PLACES}
            there = {kind: path for kind, path in files.items() if path.is_file()}
            if "corrupt" in there or not {"todo", "info"} & set(there):
                continue
            found.append(_deliverable(there))
    return found


def _deliverable(there: dict[str, Path]) -> Deliverable:
    hold = there["hold"].read_bytes() if "hold" in there else None
    body = there["mess"].read_bytes()
    if "todo" in there:
        envelope = unpack_todo(there["todo"].read_bytes())
        to = tuple(("todo", False, address) for address in envelope.recipients)
        return Deliverable(body, "queued", there["mess"].stat().st_mtime_ns, envelope.sender, to, (), hold, None)
    channels = [kind for kind in ("local", "remote") if kind in there]
    to = tuple(
        (kind, done, address) for kind in channels for _, done, address in unpack_recipients(there[kind].read_bytes())
    )
    due = tuple(int(there[kind].stat().st_mtime) for kind in channels)
    bounce = there["bounce"].read_bytes() if "bounce" in there else None
    sender = unpack_info(there["info"].read_bytes())
    return Deliverable(body, "classified", there["info"].stat().st_mtime_ns, sender, to, due, hold, bounce)


class Damage(NamedTuple):
    """A kind of damage: what it is, the findings, and the messages that are not what they were any more."""

    does: Callable[[KnownQueue], object]
    codes: tuple[str, ...]
    lost: tuple[str, ...] = ()
    left: tuple[str, ...] = ()  # The findings after repair.
    split: int | None = None


def _move_bucket(queue: KnownQueue, kind: str) -> None:
    path = queue.path(kind, "local")
    other = (int(path.parent.name) + 1) % 3
    path.rename(path.parent.parent / str(other) / path.name)


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _no_fifo(path: Path) -> None:
    path.unlink()
    path.touch()


def _lose_the_rest(queue: KnownQueue) -> None:
    _unlink_all(queue, "local", ("info", "local"))
    queue.rename(queue.messages["local"], 10**9)


def _lose_marks(queue: KnownQueue) -> None:
    for kind in ("hold", "corrupt"):
        shutil.rmtree(_top(queue, kind))


def _top(queue: KnownQueue, name: str) -> Path:
    return Path(queue.home.queue, name)


def _unlink_all(queue: KnownQueue, name: str, kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        queue.path(kind, name).unlink(missing_ok=True)


def _lose_buckets(queue: KnownQueue) -> None:
    """As an archive that does not keep empty directories, of a queue that has run."""
    write_stamp(queue.home.queue, 3, myself())
    for kind in ("mess", "info", "local", "remote", "todo", "intd", "hold", "corrupt"):
        for number in range(3):
            try:
                _top(queue, f"{kind}/{number}").rmdir()
            except OSError:
                continue


def _half_split(queue: KnownQueue) -> None:
    for number in range(3, 5):
        _top(queue, f"info/{number}").mkdir()
        _top(queue, f"info/{number}").chmod(0o2700)


def _other_file(queue: KnownQueue) -> None:
    """Two files of one name: one in its directory, one in another."""
    path = queue.path("info", "local")
    other = path.parent.parent / str((int(path.parent.name) + 1) % 3) / path.name
    other.write_bytes(b"Fother@example.org\0")
    other.chmod(0o600)


def _copied_mark(queue: KnownQueue) -> None:
    queue.shift()
    number = queue.messages["queued"] + 10**9
    queue.put("corrupt", number, b"mess/0/1 has inode number 5: the queue was copied, not moved\n")


DAMAGE: dict[str, Damage] = {
    "nothing": Damage(lambda queue: None, ()),
    "numbers in a cycle": Damage(KnownQueue.cycle, ("number",)),
    "numbers that nobody has": Damage(KnownQueue.shift, ("number",)),
    "parked because it was copied": Damage(_copied_mark, ("number",)),
    "one wrong number": Damage(lambda q: q.rename(q.messages["local"], 10**9), ("number",)),
    "mess in another directory": Damage(lambda q: _move_bucket(q, "mess"), ("bucket", "no-text")),
    "info in another directory": Damage(lambda q: _move_bucket(q, "info"), ("bucket", "state")),
    "two files of one name": Damage(_other_file, ("bucket",), left=("unplaced",)),
    "todo without mess": Damage(
        lambda q: q.path("mess", "queued").unlink(), ("no-text",), ("queued",), ("unplaced",)
    ),
    "info without mess": Damage(lambda q: _unlink_all(q, "both", ("mess",)), ("no-text",), ("both",), ("unplaced",)),
    "mess without the rest": Damage(
        lambda q: _lose_the_rest(q),
        ("no-envelope", "number"), ("local",), ("unplaced",),
    ),
    "no sender": Damage(lambda q: _unlink_all(q, "local", ("info",)), ("state",), ("local",)),
    "todo with failures": Damage(
        lambda q: q.put("bounce", q.messages["queued"], b"<x@y>:\nno\n\n"), ("state",), left=("unplaced",)
    ),
    "intd of a classified message": Damage(lambda q: q.put("intd", q.messages["local"], b"u1\0"), ("state",)),
    "todo that is garbage": Damage(
        lambda q: q.put("todo", q.messages["queued"], b"garbage"), ("unreadable",), ("queued",)
    ),
    "info that is garbage": Damage(lambda q: q.put("info", q.messages["local"], b""), ("unreadable",), ("local",)),
    "local that is cut off": Damage(
        lambda q: q.put("local", q.messages["local"], b"Tann@me"), ("unreadable",), ("local",)
    ),
    "remote that is garbage": Damage(
        lambda q: q.put("remote", q.messages["both"], b"Xc@example.net\0"), ("unreadable",), ("both",)
    ),
    "mess is a directory": Damage(
        lambda q: _directory(q.path("mess", "local")), ("kind",), ("local",), ("unplaced",)
    ),
    "info is a FIFO": Damage(lambda q: _fifo(q.path("info", "local")), ("kind",), ("local",), ("unplaced",)),
    "mess is a link": Damage(
        lambda q: _link(q.path("mess", "local")), ("kind", "stray"), ("local",), ("stray", "unplaced")
    ),
    "mode of a message": Damage(lambda q: q.path("mess", "local").chmod(0o666), ("mode",)),
    "mode of an envelope": Damage(lambda q: q.path("info", "local").chmod(0o644), ("mode",)),
    "mode of a directory": Damage(lambda q: _top(q, "todo").chmod(0o755), ("mode",)),
    "mode of a numbered directory": Damage(lambda q: _top(q, "info/1").chmod(0o700), ("mode",)),
    "mode of maildrop": Damage(lambda q: _top(q, "maildrop").chmod(0o700), ("mode",)),
    "mode of lock": Damage(lambda q: _top(q, "lock").chmod(0o777), ("mode",)),
    "mode of the queue": Damage(lambda q: _top(q, "").chmod(0o755), ("mode",)),
    "a stray": Damage(lambda q: _top(q, "mess/0/README").touch(), ("stray",), left=("stray",)),
    "a hold mark of no message": Damage(lambda q: q.put("hold", 10**9, b"why\n"), ("mark",)),
    "a corrupt mark of no message": Damage(lambda q: q.put("corrupt", 10**9, b"why\n"), ("mark",)),
    "a missing directory": Damage(lambda q: shutil.rmtree(_top(q, "bounce/../intd")), ("directory",)),
    "hold and corrupt are missing": Damage(
        lambda q: _lose_marks(q),
        ("directory",), ("held",),
    ),
    "empty directories are lost": Damage(_lose_buckets, ("split",)),
    "directories of another split": Damage(_half_split, ("split",)),
    "marks is a directory's link": Damage(lambda q: _top(q, "marks").symlink_to("/etc"), ("marks",)),
    "an old file in pid": Damage(lambda q: _old_pid(q), ("pid",)),
    "the trigger is a file": Damage(
        lambda q: _no_fifo(_top(q, "lock/trigger")), ("lock",)
    ),
    "sendmutex is missing": Damage(lambda q: _top(q, "lock/sendmutex").unlink(), ("lock",)),
    "the mode of sendmutex": Damage(lambda q: _top(q, "lock/sendmutex").chmod(0o666), ("mode",)),
    "a birth in the future": Damage(
        lambda q: q.put("info", q.messages["local"], b"Flocal@example.org\0", int((NOW + 10**7) * 10**9)),
        ("time",), ("local",), ("time",),
    ),
    "another split is wanted": Damage(lambda q: None, (), split=7),
    "a smaller split is wanted": Damage(lambda q: None, (), split=2),
    "a cycle and another split": Damage(KnownQueue.cycle, ("number",), split=5),
}  # fmt: skip


def _old_pid(queue: KnownQueue) -> None:
    _top(queue, "pid/1.2.3").write_bytes(b"")
