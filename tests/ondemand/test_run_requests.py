"""The limits on ETRN, and the formats of requests and answers."""

import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.daemon.unix_sockets import is_stream
from queue_ondemand import returned_mail, run_requests
from queue_ondemand.returned_mail import TOLD_MAX, RequeuedIds
from queue_ondemand.run_requests import REQUESTS_MAX, EtrnLimits
from queue_wire.admin.ondemand_socket import (
    COMMANDS,
    REQUEST_MAX,
    WORDS,
    RequeuedMessage,
    RunAnswer,
    RunRequest,
    pack_run_answer,
    pack_run_request,
    unpack_requeued,
    unpack_run_answer,
    unpack_run_request,
)
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader

fields = st.binary(max_size=50).filter(lambda data: b"\0" not in data)


def test_a_domain_is_delivered_once_in_the_interval() -> None:
    limits = EtrnLimits()
    assert limits.allows_domain(b"a", 60, 0.0)
    assert not limits.allows_domain(b"a", 60, 59.9)
    assert limits.allows_domain(b"b", 60, 59.9)
    assert limits.allows_domain(b"a", 60, 60.0)
    assert not limits.allows_domain(b"a", 60, 119.9)


def test_a_client_has_so_many_requests_in_the_interval() -> None:
    limits = EtrnLimits()
    allowed = [limits.allows_client(b"192.0.2.1", 60, float(second)) for second in range(REQUESTS_MAX + 5)]
    assert allowed == [True] * REQUESTS_MAX + [False] * 5
    assert limits.allows_client(b"192.0.2.2", 60, 25.0)
    addresses = [b"2001:db8::%x" % number for number in range(REQUESTS_MAX + 5)]
    assert [limits.allows_client(each, 60, 25.0) for each in addresses] == allowed
    assert limits.allows_client(b"192.0.2.1", 60, 60.0)


def test_what_is_remembered_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_requests, "REMEMBERED_MAX", 2)
    limits = EtrnLimits()
    for name in (b"a", b"b", b"c"):
        assert limits.allows_domain(name, 60, 0.0)
        assert limits.allows_client(name, 60, 0.0)
    assert limits.allows_domain(b"a", 60, 1.0), "the one that was asked for longest ago is forgotten"
    assert not limits.allows_domain(b"c", 60, 1.0)


@given(st.sampled_from(COMMANDS), fields, fields, fields)
def test_a_request_comes_back_as_it_was_packed(command: bytes, name: bytes, client: bytes, user: bytes) -> None:
    request = RunRequest(command, name, client, user)
    assert unpack_run_request(payload_of(pack_run_request(request))) == request


@given(st.sampled_from(WORDS), fields)
def test_an_answer_comes_back_as_it_was_packed(word: bytes, text: bytes) -> None:
    reader = NetstringReader()
    reader.feed(pack_run_answer(RunAnswer(word, text)))
    payload = reader.next()
    assert payload is not None and unpack_run_answer(payload) == RunAnswer(word, text)


@given(st.binary(max_size=60))
def test_garbage_is_refused_or_read(data: bytes) -> None:
    for payload in (data, b"etrn\0" + data, b"started\0" + data):
        with suppress(FormatError):
            request = unpack_run_request(payload)
            assert unpack_run_request(payload_of(pack_run_request(request))) == request
        with suppress(FormatError):
            answer = unpack_run_answer(payload)
            plain = answer._replace(text=answer.text.replace(b"\0", b"_"))
            assert unpack_run_answer(payload_of(pack_run_answer(answer))) == plain


def payload_of(netstring: bytes) -> bytes:
    reader = NetstringReader()
    reader.feed(netstring)
    payload = reader.next()
    assert payload is not None
    return payload


def test_only_a_connection_is_taken_for_atrn(tmp_path: Path) -> None:
    with ExitStack() as stack:
        one, other = map(stack.enter_context, socket.socketpair())
        datagram, _ = map(stack.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        alone = stack.enter_context(socket.socket(socket.AF_UNIX))
        internet = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = stack.enter_context(socket.create_connection(internet.getsockname()))
        file = stack.enter_context(open(tmp_path / "file", "wb"))
        assert is_stream(one.fileno()) and is_stream(other.fileno())
        for wrong in (datagram, alone, internet, client, file):
            assert not is_stream(wrong.fileno())


def test_new_ids_are_told_once_by_their_order_and_fit_in_an_answer() -> None:
    ids = RequeuedIds()
    name = b"d" * 255
    for number in range(TOLD_MAX + 1):
        ids.note("1.2", name, f"{1 << 63}-{'z' * 13}", f"{number}-b")
    ids.note("1.3", b"other.example", "1-a", "-")
    first = ids.take("1.2")
    assert len(pack_run_answer(RunAnswer(b"started", first))) < REQUEST_MAX
    told = [each.new for each in unpack_requeued(first) + unpack_requeued(ids.take("1.2"))]
    assert told == [f"{number}-b" for number in range(TOLD_MAX + 1)]
    assert (ids.take("1.2"), ids.take("1.4")) == (b"", b"")
    assert unpack_requeued(ids.take("1.3")) == [RequeuedMessage(b"other.example", "1-a", "-")]
    with pytest.raises(FormatError):
        unpack_requeued(b"a b\n")


def test_new_ids_that_nobody_asks_for_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returned_mail, "KEPT_IDS_MAX", 3)
    ids = RequeuedIds()
    for order in ("1", "1", "2", "3", "3"):
        ids.note(order, b"d", "1-a", "1-b")
    assert [ids.take(order).count(b"\n") for order in ("1", "2", "3")] == [0, 1, 2]
