"""The duplicate filter of forwards: which messages it looks at, what it remembers, and for how long."""

from pathlib import Path

import pytest

from queue_local import duplicate_filter
from queue_local.duplicate_filter import DuplicateFilter, Passage, filtered_passage

FORWARDED = b"Received: (qmail 7 invoked by uid 1000); 26 Sep 1995 04:46:54 -0000\nDelivered-To: round-%d@example.org\n"
ORIGINAL = b"Received: (qmail 9 invoked by uid 0); 26 Sep 1995 04:46:50 -0000\nSubject: x\n\nbody\n"


HEAD = b"Delivered-To: last@example.org\n"


def passage(place: Path, forwards: int, original: bytes = ORIGINAL, head: bytes = HEAD) -> Passage | None:
    path = place / "message"
    path.write_bytes(b"".join(FORWARDED % number for number in range(forwards)) + original)
    with path.open("rb") as file:
        return filtered_passage(file.fileno(), head)


def digest(place: Path, forwards: int, original: bytes = ORIGINAL) -> bytes | None:
    found = passage(place, forwards, original)
    return None if found is None else found.message


def by(message: bytes, way: bytes = b"way") -> Passage:
    return Passage(message, way)


def test_only_the_third_forward_of_a_message_and_later_ones_are_filtered(tmp_path: Path) -> None:
    assert digest(tmp_path, 0) is None and digest(tmp_path, 1) is None
    assert digest(tmp_path, 2) is not None


def test_a_message_is_the_same_after_any_forwards_and_differs_from_any_other(tmp_path: Path) -> None:
    assert digest(tmp_path, 2) == digest(tmp_path, 9)
    assert digest(tmp_path, 2) != digest(tmp_path, 2, ORIGINAL.replace(b"body", b"other"))
    assert digest(tmp_path, 2) != digest(tmp_path, 2, ORIGINAL.replace(b"04:46:50", b"04:46:51"))


def test_the_way_of_a_message_is_all_its_forwards_with_the_present_one(tmp_path: Path) -> None:
    ways = [
        passage(tmp_path, 2),
        passage(tmp_path, 2, head=b"Delivered-To: other@example.org\n"),
        passage(tmp_path, 3),
        passage(tmp_path, 2, ORIGINAL.replace(b"body", b"other")),
    ]
    first, other, longer, another = [each.way for each in ways if each is not None]
    assert len({first, other, longer}) == 3 and another == first


def test_an_address_gets_a_message_once_and_again_if_it_was_not_queued() -> None:
    known = DuplicateFilter()
    assert known.left(by(b"1"), [b"a", b"b", b"a"]) == [b"a", b"b"]
    known.add(by(b"1"), [b"a", b"b"])
    assert known.left(by(b"1", b"other"), [b"b", b"c", b"a"]) == [b"c"] and known.left(by(b"2"), [b"a"]) == [b"a"]
    known.remove(by(b"1"), [b"a"])
    assert known.left(by(b"1", b"other"), [b"a", b"b"]) == [b"a"]


def test_an_equal_message_of_the_same_second_takes_the_ways_of_the_first_one() -> None:
    known = DuplicateFilter()
    known.add(by(b"1"), [b"a"])
    assert known.left(by(b"1", b"other"), [b"a"]) == []
    assert known.left(by(b"1"), [b"a"]) == [b"a"]


def test_the_messages_that_were_forwarded_longest_ago_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicate_filter, "ADDRESSES_MAX", 4)
    known = DuplicateFilter()
    for name in (b"1", b"2"):
        known.add(by(name), [b"a", b"b"])
    known.left(by(b"1"), [b"a"])
    known.add(by(b"3"), [b"a"])
    assert [known.left(by(name, b"other"), [b"a"]) for name in (b"1", b"2", b"3")] == [[], [b"a"], []]
    known.add(by(b"4"), [b"%d" % number for number in range(9)])
    assert known.left(by(b"4", b"other"), [b"3", b"4"]) == [b"4"]
    assert known.left(by(b"1", b"other"), [b"a"]) == [b"a"]
