"""Messages put on the disk by hand, in the states that programs find them in: S2, S4 and S5, and stored on demand."""

import os
import time
from pathlib import Path

from queue_base.home import Home
from queue_base.queue.layout import Layout, open_layout
from queue_ondemand.domain_store import DomainStore, StoreRequest
from queue_wire.files.cluster import StoredRecipient
from queue_wire.files.envelope import Envelope, pack_info, pack_todo, unpack_todo
from queue_wire.files.recipients import pack_recipients

MESSAGE = b"Subject: hello\nFrom: a@example.org\n\nbody\n"


def put_mess(layout: Layout, data: bytes = MESSAGE) -> int:
    """Make mess/B/I under its own inode number (S2); return I."""
    path = Path(layout.queue, "pid", "by-hand")
    path.write_bytes(data)
    message = path.stat().st_ino
    path.rename(layout.mess(message))
    return message


def put_todo(layout: Layout, message: int, envelope: bytes) -> None:
    """Make S2 into S4 as qmail-queue does: the envelope in intd/, and a link to it in todo/."""
    Path(layout.intd(message)).write_bytes(envelope)
    os.link(layout.intd(message), layout.todo(message))


def queue_message(
    home: Home,
    recipients: list[bytes],
    sender: bytes = b"a@example.org",
    data: bytes = MESSAGE,
    uid: int = 7,
    pid: int = 8,
    submitter: bytes = b"",
) -> int:
    """Put in a message that waits to be classified (S4); return its id. Nobody pulls the trigger."""
    layout = open_layout(home.queue)
    message = put_mess(layout, data)
    put_todo(layout, message, pack_todo(Envelope(uid, pid, sender, recipients, submitter)))
    return message


def classified_message(
    home: Home,
    *,
    local: list[bytes] | None = None,
    remote: list[bytes] | None = None,
    sender: bytes = b"a@example.org",
    data: bytes = MESSAGE,
    birth: float | None = None,
    due: float | None = None,
    bounce: bytes = b"",
) -> int:
    """Put in a classified message (S5); return its id. `birth` (info/, mess/) and `due`, in seconds, are mtimes.

    Without `due` it is due now: in the second that has begun, since what is due within a second waits for its end.
    """
    layout = open_layout(home.queue)
    due = int(time.time()) if due is None else due
    message = put_mess(layout, data)
    for kind, recipients in (("local", local), ("remote", remote)):
        if recipients:
            path = Path(layout.hashed(kind, message))
            path.write_bytes(pack_recipients(recipients))
            os.utime(path, (due, due))
    if bounce:
        Path(layout.bounce(message)).write_bytes(bounce)
    info = Path(layout.hashed("info", message))
    info.write_bytes(pack_info(sender))
    if birth is not None:
        os.utime(info, (birth, birth))
        os.utime(layout.mess(message), (birth, birth))
    return message


def injected(home: Home) -> list[tuple[Envelope, bytes]]:
    """Return the envelope and the bytes of each message that waits in todo/, the oldest first."""
    layout = open_layout(home.queue)
    ids = [int(name) for directory in layout.directories("todo") for name in os.listdir(directory)]
    ids.sort(key=lambda message: os.stat(layout.mess(message)).st_mtime_ns)
    return [
        (unpack_todo(Path(layout.todo(message)).read_bytes()), Path(layout.mess(message)).read_bytes())
        for message in ids
    ]


def store_on_demand(
    home: Home, domain: bytes, messages: list[list[bytes]], sender: bytes = b"a@example.org", data: bytes = MESSAGE
) -> None:
    """Store messages for an on-demand domain, of which each has these recipients, as one commit. No suite runs."""
    layout, requests = open_layout(home.queue), []
    for recipients in messages:
        number, birth = put_mess(layout, data), time.time_ns() // 1000
        found = [StoredRecipient(number, birth, len(data), sender, each) for each in recipients]
        requests.append(StoreRequest(domain, os.path.relpath(layout.mess(number), layout.queue), found))
    assert DomainStore(layout.queue).append(requests) == [None] * len(requests)
    for request in requests:
        os.unlink(f"{layout.queue}/{request.path}")
