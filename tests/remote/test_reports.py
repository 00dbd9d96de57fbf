"""Reports of a program with qmail-remote's contract, read as qmail-rspawn reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_remote import program
from queue_remote.program import unpack_reports
from queue_wire.format_error import FormatError
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE


def letters(data: bytes, count: int) -> list[bytes]:
    return [letter for letter, _ in unpack_reports(data, count)[1]]


def test_each_recipient_has_its_report_and_those_taken_share_the_messages() -> None:
    scope, verdicts = unpack_reports(b"r\0hno user\n\0slater\n\0Ktaken\n\0", 3)
    assert scope == MESSAGE_SCOPE
    assert verdicts == [(b"K", b"taken\n"), (b"D", b"no user\n"), (b"Z", b"later\n")]


def test_what_is_said_of_the_message_is_added_to_a_refusal_that_is_no_worse() -> None:
    assert unpack_reports(b"hno\n\0Dgiving up\n\0", 1)[1] == [(b"D", b"no\ngiving up\n")]
    assert unpack_reports(b"slater\n\0Dgiving up\n\0", 1)[1] == [(b"Z", b"later\ngiving up\n")]
    assert unpack_reports(b"hno\n\0Zdied\n\0", 1)[1] == [(b"D", b"no\n")]
    assert unpack_reports(b"r\0Zdied\n\0", 1)[1] == [(b"Z", b"died\n")]


def test_a_report_on_the_message_alone_holds_for_everybody() -> None:
    assert letters(b"Kall\0", 2) == [b"K", b"K"]
    assert letters(b"Dnone\0", 2) == [b"D", b"D"]


def test_who_is_not_reported_on_is_not_taken_for_done() -> None:
    assert letters(b"r\0Kdone\0", 2) == [b"K", b"Z"]
    assert letters(b"hno\0Zdied\0", 3) == [b"D", b"Z", b"Z"]


def test_the_first_report_on_the_message_is_the_last_that_counts() -> None:
    assert letters(b"xodd\0r\0Kfirst\0Dsecond\0rubbish", 1) == [b"K"]


@pytest.mark.parametrize("data", [b"", b"r\0", b"Kno end", b"\0\0\0", b"rubbish\0"])
def test_without_a_report_on_the_message_nothing_is_known(data: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_reports(data, 1)


def test_the_nexthop_is_blamed_only_where_it_was_not_there() -> None:
    away = b"ZSorry, I wasn't able to establish an SMTP connection. (#4.4.1)\n\0"
    assert unpack_reports(away, 2)[0] == HOST_SCOPE
    assert unpack_reports(b"r\0" + away, 1)[0] == MESSAGE_SCOPE
    assert unpack_reports(b"D" + away[1:], 1)[0] == MESSAGE_SCOPE
    assert unpack_reports(b"Zbusy (#4.3.0)\n\0", 1)[0] == MESSAGE_SCOPE


def test_texts_are_cleaned_and_cut() -> None:
    [(_, text)] = unpack_reports(b"K\x1b[2J\xff" + b"a" * 20000 + b"\0", 1)[1]
    assert text.startswith(b"?[2J?aaa")
    assert len(text) <= 10000


@given(
    st.lists(st.sampled_from([b"r", b"h", b"s", b"K", b"Z", b"D", b"\0", b"x", b"\xff"])).map(b"".join),
    st.integers(1, 4),
)
def test_whatever_it_says_every_recipient_has_a_verdict_or_nobody_has(data: bytes, count: int) -> None:
    try:
        scope, verdicts = unpack_reports(data, count)
    except FormatError:
        return
    assert len(verdicts) == count
    assert scope in (HOST_SCOPE, MESSAGE_SCOPE)


@pytest.mark.parametrize("records", [b"r\0", b"\0", b"x\0", b"h\0\0K"], ids=["r", "empty", "others", "h"])
def test_records_without_number_are_passed_over_and_few_texts_are_cleaned(
    records: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned: list[int] = []

    def clean(text: bytes) -> bytes:
        cleaned.append(len(text))
        return text

    monkeypatch.setattr(program, "clean", clean)
    unpack_reports(records * 60_000 + b"Kdone\0", 3)
    assert len(cleaned) <= 4


@given(
    st.lists(st.sampled_from([b"r", b"h", b"s", b"K", b"Z", b"D", b"\0", b"x", b"no (#4.4.1)", b"\n"])).map(b"".join)
)
def test_records_are_read_in_their_order_as_they_always_were(data: bytes) -> None:
    taken: list[bytes] = []
    message = b""
    for text in data.split(b"\0")[:-1]:
        if text[:1] in (b"K", b"Z", b"D") and text:
            message = text
            break
        if text[:1] in (b"r", b"h", b"s") and text:
            taken.append(text)
    if not message:
        with pytest.raises(FormatError):
            unpack_reports(data, 3)
        return
    _, verdicts = unpack_reports(data, 3)
    assert len(verdicts) == 3
    if not taken:
        assert verdicts == [(message[:1], message[1:])] * 3
    for text, (letter, said) in zip(taken[:3], verdicts, strict=False):
        assert letter == {b"h": b"D", b"s": b"Z"}.get(text[:1], message[:1])
        assert said.startswith(text[1:])
