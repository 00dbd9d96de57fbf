"""What travels on pipes: netstrings, records, notices, jobs, reports, removals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.format_error import FormatError
from queue_wire.pipes import cleaning
from queue_wire.pipes.cleaning import ANSWERS, Removal, pack_clean, unpack_clean
from queue_wire.pipes.framing import NetstringReader, RecordReader, pack_netstring
from queue_wire.pipes.job import Job, ReversedHost, pack_job, pack_reversed, unpack_job, unpack_reversed
from queue_wire.pipes.notice import (
    LOCAL,
    REMOTE,
    Arrived,
    Ask,
    Classified,
    NoticeReader,
    pack_arrived,
    pack_ask,
    pack_classified,
    pack_log,
    unpack_notice,
)
from queue_wire.pipes.report import (
    LogLine,
    PartialReport,
    Ready,
    Report,
    SettingsReport,
    SlowJob,
    pack_log_line,
    pack_partial_report,
    pack_ready,
    pack_report,
    pack_settings,
    pack_slow_job,
    unpack_report,
)
from support.plugins import strategies


def payloads(pieces: list[bytes], cap: int = 1 << 20) -> list[bytes]:
    """Return what a new NetstringReader hands over."""
    reader, found = NetstringReader(cap), []
    for piece in pieces:
        reader.feed(piece)
        while (payload := reader.next()) is not None:
            found.append(payload)
    return found


def test_a_netstring_is_length_colon_bytes_comma() -> None:
    assert pack_netstring(b"hello world!") == b"12:hello world!,"
    assert pack_netstring(b"") == b"0:,"


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_netstrings_are_read_however_they_arrive(sent: list[bytes]) -> None:
    data = b"".join(map(pack_netstring, sent))

    for pieces in strategies.arrivals(data):
        assert payloads(pieces) == sent


def test_a_netstring_is_handed_over_before_what_follows_is_whole() -> None:
    for pieces in strategies.arrivals(b"2:ab,"):
        assert payloads([*pieces, b"3:x"]) == [b"ab"]


@pytest.mark.parametrize(
    "data", [b":", b"x", b"-1:a,", b"01:a,", b"00:,", b"1:ab", b"3:abcd", b"1234567890", b"12 :", b"\n3:abc,"]
)
def test_what_is_not_a_netstring_is_refused_however_it_arrives(data: bytes) -> None:
    for pieces in strategies.arrivals(data):
        with pytest.raises(FormatError):
            payloads(pieces)


def test_a_netstring_over_the_cap_is_refused_before_it_arrives() -> None:
    assert payloads([b"10:" + b"x" * 10 + b","], cap=10) == [b"x" * 10]
    with pytest.raises(FormatError, match="limit 10"):
        payloads([b"11:"], cap=10)


@given(strategies.garbage)
def test_garbage_for_netstrings_is_refused_alike_however_it_arrives(data: bytes) -> None:
    outcomes = set()
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        try:
            outcomes.add(str(payloads(pieces)))
        except FormatError:
            outcomes.add("refused")
    assert len(outcomes) == 1


def test_records_are_read_however_they_arrive() -> None:
    for pieces in strategies.arrivals(b"DR457\0\0Lnew msg 457\0DL4"):
        reader = RecordReader()
        assert [record for piece in pieces for record in reader.feed(piece)] == [b"DR457", b"", b"Lnew msg 457"]
        assert reader.feed(b"58\0") == [b"DL458"]


@pytest.mark.parametrize("ending", [b"", b"\0", b"\0more"])
def test_a_record_over_the_cap_is_refused_however_it_arrives(ending: bytes) -> None:
    assert RecordReader(cap=20).feed(b"x" * 20 + b"\0") == [b"x" * 20]
    for pieces in strategies.arrivals(b"x" * 21 + ending):
        reader = RecordReader(cap=20)
        with pytest.raises(FormatError):
            for piece in pieces:
                reader.feed(piece)


@pytest.mark.parametrize(
    ("local", "remote", "record"),
    [(False, False, b"DX457"), (True, False, b"DL457"), (False, True, b"DR457"), (True, True, b"DB457")],
)
def test_a_notice_is_the_record_of_the_exttodo_patch(local: bool, remote: bool, record: bytes) -> None:
    assert pack_classified(Classified(457, local, remote)) == record + b"\0"
    assert unpack_notice(record) == Classified(457, local, remote)


def test_a_log_line_travels_as_it_is() -> None:
    assert pack_log(b"new msg 457") == b"Lnew msg 457\0"
    assert unpack_notice(b"Lnew msg 457") == b"new msg 457"


def test_a_question_whether_the_lines_are_written_is_one_record() -> None:
    assert pack_ask(Ask.WRITTEN) == b"W\0"
    assert unpack_notice(b"W") is Ask.WRITTEN


FULL = Arrived(457, 1_700_000_000_123_456, 2310, b"a@example.org", [(REMOTE, b"b\n@x"), (LOCAL, b"c@y"), (REMOTE, b"")],
               pid=8123, uid=1000)


def test_a_full_notice_is_a_netstring_with_the_envelope() -> None:
    assert pack_arrived(FULL) == (
        b"63:C457\x001700000000123456\x002310\x000\x000\x008123\x001000\0a@example.org\0Rb\n@x\0Lc@y\0R,".replace(
            b"63:", b"%d:" % (len(pack_arrived(FULL)) - 4)
        )
    )


def test_a_full_notice_has_the_submitter_behind_the_uid() -> None:
    notice = FULL._replace(submitter=b"0123456789abcdef")
    (record,) = NoticeReader().feed(pack_arrived(notice))
    assert b"\x001000 0123456789abcdef\0a@example.org\0" in record and unpack_notice(record) == notice
    for wrong in (b"0123456789abcde\0", b"0123456789abcdefa\0"):
        with pytest.raises(FormatError):
            unpack_notice(record.replace(b"0123456789abcdef\0", wrong))


def test_short_and_full_notices_are_read_from_one_stream_however_they_arrive() -> None:
    stream = b"DR457\0" + pack_arrived(FULL) + b"Lnew msg 457\0W\0" + pack_arrived(FULL) + b"DL4"
    expected = [Classified(457, False, True), FULL, b"new msg 457", Ask.WRITTEN, FULL]
    for pieces in strategies.arrivals(stream):
        reader = NoticeReader()
        assert [unpack_notice(record) for piece in pieces for record in reader.feed(piece)] == expected
        assert reader.feed(b"58\0") == [b"DL458"]


@pytest.mark.parametrize("data", [b"1234567890:x", b"999999:x", b"3:abcd", b"3x:abc,", b"D" + b"x" * 20000, b"5" * 20])
def test_a_stream_of_notices_that_is_garbage_is_refused_however_it_arrives(data: bytes) -> None:
    for pieces in strategies.arrivals(data):
        reader = NoticeReader()
        with pytest.raises(FormatError):
            for piece in pieces:
                reader.feed(piece)


JOB = Job(9, b"mess/20/457", b"a@example.org", b"example.net", [b"b@example.net", b"c@example.net"])


def test_a_job_is_one_netstring_of_nul_separated_fields() -> None:
    packed = b"9\0mess/20/457\0a@example.org\0example.net\0b@example.net\0c@example.net"

    assert pack_job(JOB) == b"%d:%s," % (len(packed), packed)
    assert unpack_job(packed) == JOB


def test_a_reversed_connection_is_announced_with_its_domains() -> None:
    host = ReversedHost(b"192.0.2.7", [b"a.example", b"b.example"], 4711)
    assert [unpack_reversed(payload) for payload in payloads([pack_reversed(host)])] == [host]
    for payload in (b"reversed", b"reversed\0" + b"1", b"reread", b"1\0reversed\0a\0b\0c", b"reversedx\0" + b"1\0a\0b"):
        assert unpack_reversed(payload) is None
    for payload in (b"reversed\0" + b"1\0a", b"reversed\0x\0a\0b", b"reversed\0\0a\0b"):
        assert unpack_reversed(payload) is None


def test_a_report_is_one_netstring_with_a_verdict_for_each_recipient() -> None:
    report = Report(9, b"m", [(b"K", b"192.0.2.1 accepted"), (b"D", b"no such user")])
    packed = b"9\0m\0K192.0.2.1 accepted\0Dno such user"

    assert pack_report(report) == b"%d:%s," % (len(packed), packed)
    assert unpack_report(packed) == report
    assert pack_ready(20) == b"8:ready\00020,"
    assert unpack_report(b"ready\00020") == Ready(20)


def test_a_nul_in_a_verdict_never_makes_a_second_verdict() -> None:
    packed = pack_report(Report(9, b"m", [(b"Z", b"a\0Kb")]))

    assert [unpack_report(payload) for payload in payloads([packed])] == [Report(9, b"m", [(b"Z", b"a_Kb")])]


def test_a_verdict_of_an_unknown_letter_is_kept_for_the_caller_to_call_mangled() -> None:
    assert unpack_report(b"9\0h\0Qtext\0") == Report(9, b"h", [(b"Q", b"text"), (b"", b"")])


def test_a_slow_job_is_told_of_with_the_address_of_its_server() -> None:
    [payload] = payloads([pack_slow_job(SlowJob(9, b"2001:db8::1"))])
    assert payload == b"slow\x009\x002001:db8::1" and unpack_report(payload) == SlowJob(9, b"2001:db8::1")


def test_successes_of_a_job_that_goes_on_stand_in_the_order_of_its_recipients() -> None:
    report = PartialReport(9, [(b"", b""), (b"K", b"taken\n"), (b"", b"")])
    [payload] = payloads([pack_partial_report(report)])
    assert payload == b"partial\x009\0\0Ktaken\n\0" and unpack_report(payload) == report
    nul = pack_partial_report(PartialReport(9, [(b"K", b"a\0b")]))
    assert unpack_report(payloads([nul])[0]) == PartialReport(9, [(b"K", b"a_b")])


def test_a_line_of_queue_ondemand_for_the_log_is_one_whole_line() -> None:
    [payload] = payloads([pack_log_line(b"ondemand example.net started: etrn")])
    assert unpack_report(payload) == LogLine(b"ondemand example.net started: etrn")

    for line in (b"status: exiting", b"ondemand x\nalert: y", b"ondemand \x1b", b"ondemand " + b"x" * 1000, b""):
        with pytest.raises(FormatError):
            unpack_report(b"log\0" + line)


@given(strategies.garbage)
def test_what_is_in_force_is_read_as_it_was_written(lines: bytes) -> None:
    packed = pack_settings(SettingsReport(lines))
    reader = NetstringReader()
    reader.feed(packed)
    payload = reader.next()
    assert payload is not None and unpack_report(payload) == SettingsReport(lines.replace(b"\0", b"_"))


def test_a_removal_is_an_id_and_its_answer_one_of_three_bytes() -> None:
    assert pack_clean(457) == b"457\0"
    assert pack_clean(457, cleaning.REMOTE) == b"R457\0"
    for files in (cleaning.ANY, cleaning.LOCAL, cleaning.REMOTE, cleaning.BOTH):
        assert unpack_clean(pack_clean(457, files)[:-1]) == Removal(457, files)
    for slot, record in (None, b"T457//17\0"), (0, b"T457/0/17\0"), (16383, b"T457/16383/17\0"):
        assert pack_clean(457, cleaning.TODO, slot, 17) == record
        assert unpack_clean(record[:-1]) == Removal(457, cleaning.TODO, slot, 17)
    no_slot_or_birth = b"T457", b"T457/1", b"T457/1/", b"T457/-1/17", b"T457/1/17/", b"T/1/2"
    too_long = b"T457/123456789/1", b"T457/1/" + b"1" * 19
    for record in (b"", b"R", b"Q457", b"457R", b"0", *no_slot_or_birth, *too_long):
        with pytest.raises(FormatError):
            unpack_clean(record)
    assert ANSWERS == b"+!x"
