"""Homes with mail that is stored for on-demand domains, as queue-ondemand stores it, and what is stored in them."""

import os
import time
from pathlib import Path

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_ondemand.domain_store import DomainStore, StoreRequest
from queue_wire.files.cluster import StoredRecipient
from queue_wire.files.stored_order import ClusterEnd, StoredOrder, pack_order

BIRTH = 1_700_000_000_000_000  # Microseconds.


def store(
    home: Home,
    name: str,
    *recipients: str,
    sender: str | None = None,
    birth: int = BIRTH,
    in_queue: bool = False,
    domain: str = "example.net",
) -> StoredRecipient:
    """Store a message named `name`; return the record of its first recipient. `in_queue`: it keeps its file in mess/.
    """
    layout = open_layout(home.queue)
    path = Path(home.queue, "pid", name)
    text = f"Subject: {name}\n\nbody\n".encode()
    path.write_bytes(text)
    path.chmod(0o640)
    number = path.stat().st_ino
    os.rename(path, layout.mess(number))
    address = (f"{name}@example.org" if sender is None else sender).encode()
    now = int(time.time())
    records = [StoredRecipient(number, birth, len(text), address, each.encode(), now) for each in recipients]
    request = StoreRequest(domain.encode(), os.path.relpath(layout.mess(number), home.queue), records)
    assert DomainStore(home.queue).append([request]) == [None]
    if not in_queue:
        os.unlink(layout.mess(number))
    return records[0]


def order_about_all(home: Home, domain: bytes, command: bytes) -> bytes:
    """Return the file of an order about all that is stored for a domain now."""
    found = DomainStore(home.queue)
    read = {number: found.read(domain, number) for number in found.clusters(domain)}
    return pack_order(
        StoredOrder(command, ends=tuple(ClusterEnd(number, each.seed, each.end) for number, each in read.items()))
    )


def stored_mail(home: Home, domain: str = "example.net") -> list[tuple[str, str]]:
    """Return what waits for a domain and has its message, in order: the subject of each message, and the recipient."""
    found = DomainStore(home.queue)
    mail = []
    for number in found.clusters(domain.encode()):
        for each in found.read(domain.encode(), number).pending:
            path = Path(home.queue, found.message_path(domain.encode(), number, each.stored))
            if path.exists():
                subject = path.read_text().split("\n")[0].removeprefix("Subject: ")
                mail.append((subject, each.stored.recipient.decode()))
    return mail
