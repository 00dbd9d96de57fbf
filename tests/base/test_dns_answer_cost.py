"""Answers of DNS that a library would parse for long are found before it sees them."""

import struct
import time

import dns.exception
import dns.message
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.dns_answer_cost import is_costly
from support.servers.dns.hostile_answers import exchangers


@pytest.mark.parametrize(("count", "labels"), [(13, 118), (64, 118), (400, 118), (400, 2), (100, 40)])
def test_many_records_or_long_names_are_costly_and_that_is_found_in_little_time(count: int, labels: int) -> None:
    answer = exchangers(count, labels)
    before = time.thread_time()
    assert is_costly(answer)
    assert time.thread_time() - before < 0.005


@pytest.mark.parametrize(("count", "labels"), [(1, 118), (20, 8), (100, 3), (1, 1)])
def test_answers_of_ordinary_zones_are_not(count: int, labels: int) -> None:
    answer = exchangers(count, labels)
    assert len(dns.message.from_wire(answer).answer[0]) == count
    assert not is_costly(answer)


def test_records_with_names_of_types_that_nobody_asks_for_are_costly_if_there_are_several() -> None:
    message = dns.message.make_response(dns.message.make_query("a.example", "MX"))
    for number in range(5):
        record = dns.rrset.from_text(f"a{number}.example.", 60, "IN", "SRV", "1 1 1 b.example.")
        message.additional.append(record)
    assert is_costly(message.to_wire())


def test_ordinary_records_of_all_sections_are_not() -> None:
    message = dns.message.make_response(dns.message.make_query("a.example", "MX", use_edns=True))
    for kind, text in [
        ("MX", "10 mail.a.example."), ("NS", "ns.a.example."), ("SOA", "ns.a.example. root.a.example. 1 2 3 4 5"),
        ("AAAA", "2001:db8::1"), ("A", "192.0.2.1"), ("TXT", "\\192\\012"), ("TLSA", f"3 1 1 {'c00c' * 16}"),
        ("CNAME", "b.example."),
    ]:  # fmt: skip
        message.answer.append(dns.rrset.from_text("a.example.", 60, "IN", kind, text))
    assert not is_costly(message.to_wire())


@given(st.binary(max_size=300), st.integers(0, 60), st.integers(0, 60))
def test_any_bytes_are_read_to_an_end(data: bytes, questions: int, records: int) -> None:
    answer = struct.pack("!6H", 1, 0x8180, questions, records, 0, 0) + data
    assert is_costly(answer) in (True, False)


@given(st.lists(st.sampled_from([b"\0", b"\1a", b"\xc0\x0c", b"\xc0\x00", b"\xc0\x10", b"\x40", b"\0\x0f\0\1"])))
def test_names_that_point_anywhere_are_read_to_an_end(pieces: list[bytes]) -> None:
    answer = struct.pack("!6H", 1, 0x8180, 1, 20, 0, 0) + b"".join(pieces)
    assert is_costly(answer) in (True, False)
