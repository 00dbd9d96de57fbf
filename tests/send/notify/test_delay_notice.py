"""When a delay notice is due, and its text, read back with the standard email package."""

import email
import email.message
import re
from email.utils import parsedate_to_datetime
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from queue_send.notify.delay import DelayFacts, compose_notice, is_notice_due
from queue_wire.control.schedule import unpack_ages
from queue_wire.failures import clean_text
from queue_wire.format_error import FormatError
from support.plugins.strategies import addresses

BIRTH = 1_700_000_000
ages_lists = st.lists(st.integers(1, 10**6), max_size=6).map(lambda found: tuple(sorted(set(found))))


def facts(**others: Any) -> DelayFacts:
    """Return the facts of an ordinary notice, with some of them changed."""
    base = DelayFacts(
        me=b"me.example.org",
        bouncefrom=b"MAILER-DAEMON@me.example.org",
        recipient=b"a@example.org",
        recipients=[(b"b@example.net", b"Remote host said: 451 4.3.2 not now\nGiving up on 192.0.2.1."), (b"c@d", b"")],
        header=b"Subject: hello\n",
        birth=BIRTH,
        until=BIRTH + 604800,
        now=BIRTH + 14400,
        unique="1700014400.457.99.delay",
    )
    return base._replace(**others)


def parts(data: bytes) -> tuple[str, list[email.message.Message], str]:
    """Return the text for people, the status blocks, and the header part of a report without defects."""
    message = email.message_from_bytes(data)
    assert all(part.defects == [] for part in message.walk())
    assert (message.get_content_type(), message.get_param("report-type")) == ("multipart/report", "delivery-status")
    text, status, header = cast(list[email.message.Message], message.get_payload())
    assert [part.get_content_type() for part in (text, status, header)] == [
        "text/plain", "message/delivery-status", "text/rfc822-headers",
    ]  # fmt: skip
    blocks = cast(list[email.message.Message], status.get_payload())
    shown, head = text.get_payload(decode=True), header.get_payload(decode=True)
    assert isinstance(shown, bytes) and isinstance(head, bytes)
    return shown.decode(), [block for block in blocks if block.items()], head.decode("latin-1")


@pytest.mark.parametrize(("until", "shown"), [(-(2**40), "01 Jan 1970"), (2**40, "31 Dec 9999")])
def test_a_time_that_no_date_has_is_shown_as_the_nearest_one(until: int, shown: str) -> None:
    text, blocks, _ = parts(b"".join(compose_notice(facts(birth=until, until=until))))
    assert shown in text and shown in blocks[1]["Will-Retry-Until"] and shown in blocks[0]["Arrival-Date"]


@pytest.mark.parametrize(
    ("lines", "ages"),
    [
        ([], ()),
        ([b"4h 24h"], (14400, 86400)),
        ([b"24h 4h", b"90", b" 4h"], (90, 14400, 86400)),
    ],
)
def test_ages_are_sorted_and_each_counts_once(lines: list[bytes], ages: tuple[int, ...]) -> None:
    assert unpack_ages(b"\n".join(lines)) == ages


@pytest.mark.parametrize("word", [b"soon", b"0", b"4x", b"-1h", b"1h,2h", b"\xff"])
def test_what_is_no_time_is_refused(word: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_ages(b"4h " + word)


@given(ages=ages_lists, deferrals=st.lists(st.integers(0, 1_100_000), max_size=30), works=st.data())
def test_whatever_the_deferrals_an_age_is_told_once_and_soon(
    ages: tuple[int, ...], deferrals: list[int], works: st.DataObject
) -> None:
    told = BIRTH
    notices: list[int] = []
    for at in sorted(deferrals):
        due = is_notice_due(ages, BIRTH, told, BIRTH + at)
        # Due is exactly what has passed and was not passed at the last notice.
        last = notices[-1] if notices else 0
        assert due == any(last < age <= at for age in ages)
        if due and works.draw(st.booleans()):
            told, notices = BIRTH + at, [*notices, at]
    assert len(notices) <= len(ages)


@given(ages=ages_lists, more=ages_lists, at=st.integers(0, 10**6))
def test_another_list_does_not_repeat_what_passed_before_the_last_notice(
    ages: tuple[int, ...], more: tuple[int, ...], at: int
) -> None:
    told = BIRTH + at if is_notice_due(ages, BIRTH, BIRTH, BIRTH + at) else BIRTH
    if told > BIRTH:
        assert not is_notice_due(more, BIRTH, told, told)


def test_a_new_birth_begins_again() -> None:
    assert not is_notice_due((100,), BIRTH, BIRTH + 100, BIRTH + 150)
    assert is_notice_due((100,), BIRTH + 120, BIRTH + 100, BIRTH + 220)


def test_a_notice_says_in_every_block_what_rfc_3464_asks_for() -> None:
    data = b"".join(compose_notice(facts()))
    text, [about, *blocks], header = parts(data)
    assert email.message_from_bytes(data)["Auto-Submitted"] == "auto-replied"
    assert parsedate_to_datetime(about["Arrival-Date"]).timestamp() == BIRTH
    first, second = blocks
    assert first.keys() == ["Final-Recipient", "Action", "Status", "Diagnostic-Code", "Will-Retry-Until"]
    assert second.keys() == ["Final-Recipient", "Action", "Status", "Will-Retry-Until"]
    assert (first["Action"], first["Status"]) == ("delayed", "4.3.2")
    assert first["Diagnostic-Code"] == "smtp; 451 4.3.2 not now"
    assert (second["Final-Recipient"], second["Action"], second["Status"]) == ("rfc822; c@d", "delayed", "4.0.0")
    assert parsedate_to_datetime(first["Will-Retry-Until"]).timestamp() == BIRTH + 604800
    assert "you need not send it again" in text and first["Will-Retry-Until"] in text
    assert "<c@d>:\nNo delivery to it has succeeded so far.\n" in text
    assert header == "Subject: hello\n"


def test_a_status_that_would_be_final_does_not_stand_in_a_notice() -> None:
    data = b"".join(compose_notice(facts(recipients=[(b"b@c", b"Remote host said: 451 5.7.1 odd")])))
    assert parts(data)[1][1]["Status"] == "4.0.0"


texts = st.one_of(
    st.binary(max_size=80),
    st.lists(
        st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\0", b"<", b">:\n", b"4.2.2", b"\xff", b"x" * 1200, b"Action: x"]),
        max_size=10,
    ).map(b"".join),
)


@settings(deadline=None)
@given(st.lists(st.tuples(addresses, texts), min_size=1, max_size=4), addresses, texts)
@example([(b"a\n\n<b>:", b"no")], b"a@b", b"")
def test_nothing_that_strangers_write_breaks_the_notice(
    said: list[tuple[bytes, bytes]], sender: bytes, header: bytes
) -> None:
    recipients = [(address, clean_text(text)) for address, text in said]
    data = b"".join(compose_notice(facts(recipients=recipients, recipient=sender, header=header)))
    assert max(len(line) for line in data.split(b"\n")) <= 998
    assert b"\0" not in data and b"\r" not in data
    text, [_, *blocks], _ = parts(data)
    assert len(blocks) == len(recipients) == len(text.rstrip("\n").split("\n\n")) - 1
    for block in blocks:
        assert block["Action"] == "delayed" and block["Will-Retry-Until"]
        assert re.fullmatch(r"4\.\d{1,3}\.\d{1,3}", block["Status"])
