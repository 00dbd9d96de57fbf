"""last/B/I: what is written is read, from any part of a file, and nothing else is taken for a record."""

from hypothesis import given
from hypothesis import strategies as st

from queue_wire.failures import clean_text
from queue_wire.files.last_result import (
    FILE_MAX,
    FILE_MIN,
    HEADER_SIZE,
    LastResult,
    pack_header,
    pack_result,
    short_reason,
    size_limit,
    unpack_header,
    unpack_results,
    whole_records,
)
from support.plugins.strategies import garbage

nexthops = st.sampled_from([b"example.net", b"joe@me.example.org", b"192.0.2.1:2525", b"-"])
results = st.builds(
    LastResult,
    st.sampled_from(["local", "remote"]),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
    nexthops,
    st.binary(max_size=80),
)


def packed(all_results: list[LastResult]) -> bytes:
    return b"".join(pack_result(*each) for each in all_results)


def last_of(count: int, data: bytes) -> list[LastResult]:
    found = list(unpack_results(data))
    return found[len(found) - count :]


def cleaned(all_results: list[LastResult]) -> list[LastResult]:
    return [each._replace(text=clean_text(each.text)) for each in all_results]


@given(st.lists(results, max_size=5), st.integers(0, 10**16))
def test_records_are_read_as_they_were_written(many: list[LastResult], birth: int) -> None:
    data = pack_header(birth) + packed(many)
    assert unpack_header(data) == birth
    assert len(pack_header(birth)) == HEADER_SIZE
    assert list(unpack_results(data)) == cleaned(many)


@given(results, st.lists(results, max_size=3), st.data())
def test_what_stands_before_the_first_whole_record_is_passed_by(
    torn: LastResult, many: list[LastResult], data: st.DataObject
) -> None:
    first = pack_result(*torn)
    part = first[data.draw(st.integers(1, len(first) - 1)) :]
    assert last_of(len(many), part + packed(many)) == cleaned(many)
    assert whole_records(part + packed(many)).endswith(packed(many))


@given(garbage, st.lists(results, max_size=3))
def test_garbage_is_no_record_and_hides_none_after_it(junk: bytes, many: list[LastResult]) -> None:
    assert last_of(len(many), junk + b"\n" + packed(many)) == cleaned(many)
    unpack_header(junk)


@given(results, st.binary(max_size=40))
def test_a_nexthop_never_breaks_a_record(result: LastResult, nexthop: bytes) -> None:
    (found,) = unpack_results(pack_result(*result._replace(nexthop=nexthop)))
    assert found.offset == result.offset and b" " not in found.nexthop


def test_a_file_has_the_bytes_that_its_page_shows() -> None:
    text = b"Connected to 192.0.2.1 but greeting failed.\nRemote host said: 450 4.2.0 try later\n"
    assert pack_header(1_763_809_881_123_456) == b"queue-suite last 1 01763809881123456\n"
    assert pack_result("remote", 0, 1_763_813_481, b"example.net", text) == (
        b"remote 0 1763813481 example.net Connected to 192.0.2.1 but greeting failed.\n"
        b" Remote host said: 450 4.2.0 try later\n"
    )


def test_the_short_reason_is_what_the_server_said_if_it_said_something() -> None:
    refused = b"192.0.2.1 does not like recipient.\nRemote host said: 450 no\n450 later\n"
    assert short_reason(refused) == b"450 no 450 later"
    assert short_reason(refused + b"Giving up on 192.0.2.1.\n") == b"450 no 450 later"
    assert short_reason(b"CNAME lookup failed.\n (#4.4.3)\n") == b"CNAME lookup failed. (#4.4.3)"
    assert short_reason(b"") == b""


def test_the_size_of_a_file_is_bounded_by_that_of_the_envelope() -> None:
    assert size_limit(25) == FILE_MIN
    assert size_limit(25_000) == 1_000_000
    assert size_limit(10**9) == FILE_MAX
