"""`queuectl check` on stored mail: what is in order, what is lost, and a torn end."""

import os
from pathlib import Path

import pytest

from queue_admin.checks import stored_records
from queue_admin.checks.stored_records import check_stored
from queue_ondemand.domain_store import DomainStore, StoreRequest
from queue_wire.files.cluster import StoredRecipient


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a queue with two stored messages, the first one with two recipients."""
    monkeypatch.setattr(stored_records, "SETTLE", 0.0)
    os.makedirs(tmp_path / "mess" / "0")
    requests = []
    for number, recipients in ((7, (b"a", b"b")), (8, (b"c",))):
        (tmp_path / "mess" / "0" / str(number)).write_bytes(b"\n")
        found = [StoredRecipient(number, 5, 1, b"s", each) for each in recipients]
        requests.append(StoreRequest(b"example.net", f"mess/0/{number}", found))
    assert DomainStore(str(tmp_path)).append(requests) == [None, None]
    return str(tmp_path)


def findings(queue: str) -> list[tuple[str, str]]:
    return [(each.path, each.what) for each in check_stored(queue) if each.code == "stored"]


def test_a_queue_without_stored_mail_and_one_whose_stored_mail_is_whole_are_in_order(
    tmp_path: Path, queue: str
) -> None:
    (tmp_path / "other").mkdir()
    assert findings(str(tmp_path / "other")) == []
    assert findings(queue) == []


def test_a_message_that_is_missing_is_named_with_the_number_of_its_recipients(queue: str) -> None:
    os.unlink(f"{queue}/ondemand/example.net/mess/1.7-5")
    assert findings(queue) == [("ondemand/example.net/mess/1.7-5", "is missing, and 2 recipients wait for it")]


def test_one_that_is_missing_after_its_records_are_done_is_in_order(queue: str) -> None:
    store = DomainStore(queue)
    store.mark(b"example.net", 1, [each.offset for each in store.read(b"example.net", 1).records[:2]])
    os.unlink(f"{queue}/ondemand/example.net/mess/1.7-5")
    assert findings(queue) == []


def test_a_torn_end_is_named_and_what_comes_before_it_is_looked_at(queue: str) -> None:
    with open(f"{queue}/ondemand/example.net/1.cluster", "ab") as cluster:
        cluster.write(b"T\x40\0\0\0torn")
    os.unlink(f"{queue}/ondemand/example.net/mess/1.8-5")
    assert findings(queue) == [
        ("ondemand/example.net/1.cluster", "has something at its end that is no record"),
        ("ondemand/example.net/mess/1.8-5", "is missing, and 1 recipient waits for it"),
    ]
