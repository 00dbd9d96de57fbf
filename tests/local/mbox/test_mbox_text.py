"""A message as text of an mbox file: quoting, ends, and the piece of one that a kill has left."""

import mailbox
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_local.headers import from_line
from queue_local.mbox.dotlock import SIZE, Journal, fold, pack_journal, unpack_journal
from queue_local.mbox.mbox_delivery import is_cut_message, mbox_text, missing_end
from queue_wire.format_error import FormatError

HEAD = b"From a@b Thu Jan 01 00:00:00 1970\nReturn-Path: <a@b>\nDelivered-To: c@d\n"
# Lines that are near to what is quoted.
LINES = [b"From x", b">From ", b">>From y", b"From", b"F", b">", b"From\t", b" From ", b"", b"x>From "]
ENDS = st.sampled_from([b"", b"\n"])
MESSAGES = st.builds(lambda lines, end: b"\n".join(lines) + end, st.lists(st.sampled_from(LINES)), ENDS)
MESSAGES |= st.binary(max_size=40)


def text(message: bytes, *sizes: int) -> bytes:
    """Return the text of a message that comes in pieces of these sizes, and the rest."""
    pieces, offset = [], 0
    for size in sizes:
        pieces.append(message[offset : offset + size])
        offset += size
    return b"".join(mbox_text(HEAD, [*pieces, message[offset:]]))


def _lines(message: bytes) -> list[bytes]:
    return [line for line in message.replace(b"\n", b"\n\0").split(b"\0") if line]


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (b"", b"\n"),
        (b"x", b"x\n\n"),
        (b"x\n", b"x\n\n"),
        (b"x\n\n", b"x\n\n\n"),
        (b"From x\n", b">From x\n\n"),
        (b"S: 1\n\nFrom x\n>From y\n>>From z\n", b"S: 1\n\n>From x\n>>From y\n>>>From z\n\n"),
        (b"From", b"From\n\n"),
        (b"x From y\nFrom:\nFromm z\n", b"x From y\nFrom:\nFromm z\n\n"),
        (b"\r\nFrom x\r\n", b"\r\n>From x\r\n\n"),
    ],
)
def test_from_lines_get_one_more_bracket_and_the_end_an_empty_line(message: bytes, body: bytes) -> None:
    assert text(message) == HEAD + body


@given(MESSAGES.filter(lambda data: b"\0" not in data), st.lists(st.integers(0, 5), max_size=30))
def test_the_pieces_that_a_message_comes_in_do_not_matter(message: bytes, sizes: list[int]) -> None:
    quoted = b"".join(b">" + line if line.lstrip(b">").startswith(b"From ") else line for line in _lines(message))
    end = b"" if not message or message.endswith(b"\n") else b"\n"
    assert text(message, *sizes) == HEAD + quoted + end + b"\n"


@given(MESSAGES)
def test_a_message_is_the_only_one_in_its_text_and_can_be_had_back(message: bytes) -> None:
    body = text(message)[len(HEAD) :]
    assert b"\nFrom " not in b"\n" + body
    back = re.sub(rb"(?m)^>(>*From )", rb"\1", body)
    assert back == message + (b"\n" if not message or message.endswith(b"\n") else b"\n\n")


@pytest.mark.parametrize(
    ("last", "missing"),
    [(b"", b""), (b"\n\n", b""), (b"x\n", b"\n"), (b"xy", b"\n\n"), (b"\n", b"\n"), (b"x", b"\n\n")],
)
def test_a_message_begins_after_an_empty_line(last: bytes, missing: bytes) -> None:
    assert missing_end(last) == missing


@given(MESSAGES, st.data())
def test_every_cut_of_our_own_text_is_known_as_one(message: bytes, data: st.DataObject) -> None:
    whole = text(message)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    start = data.draw(st.sampled_from([b"", b"\n", b"\n\n"]))
    assert is_cut_message([start + cut], fold(HEAD))
    assert is_cut_message([start + cut + bytes(data.draw(st.integers(0, 9)))], fold(HEAD))


@given(MESSAGES, st.data())
def test_a_cut_with_somebody_else_s_message_behind_it_is_left_alone(message: bytes, data: st.DataObject) -> None:
    whole = text(message)
    cut = whole[: data.draw(st.integers(len(HEAD), len(whole)))]
    behind = cut + b"From eve@far.example Fri Nov 20 19:06:26 2026\nSubject: x\n\n"
    at = data.draw(st.integers(len(HEAD), len(behind)))
    assert not is_cut_message([behind[:at], behind[at:]], fold(HEAD))


@pytest.mark.parametrize(
    "piece",
    [
        b"From a@b Thu Jan 01 00:00:00 1970\nSubject: of somebody else\n\n",
        b"From a@b Thu Jan 01 00:00:00 1970\nReturn-Path: <a@b>\nSubject: x\n",
        b"From a@b Thu Jan 01 00:00:00 1970\nReturn-Path: <a@b>\n\n\n",
        b"From a@b Thu Jan 01 00:00:01 1970\nReturn-Path: <a@b>\nDelivered-To: c@d\n\n",
        b"subject: x",
        b"\n\n\nFrom a",
        b"e\n",
    ],
)
def test_what_does_not_begin_as_our_messages_do_is_left_alone(piece: bytes) -> None:
    assert not is_cut_message([piece], fold(HEAD))


@given(st.integers(0, 2**40 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**24 - 1), st.integers(0, 2**24 - 1))
def test_a_journal_comes_back_as_it_was(length: int, added: int, check: int, head: int) -> None:
    packed = pack_journal(Journal(length, added, check, head))
    assert len(packed) == SIZE == 16 and unpack_journal(packed) == (length, added, check, head)


@pytest.mark.parametrize("journal", [Journal(2**40, 1, 1, 1), Journal(1, 2**32, 1, 1)])
def test_what_is_too_large_for_a_journal_is_not_undone(journal: Journal) -> None:
    assert unpack_journal(pack_journal(journal)) == Journal()


@pytest.mark.parametrize("data", [b"", b"0", b"4711\n", b"Q", b"R" + bytes(15), b"Q" + bytes(16)])
def test_the_lock_file_of_another_program_is_no_journal(data: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_journal(data)


@pytest.mark.parametrize(
    ("sender", "shown"),
    [(b"", b"MAILER-DAEMON"), (b"a@b", b"a@b"), (b"a b\tc\nd@e", b"a-b-c-d@e"), (b"j\xc3\xb6@h", b"j\xc3\xb6@h")],
)
def test_the_from_line_has_the_sender_without_white_space_and_the_date_in_utc(sender: bytes, shown: bytes) -> None:
    assert from_line(sender, 116903032) == b"From %s Sat Sep 15 01:03:52 1973\n" % shown
    assert from_line(sender, 86400.9) == b"From %s Fri Jan 02 00:00:00 1970\n" % shown


def test_python_s_mailbox_module_reads_the_text(tmp_path: Path) -> None:
    file = tmp_path / "box"
    bodies = [b"Subject: %d\n\nFrom here\n>From there\n" % number for number in range(3)]
    file.write_bytes(b"".join(text(body) for body in bodies))
    read = mailbox.mbox(file)
    assert [message["Subject"] for message in read] == ["0", "1", "2"]
    assert {message.get_payload() for message in read} == {">From here\n>>From there\n"}
    assert {message.get_from() for message in read} == {"a@b Thu Jan 01 00:00:00 1970"}
    read.close()
