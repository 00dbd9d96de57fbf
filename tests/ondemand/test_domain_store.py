"""queue/ondemand on a real disk: appending, done marks, removal, compaction, and disks that refuse."""

import errno
import os
import stat
from pathlib import Path

import pytest

from queue_admin.messages.stored_removal import remove_stored
from queue_base.home import Home
from queue_ondemand import domain_store
from queue_ondemand.domain_store import DomainStore, StoreRequest
from queue_wire.files.cluster import StoredRecipient
from queue_wire.files.stored_order import DELETE_STORED, StoredOrder

DOMAIN = b"example.net"


@pytest.fixture
def queue(tmp_path: Path) -> str:
    os.makedirs(tmp_path / "mess" / "0")
    return str(tmp_path)


def request(
    queue: str, name: str, *recipients: str, domain: bytes = DOMAIN, most: int = 0, size: int = 100
) -> StoreRequest:
    """Make a message, and return the request to store it."""
    path = f"mess/0/{name}"
    if not os.path.exists(f"{queue}/{path}"):
        Path(queue, path).write_bytes(b"Subject: x\n\n" + name.encode())
    number = os.stat(f"{queue}/{path}").st_ino
    found = [StoredRecipient(number, 1_600_000_000_000_000, size, b"a@b", each.encode()) for each in recipients]
    return StoreRequest(domain, path, found, most)


def pending(store: DomainStore, domain: bytes = DOMAIN) -> list[bytes]:
    clusters = store.clusters(domain)
    return [each.stored.recipient for number in clusters for each in store.read(domain, number).pending]


def finish(store: DomainStore, number: int, *recipients: bytes) -> None:
    records = [each for each in store.read(DOMAIN, number).records if each.stored.recipient in recipients]
    store.mark(DOMAIN, number, [each.offset for each in records])
    store.settle(DOMAIN, number)


def names(queue: str, *path: str) -> list[str]:
    return sorted(os.listdir(os.path.join(queue, "ondemand", *path)))


def test_recipients_are_stored_in_order_with_one_link_for_a_message(queue: str) -> None:
    store = DomainStore(queue)

    assert store.append([request(queue, "1", "x", "y"), request(queue, "2", "z")]) == [None, None]
    assert store.append([request(queue, "1", "later")]) == [None]

    assert pending(store) == [b"x", b"y", b"z", b"later"]
    assert store.domains == [DOMAIN]
    assert names(queue, "example.net") == ["1.cluster", "mess"]
    assert len(names(queue, "example.net", "mess")) == 2
    assert os.stat(f"{queue}/mess/0/1").st_nlink == 2


def test_a_stored_message_stays_when_its_place_in_mess_goes(queue: str) -> None:
    store = DomainStore(queue)
    stored = request(queue, "1", "x")
    store.append([stored])

    os.unlink(f"{queue}/mess/0/1")

    path = store.message_path(DOMAIN, 1, stored.recipients[0])
    assert Path(queue, path).read_bytes().endswith(b"\n\n1")
    assert store.append([request(queue, "2", "y"), StoreRequest(DOMAIN, "mess/0/1", stored.recipients)])[0] is None


def test_directories_and_files_have_the_modes_by_which_queue_remote_may_read_messages_alone(queue: str) -> None:
    before = os.umask(0o027)
    try:
        DomainStore(queue).append([request(queue, "1", "x")])
    finally:
        os.umask(before)

    for path in ("", "example.net", "example.net/mess"):
        assert os.stat(f"{queue}/ondemand/{path}").st_mode & 0o7777 == 0o2750
    assert os.stat(f"{queue}/ondemand/example.net/1.cluster").st_mode & 0o7777 == 0o600


def test_a_cluster_that_is_long_enough_is_closed_also_within_a_group(queue: str) -> None:
    store = DomainStore(queue)
    recipients = [f"recipient{number}@example.net" for number in range(20)]

    for start in (0, 10):
        group = [request(queue, each, each)._replace(cluster_size=200) for each in recipients[start : start + 10]]
        assert set(store.append(group)) == {None}

    assert pending(store) == [each.encode() for each in recipients]
    assert len(store.clusters(DOMAIN)) > 5
    assert max(os.stat(path).st_size for path in Path(queue, "ondemand/example.net").glob("*.cluster")) < 400


def test_another_size_of_clusters_holds_for_new_ones_alone(queue: str) -> None:
    store = DomainStore(queue)
    for number, size in enumerate((1000, 100, 100, 100)):
        store.append([request(queue, str(number), f"r{number}@example.net")._replace(cluster_size=size)])
    assert len(store.clusters(DOMAIN)) == 1, "the first one goes on to its own size"

    for number in range(4, 60):
        store.append([request(queue, str(number), f"r{number}@example.net")._replace(cluster_size=100)])
    first, *others = (store.read(DOMAIN, number).end for number in store.clusters(DOMAIN))
    assert 1000 <= first < 1200 and len(others) > 5 and max(others) < 300


