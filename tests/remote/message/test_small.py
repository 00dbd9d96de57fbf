"""A small message is sent as a large one is: the same bytes, the same size, the same facts."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_remote.message.message_scan import MessageScan
from queue_remote.message.small import SMALL_MAX, SmallMessage, read_small
from queue_smtp.dotstuff import DotStuffer

CHUNKS = st.sampled_from([b"a", b".", b"\n", b"\r", b"\r\n", b"\xe9", b"\xc3\xa9", b"\0", b"x" * 999])
PIECES = st.lists(CHUNKS).map(b"".join)


@given(PIECES)
def test_the_bytes_the_size_and_the_facts_are_those_of_a_large_message(stored: bytes) -> None:
    small, stuffer, scan = SmallMessage(stored), DotStuffer(), MessageScan(lines=True)
    scan.feed(stored)
    facts = scan.facts()
    assert small.wire == stuffer.feed(stored) + stuffer.finish()
    assert (small.size, small.eight_bit, small.has_long_lines()) == (facts.wire_size, facts.eight_bit, facts.long_lines)
    assert small.header_utf8 == facts.header_utf8


def test_a_message_is_small_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "message"
    path.write_bytes(b"x" * SMALL_MAX)
    found = read_small(str(path))
    assert found is not None
    assert found.stored == b"x" * SMALL_MAX
    path.write_bytes(b"x" * (SMALL_MAX + 1))
    assert read_small(str(path)) is None


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"x")
    for name in ("fifo", "link", "."):
        with pytest.raises(OSError):
            read_small(str(tmp_path / name))
