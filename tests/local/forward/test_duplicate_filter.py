"""The duplicate filter of forwards: which messages it looks at, what it remembers, and for how long."""

from pathlib import Path

import pytest

from queue_local import duplicate_filter
from queue_local.duplicate_filter import DuplicateFilter, filtered_digest

FORWARDED = b"Received: (qmail 7 invoked by uid 1000); 26 Sep 1995 04:46:54 -0000\nDelivered-To: round-%d@example.org\n"
ORIGINAL = b"Received: (qmail 9 invoked by uid 0); 26 Sep 1995 04:46:50 -0000\nSubject: x\n\nbody\n"


def digest(place: Path, forwards: int, original: bytes = ORIGINAL) -> bytes | None:
    path = place / "message"
    path.write_bytes(b"".join(FORWARDED % number for number in range(forwards)) + original)
    with path.open("rb") as file:
        return filtered_digest(file.fileno())


def test_only_the_third_forward_of_a_message_and_later_ones_are_filtered(tmp_path: Path) -> None:
    assert digest(tmp_path, 0) is None and digest(tmp_path, 1) is None
    assert digest(tmp_path, 2) is not None


def test_a_message_is_the_same_after_any_forwards_and_differs_from_any_other(tmp_path: Path) -> None:
    assert digest(tmp_path, 2) == digest(tmp_path, 9)
    assert digest(tmp_path, 2) != digest(tmp_path, 2, ORIGINAL.replace(b"body", b"other"))
    assert digest(tmp_path, 2) != digest(tmp_path, 2, ORIGINAL.replace(b"04:46:50", b"04:46:51"))


def test_an_address_gets_a_message_once_and_again_if_it_was_not_queued() -> None:
    known = DuplicateFilter()
    assert known.left(b"1", [b"a", b"b"]) == [b"a", b"b"]
    known.add(b"1", [b"a", b"b"])
    assert known.left(b"1", [b"b", b"c", b"a"]) == [b"c"] and known.left(b"2", [b"a"]) == [b"a"]
    known.remove(b"1", [b"a"])
    assert known.left(b"1", [b"a", b"b"]) == [b"a"]


def test_the_messages_that_were_forwarded_longest_ago_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicate_filter, "ADDRESSES_MAX", 4)
    known = DuplicateFilter()
    for name in (b"1", b"2"):
        known.add(name, [b"a", b"b"])
    known.left(b"1", [b"a"])
    known.add(b"3", [b"a"])
    assert [known.left(name, [b"a"]) for name in (b"1", b"2", b"3")] == [[], [b"a"], []]
    known.add(b"4", [b"%d" % number for number in range(9)])
    assert known.left(b"4", [b"3", b"4"]) == [b"4"] and known.left(b"1", [b"a"]) == [b"a"]