def test_the_next_process_reads_what_is_there_and_appends_to_a_new_cluster(queue: str) -> None:
    DomainStore(queue).append([request(queue, "1", "x")])
    with open(f"{queue}/ondemand/example.net/1.cluster", "ab") as cluster:
        cluster.write(b"Ttorn by a power cut")
    Path(queue, "ondemand/example.net/1.new").touch()
    Path(queue, "ondemand/README").touch()

    store = DomainStore(queue)
    assert store.append([request(queue, "2", "y")]) == [None]

    assert pending(store) == [b"x", b"y"]
    assert store.clusters(DOMAIN) == [1, 2]
    assert "1.new" not in names(queue, "example.net")


def test_a_message_keeps_its_link_until_its_last_recipient_is_done(queue: str) -> None:
    store = DomainStore(queue)
    store.append([request(queue, "1", "x", "y"), request(queue, "2", "z")])

    finish(store, 1, b"x")
    assert len(names(queue, "example.net", "mess")) == 2

    finish(store, 1, b"y")
    assert os.stat(f"{queue}/mess/0/1").st_nlink == 1
    assert len(names(queue, "example.net", "mess")) == 1
    assert pending(store) == [b"z"]


def test_a_domain_goes_when_its_last_record_is_done_and_comes_back_with_the_next_one(queue: str) -> None:
    store = DomainStore(queue)
    store.append([request(queue, "1", "x")])
    # Such as that of a message that was linked before a crash, and never acknowledged.
    Path(queue, "ondemand/example.net/mess/9.5-x").touch()

    finish(store, 1, b"x")
    assert names(queue) == []
    assert store.domains == [] and store.clusters(DOMAIN) == []

    store.append([request(queue, "2", "y")])
    assert pending(store) == [b"y"]


