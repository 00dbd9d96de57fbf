"""Returns stored mail that has failed: composes bounces (RFC 3464), and has queue-enqueue queue them.

queue-enqueue also takes what is requeued: the message itself, for the recipients that go back into the queue. It says
which long id that has there.

A bounce goes to the sender; that of a bounce goes to doublebounceto, from `#@[]`; one of that is discarded, as
queue-send does. Its recipients are marked done once queue-enqueue has exited 0; a crash between the two sends the
bounce once more.
"""

import os
import select
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from queue_base.daemon.processes import command
from queue_base.durable import write_all
from queue_base.home import Home
from queue_base.reports.bounce_report import BounceFacts, compose_steps
from queue_ondemand.ondemand_files import OnDemandConfig
from queue_wire.address import DOUBLE_BOUNCE_SENDER, bounce_recipient
from queue_wire.files.cluster import StoredRecipient
from queue_wire.files.envelope import pack_enqueue

HEADER_MAX = 65536
POLL_EVERY = 0.1  # Seconds between checks of children that have no pidfd.
ID_DESCRIPTOR = 3
ID_MAX = 200
KEPT_IDS_MAX = 10_000
TOLD_MAX = 500  # Lines of an answer, each with the name of a domain and two ids.


class FailedGroup(NamedTuple):
    """Recipients of one stored message that have failed, and why. `header` is the message's."""

    domain: bytes
    recipients: Sequence[tuple[StoredRecipient, bytes]]
    header: bytes

    @property
    def sender(self) -> bytes:
        """The sender of the message."""
        return self.recipients[0][0].sender


def read_header(path: str) -> bytes:
    """Return the header of a message, cut at HEADER_MAX; empty if it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        data = os.read(handle, HEADER_MAX)
    except OSError:
        return b""
    finally:
        os.close(handle)
    head, end, _ = data.replace(b"\r\n", b"\n").partition(b"\n\n")
    return head + b"\n" if end else head[: head.rfind(b"\n") + 1]


def compose_return(group: FailedGroup, config: OnDemandConfig, now: int) -> tuple[bytes, bytes] | None:
    """Return the bounce and its envelope, None if it is discarded."""
    if group.sender == DOUBLE_BOUNCE_SENDER:
        return None
    first = group.recipients[0][0]
    bouncer, recipient = b"", bounce_recipient(group.sender)
    if not recipient:
        bouncer, recipient = DOUBLE_BOUNCE_SENDER, config.doublebounceto
    facts = BounceFacts(
        config.me,
        config.bouncefrom,
        recipient,
        group.sender,
        [(stored.recipient, text) for stored, text in group.recipients],
        group.header,
        first.birth // 1_000_000,
        now,
        f"{now}.{first.message}.{os.getpid()}.{time.monotonic_ns()}.bounce",
    )
    return b"".join(compose_steps(facts)), pack_enqueue(bouncer, [recipient])


class ReturnProcess:
    """A queue-enqueue that runs; `group` is what its bounce is about, None if it has the message itself.

    `pidfd` is None if the system gave none. `long_id` is that of the message itself once it is queued, else empty.
    """

    __slots__ = ("_id_file", "group", "long_id", "pid", "pidfd")

    def __init__(self, home: Home, group: FailedGroup | None, mail: tuple[bytes | int, bytes]) -> None:
        """Start it with a message and its envelope. A message that is a descriptor is closed. Raises OSError."""
        self.group = group
        self.long_id = ""
        self._id_file = -1
        files: list[int] = []
        try:
            for data in mail:
                if isinstance(data, int):
                    files.append(data)
                    continue
                files.append(os.memfd_create("mail"))
                write_all(files[-1], data)
                os.lseek(files[-1], 0, os.SEEK_SET)
            actions = [(os.POSIX_SPAWN_DUP2, handle, number) for number, handle in enumerate(files)]
            words = command("queue-enqueue", home)
            if group is None:
                files.append(os.memfd_create("id"))
                self._id_file = os.dup(files[-1])
                actions.append((os.POSIX_SPAWN_DUP2, files[-1], ID_DESCRIPTOR))
                words = command("queue-enqueue", home, "--id-on", str(ID_DESCRIPTOR))
            self.pid = os.posix_spawn(words[0], words, os.environ, file_actions=actions)
        except OSError:
            self._read_id()
            raise
        finally:
            for handle in files:
                os.close(handle)
        try:
            self.pidfd: int | None = os.pidfd_open(self.pid)
        except OSError:
            self.pidfd = None

    def prepare(self, poll: "select.poll") -> float:
        """Register what shows its end; return the seconds to wait at most."""
        if self.pidfd is None:
            return POLL_EVERY
        poll.register(self.pidfd, select.POLLIN)
        return 3600.0

    def ended(self, ready: dict[int, int]) -> int | None:
        """Return its exit code, None while it runs."""
        if self.pidfd is not None and self.pidfd not in ready:
            return None
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        if self.pidfd is not None:
            os.close(self.pidfd)
        self._read_id()
        return os.waitstatus_to_exitcode(status)

    def _read_id(self) -> None:
        if self._id_file >= 0:
            self.long_id = os.pread(self._id_file, ID_MAX, 0).decode("ascii", "replace").strip()
            os.close(self._id_file)
            self._id_file = -1


class RequeuedIds:
    """The new long ids of what was requeued, by the names of the orders, until queuectl asks for them.

    The oldest ones are forgotten.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[str, list[bytes]] = OrderedDict()
        self._count = 0

    def note(self, order: str, domain: bytes, old: str, new: str) -> None:
        """Keep the ids of a message that was requeued."""
        self._lines.setdefault(order, []).append(b"%s %s %s\n" % (domain, old.encode(), new.encode()))
        self._count += 1
        while self._count > KEPT_IDS_MAX:
            self._count -= len(self._lines.popitem(last=False)[1])

    def take(self, order: str) -> bytes:
        """Return lines with domain, old id and new id, as many as an answer has; empty if there are none."""
        lines = self._lines.pop(order, [])
        taken, rest = lines[:TOLD_MAX], lines[TOLD_MAX:]
        self._count -= len(taken)
        if rest:
            self._lines[order] = rest
        return b"".join(taken)

