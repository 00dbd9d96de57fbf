"""`queuectl copy` of a home with stored mail: all of it, and no record without its message."""

import os
from pathlib import Path

from queue_admin.checks.home_copy import copy_home
from queue_base.home import Home
from queue_ondemand.domain_store import DomainStore, StoreRequest
from queue_wire.files.cluster import StoredRecipient
from support.queues.home import make_home


def test_stored_mail_is_copied_but_for_what_was_finished_while_it_was_copied(tmp_path: Path) -> None:
    home, target = make_home(tmp_path / "home", split=3), Home(str(tmp_path / "copy"))
    store = DomainStore(home.queue)
    requests = []
    for number in range(3):
        Path(home.queue, "mess", "0", str(number)).write_bytes(b"Subject: %d\n\nx\n" % number)
        stored = StoredRecipient(number + 1, 5, 20, b"a@b", b"r%d" % number)
        requests.append(StoreRequest(b"example.net", f"mess/0/{number}", [stored]))
    assert store.append(requests) == [None] * 3
    for number in range(3):
        os.unlink(f"{home.queue}/mess/0/{number}")
    path = store.message_path(b"example.net", 1, requests[1].recipients[0])
    os.unlink(f"{home.queue}/{path}")  # As if it was delivered when the cluster had been copied.

    assert copy_home(home, target).left == []

    copied = DomainStore(target.queue)
    pending = copied.read(b"example.net", 1).pending
    assert [each.stored.recipient for each in pending] == [b"r0", b"r2"]
    for each in pending:
        path = copied.message_path(b"example.net", 1, each.stored)
        assert Path(target.queue, path).read_bytes().startswith(b"Subject: ")
        assert os.stat(f"{target.queue}/{path}").st_mode == os.stat(f"{home.queue}/{path}").st_mode
    assert os.stat(f"{target.queue}/ondemand/example.net/mess").st_mode & 0o7777 == 0o2750