def test_a_closed_cluster_that_is_mostly_done_is_compacted_in_its_place(
    queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DomainStore(queue)
    store.append([request(queue, str(number), f"r{number}") for number in range(10)])
    size = os.stat(f"{queue}/ondemand/example.net/1.cluster").st_size

    finish(store, 1, *[b"r%d" % number for number in range(7)])
    assert os.stat(f"{queue}/ondemand/example.net/1.cluster").st_size == size, "it is appended to"

    store = DomainStore(queue)
    store.append([request(queue, "10", "r10")])
    store.settle(DOMAIN, 1)

    assert os.stat(f"{queue}/ondemand/example.net/1.cluster").st_size < size / 2
    assert pending(store) == [b"r7", b"r8", b"r9", b"r10"]
    assert len(names(queue, "example.net", "mess")) == 4
    finish(store, 1, b"r7", b"r8", b"r9")
    assert store.clusters(DOMAIN) == [2]


@pytest.mark.parametrize("left", [["mess/1.7-5"], ["mess"], []], ids=["a link", "no link", "no mess"])
def test_a_start_goes_on_with_the_removal_of_a_domain_that_was_interrupted(queue: str, left: list[str]) -> None:
    DomainStore(queue).append([request(queue, "1", "x")])
    for path in ("example.org/mess", "example.com/mess"):
        os.makedirs(f"{queue}/ondemand/{path}")
    os.mkdir(f"{queue}/ondemand/interrupted.example")
    for path in left:
        os.makedirs(f"{queue}/ondemand/interrupted.example/mess", exist_ok=True)
        if path != "mess":
            Path(f"{queue}/ondemand/interrupted.example/{path}").touch()
    # What is not ours is left alone, and so is what a person has set aside.
    Path(queue, "ondemand/example.org/1.cluster.saved").touch()
    Path(queue, "ondemand/example.org/mess/1.7-5").touch()

    store = DomainStore(queue)

    assert names(queue) == ["example.net", "example.org"]
    assert names(queue, "example.org", "mess") == ["1.7-5"]
    assert (store.domains, store.troubles, pending(store)) == ([DOMAIN], [], [b"x"])


def test_a_directory_whose_maker_was_killed_gets_its_mode(queue: str) -> None:
    os.mkdir(f"{queue}/ondemand", 0o700)

    assert DomainStore(queue).append([request(queue, "1", "x")]) == [None]

    assert stat.S_IMODE(os.stat(f"{queue}/ondemand").st_mode) == domain_store.DIRECTORY_MODE


def test_a_message_that_is_gone_fails_alone(queue: str) -> None:
    store = DomainStore(queue)
    gone = request(queue, "1", "x")
    os.unlink(f"{queue}/mess/0/1")

    first, second = store.append([gone, request(queue, "2", "y")])

    assert first is not None and first.errno == errno.ENOENT
    assert second is None
    assert pending(store) == [b"y"]


def test_a_domain_over_its_size_takes_no_more_until_some_is_done(queue: str) -> None:
    store = DomainStore(queue)
    assert store.append([request(queue, "1", "x", most=250), request(queue, "2", "y", most=250)]) == [None, None]

    [full] = store.append([request(queue, "3", "z", most=250)])
    assert full is not None and full.errno == errno.EDQUOT

    again = DomainStore(queue)  # It counts what is there.
    [full] = again.append([request(queue, "3", "z", most=250)])
    assert full is not None and full.errno == errno.EDQUOT
    finish(again, 1, b"x")
    assert again.append([request(queue, "3", "z", most=250)]) == [None]


def test_a_group_that_cannot_be_synced_is_taken_back_and_the_next_one_goes_to_another_cluster(
    queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DomainStore(queue)
    store.append([request(queue, "1", "x")])

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(domain_store, "sync_handles", refuse)
        [trouble] = store.append([request(queue, "2", "y")])

    assert trouble is not None and trouble.errno == errno.EIO
    assert pending(store) == [b"x"]
    assert os.stat(f"{queue}/mess/0/2").st_nlink == 1
    assert store.append([request(queue, "2", "y")]) == [None]
    assert store.clusters(DOMAIN) == [1, 2]
    assert pending(DomainStore(queue)) == [b"x", b"y"]


def test_a_new_cluster_that_cannot_be_synced_is_removed(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DomainStore(queue)

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(domain_store, "sync_handles", refuse)
        assert store.append([request(queue, "1", "x")]) != [None]

    assert store.domains == []
    assert store.append([request(queue, "1", "x")]) == [None]
    assert pending(store) == [b"x"]


def test_domains_do_not_share_anything(queue: str) -> None:
    store = DomainStore(queue)
    both = [request(queue, "1", "x"), request(queue, "1", "y", domain=b"example.org")]

    assert store.append(both) == [None, None]

    assert (pending(store), pending(store, b"example.org")) == ([b"x"], [b"y"])
    assert os.stat(f"{queue}/mess/0/1").st_nlink == 3


def test_a_full_disk_or_a_directory_that_cannot_be_read_ends_nothing(
    queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    DomainStore(queue).append([request(queue, "1", "x"), request(queue, "1", "y", domain=b"example.org")])
    listing = os.listdir

    def refuse(path: str) -> list[str]:
        if path.endswith("example.net"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return listing(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", refuse)
        store = DomainStore(queue)

    assert [trouble.errno for trouble in store.troubles] == [errno.EIO]
    assert store.domains == [b"example.org"]
    net, org = store.append([request(queue, "2", "x"), request(queue, "2", "y", domain=b"example.org")])
    assert net is not None and net.errno == errno.EEXIST, "what is there is not written over"
    assert org is None


def test_nothing_is_made_before_something_is_stored(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DomainStore(queue)
    assert not os.path.exists(f"{queue}/ondemand")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", refuse)
        [full] = store.append([request(queue, "1", "x")])

    assert full is not None and full.errno == errno.ENOSPC
    assert store.domains == []
    assert store.append([request(queue, "1", "x")]) == [None]


@pytest.fixture
def three_clusters(queue: str) -> tuple[DomainStore, str]:
    """Return a store with a message on hold whose recipients are in a cluster each, and its long id."""
    store = DomainStore(queue)
    for recipient in ("x", "y", "z"):
        stored = request(queue, "1", recipient)._replace(cluster_size=1)
        assert store.append([stored]) == [None]
    long_id = stored.recipients[0].long_id
    os.mkdir(f"{queue}/ondemand/example.net/hold")
    Path(queue, "ondemand/example.net/hold", long_id).write_text("why\n")
    store.read_holds(DOMAIN)
    return store, long_id


def test_a_message_stays_on_hold_while_another_cluster_has_recipients_of_it(
    queue: str, three_clusters: tuple[DomainStore, str]
) -> None:
    store, long_id = three_clusters
    finish(store, 1, b"x")
    finish(store, 3, b"z")
    assert store.held(DOMAIN) == {long_id} and names(queue, "example.net", "hold") == [long_id]

    assert store.append([request(queue, "2", "other")]) == [None]
    finish(store, 2, b"y")
    assert not store.held(DOMAIN) and not names(queue, "example.net", "hold")


def test_it_stays_so_if_the_others_are_deleted_while_nothing_runs(
    queue: str, three_clusters: tuple[DomainStore, str]
) -> None:
    _, long_id = three_clusters
    os.makedirs(f"{queue}/home/control")
    os.symlink(queue, f"{queue}/home/queue")
    home = Home(f"{queue}/home")
    for recipient in (b"x", b"z"):
        remove_stored(home, DOMAIN, StoredOrder(DELETE_STORED, recipient, frozenset([long_id])))
    assert names(queue, "example.net", "hold") == [long_id] and names(queue, "example.net", "mess") == [f"2.{long_id}"]
    remove_stored(home, DOMAIN, StoredOrder(DELETE_STORED, b"", frozenset([long_id])))
    assert not names(queue, "example.net", "hold") and not names(queue, "example.net", "mess")
