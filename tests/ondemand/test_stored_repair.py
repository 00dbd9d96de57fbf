"""`queuectl check` and `repair` on damaged on-demand mail: each kind is found and mended, and nothing is lost.

A damaged queue has three messages for example.net: `one` for a and b, `two` for c, `three` for d; each is in a cluster
of its own, and `two` is also stored for example.com.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_admin.checks.queue_repair import repair
from queue_admin.checks.stored_records import check_stored
from queue_wire.files.cluster import HEADER_SIZE, StoredRecipient, link_name
from support.faults.cuts import Cut, cut_after, how_many
from support.plugins.amount import amount
from support.queues.damage import KnownQueue
from support.queues.stored_mail import store, stored_mail

pytestmark = pytest.mark.usefixtures("usual_umask")
ALL = [("one", "a"), ("one", "b"), ("two", "c"), ("three", "d")]


class Site:
    """The queue, and the paths that are damaged."""

    def __init__(self, path: Path) -> None:
        self.queue = KnownQueue(path, fill=False)
        self.home = self.queue.home
        self.messages = {
            "one": store(self.home, "one", "a", "b"),
            "two": store(self.home, "two", "c", in_queue=True),
            "three": store(self.home, "three", "d"),
        }
        layout = self.queue.layout
        kept = self.messages["two"]
        os.link(layout.mess(kept.message), f"{self.home.queue}/pid/other")
        os.makedirs(self.path("example.com", "mess"), 0o2750)
        for place in ("example.com", "example.com/mess"):
            self.path(place).chmod(0o2750)
        os.rename(f"{self.home.queue}/pid/other", self.path("example.com", "mess", link_name(1, kept.long_id)))
        self.cluster(1, "example.com").write_bytes(self.cluster(2).read_bytes())
        self.cluster(1, "example.com").chmod(0o600)
        os.unlink(layout.mess(kept.message))
        assert stored_mail(self.home) == ALL and stored_mail(self.home, "example.com") == [("two", "c")]

    def path(self, *names: str) -> Path:
        return Path(self.home.queue, "ondemand", *names)

    def cluster(self, number: int, domain: str = "example.net") -> Path:
        return self.path(domain, f"{number}.cluster")

    def link(self, number: int, name: str) -> Path:
        return self.path("example.net", "mess", link_name(number, self.messages[name].long_id))

    def findings(self) -> set[tuple[str, str]]:
        owner = os.stat(self.home.queue)
        return {(each.code, each.path) for each in check_stored(self.home.queue, (owner.st_uid, owner.st_gid), 3e9)}

    def unplaced(self) -> list[str]:
        return sorted(str(path.relative_to(self.home.queue)) for path in Path(self.home.queue).glob("corrupt/*/*/*"))


def torn(site: Site) -> None:
    with open(site.cluster(1), "ab") as cluster:
        cluster.write(b"T\x40\0\0\0torn")


def in_the_middle(site: Site) -> None:
    data = bytearray(site.cluster(1).read_bytes())
    data[HEADER_SIZE + 12] ^= 1
    site.cluster(1).write_bytes(data)


def header(site: Site) -> None:
    site.cluster(3).write_bytes(b"\0" * 60)


def no_message(site: Site) -> None:
    os.unlink(site.link(1, "one"))


def message_elsewhere(site: Site) -> None:
    os.unlink(site.link(2, "two"))


def left_over(site: Site) -> None:
    os.link(site.link(1, "one"), site.path("example.net", "mess", "9." + site.messages["one"].long_id))


def delivered(site: Site) -> None:
    data = bytearray(site.cluster(3).read_bytes())
    data[HEADER_SIZE : HEADER_SIZE + 1] = b"D"
    site.cluster(3).write_bytes(data)


def no_record(site: Site) -> None:
    os.unlink(site.cluster(3))


def no_directory(site: Site) -> None:
    os.unlink(site.path("example.com", "mess", link_name(1, site.messages["two"].long_id)))
    os.rmdir(site.path("example.com", "mess"))


def modes(site: Site) -> None:
    site.cluster(1).chmod(0o644)
    site.link(2, "two").chmod(0o600)
    site.path("example.net").chmod(0o755)


def directory(site: Site) -> None:
    os.rename(site.cluster(3), site.path("example.net", "9.cluster"))
    os.rename(site.link(3, "three"), site.path("example.net", "mess", "9." + site.messages["three"].long_id))
    site.cluster(3).mkdir()


# name: what is done, the codes that are found, what is not stored any more, what is set aside
DAMAGE: dict[str, tuple[Callable[[Site], None], set[str], set[str], list[str]]] = {
    "a torn end": (torn, {"stored"}, set(), ["1.cluster", "reason"]),
    "a damaged record": (in_the_middle, {"stored"}, {"a"}, ["1.cluster", "reason"]),
    "a damaged header": (header, {"stored"}, {"d"}, ["3.cluster", "mess", "reason", "reason"]),
    "a message that is missing": (no_message, {"stored"}, {"a", "b"}, ["info", "reason", "remote"]),
    "a message that another domain has": (message_elsewhere, {"stored"}, set(), []),
    "a link of no record": (left_over, {"stored"}, set(), []),
    "a message that was delivered": (delivered, set(), {"d"}, []),
    "a message without a record": (no_record, {"stored"}, {"d"}, ["mess", "reason"]),
    "a directory that is missing": (no_directory, {"stored"}, set(), []),
    "modes": (modes, {"mode"}, set(), []),
    "a directory in the place of a cluster": (directory, {"kind"}, set(), ["3.cluster", "reason"]),
}


def damaged(path: Path, name: str) -> Site:
    site = Site(path)
    assert site.findings() == set()
    DAMAGE[name][0](site)
    return site


def check_mended(site: Site, name: str) -> None:
    _, _, gone, aside = DAMAGE[name]
    assert stored_mail(site.home) == [(message, to) for message, to in ALL if to not in gone]
    assert stored_mail(site.home, "example.com") == [("two", "c")]
    assert site.findings() == set()
    assert sorted(map(os.path.basename, site.unplaced())) == aside


@pytest.mark.parametrize("name", DAMAGE)
def test_each_damage_is_found_and_mended_and_nothing_is_lost(tmp_path: Path, name: str) -> None:
    site = damaged(tmp_path / "home", name)
    assert {code for code, _ in site.findings()} == DAMAGE[name][1]

    said = repair(site.home, None, False)

    check_mended(site, name)
    assert said
    before = site.unplaced()
    assert repair(site.home, None, False) == [], "a second repair has nothing to do"
    assert site.unplaced() == before


def test_what_is_lost_is_kept_for_a_person_with_the_reason(tmp_path: Path) -> None:
    site = damaged(tmp_path / "home", "a message that is missing")
    first: StoredRecipient = site.messages["one"]
    repair(site.home, None, False)
    place = Path(site.home.queue, "corrupt", "unplaced", str(first.message))
    assert (place / "info").read_bytes() == b"Fone@example.org\0"
    assert (place / "remote").read_bytes() == b"Ta\0Tb\0"
    assert (place / "reason").read_text() == f"it was stored for example.net as {first.long_id}, and its text is lost\n"


def test_a_cluster_of_any_size_is_mended_from_what_a_cluster_may_have(tmp_path: Path) -> None:
    site = Site(tmp_path)
    os.truncate(site.cluster(1), 1 << 36)
    repair(site.home, None, False)
    assert not site.findings() and stored_mail(site.home) == ALL
    assert [path.stat().st_size for path in Path(site.home.queue, "corrupt").rglob("1.cluster")] == [1 << 36]


# Of so many steps of a repair one is cut.
EACH = amount(4, 1)


@pytest.mark.parametrize("name", ["a damaged record", "a damaged header", "a message that is missing", "modes"])
def test_a_repair_that_is_killed_anywhere_is_finished_by_the_next(tmp_path: Path, name: str) -> None:
    spare = damaged(tmp_path / "spare", name)
    steps = how_many(lambda: repair(spare.home, None, False))
    cuts = 0
    for step in range(0, steps, EACH):
        site = damaged(tmp_path / str(step), name)
        with pytest.MonkeyPatch.context() as patch:
            cut_after(patch, step)
            try:
                repair(site.home, None, False)
            except Cut:
                cuts += 1
        repair(site.home, None, False)
        check_mended(site, name)
    assert cuts > steps // EACH // 2
