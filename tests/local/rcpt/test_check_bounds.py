"""What the recipient checker keeps has bounds, whoever asks about whatever."""

import os
import resource
import select
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from queue_base.errors import Permanent, Temporary
from queue_local.rcpt import check_service
from queue_local.rcpt.check_service import KEPT_MAX, CheckService, KeptVerdicts
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.recipient_question import RecipientQuestion, RecipientVerdict, pack_question, unpack_verdict

MILLION = 1_000_000
MEGABYTES = 1 << 20


def memory() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_a_million_unknown_recipients_cost_bounded_memory() -> None:
    kept = KeptVerdicts()

    def ask_many(numbers: range) -> None:
        for number in numbers:
            kept.put(b"unknown-%d@host.example" % number, b"D", b"Sorry, no mailbox here by that name.", 0.0)

    ask_many(range(MILLION // 2))
    before = memory()
    ask_many(range(MILLION // 2, MILLION))
    assert len(kept) == KEPT_MAX and memory() - before < 5 * MEGABYTES
    assert kept.get(b"unknown-%d@host.example" % (MILLION - 1), 0.0) is not None
    assert kept.get(b"unknown-1@host.example", 0.0) is None


def test_the_oldest_verdict_is_forgotten_and_none_is_kept_for_long() -> None:
    kept = KeptVerdicts()
    kept.put(b"a@h", b"K", b"", 0.0)
    kept.put(b"b@h", b"D", b"no", 0.0)
    kept.put(b"c@h", b"Z", b"hangs", 0.0)
    kept.put(b"x" * 1000 + b"@h", b"D", b"no", 0.0)
    assert len(kept) == 2 and kept.get(b"c@h", 0.0) is None
    assert kept.get(b"b@h", 4.9) is not None and kept.get(b"b@h", 5.1) is None
    assert kept.get(b"a@h", 29.9) is not None and kept.get(b"a@h", 30.1) is None


@pytest.fixture
def pair() -> Iterator[tuple[CheckService, socket.socket]]:
    """Yield a service whose lookups hang, and a connection to it."""
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as client:
        listening.bind("")
        listening.listen()
        listening.setblocking(False)

        def hang(question: RecipientQuestion) -> None:
            while True:
                signal.pause()

        service = CheckService(listening, {os.getuid()}, hang)
        client.connect(listening.getsockname())
        client.setblocking(False)
        yield service, client
        service.close()


def test_more_questions_than_may_wait_are_undecided_at_once(
    pair: tuple[CheckService, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, client = pair
    monkeypatch.setattr(check_service, "QUESTIONS_MAX", 50)
    monkeypatch.setattr(check_service, "QUESTION_SECONDS", 0.5)
    monkeypatch.setattr(check_service, "KILL_SECONDS", 0.1)
    client.setblocking(True)
    client.sendall(b"".join([pack_question(RecipientQuestion(n, b"a-%d@h" % n)) for n in range(200)]))
    client.setblocking(False)
    reader, found = NetstringReader(), list[RecipientVerdict]()
    most = 0
    while len(found) < 200:
        service.step()
        most = max(most, len(service.lookups))
        try:
            reader.feed(client.recv(65536))
        except BlockingIOError:
            continue
        while (payload := reader.next()) is not None:
            found.append(unpack_verdict(payload))
    at_once = [verdict for verdict in found if b"wait for their lookup" in verdict.text]
    assert len(at_once) == 150 and {verdict.number for verdict in at_once} == set(range(50, 200))
    assert {verdict.letter for verdict in found} == {b"Z"}
    # They begin alike.
    assert most == check_service.LOOKUPS_ALIKE


def test_while_an_lmtp_server_cannot_tell_a_recipient_that_it_had_exists_for_a_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check_service, "SERVED_SECONDS", {b"K": 0.0, b"D": 0.0})
    ends, asks = socket.socketpair()
    with ends, asks:
        asks.settimeout(60)
        answers: dict[bytes, Exception | None] = {b"joe@h": None, b"x@h": Permanent("no")}

        def work(question: RecipientQuestion) -> None:
            if (error := answers[question.address]) is not None:
                raise error

        lookups = check_service.RecipientLookups(work)
        asker, reader = check_service._Asker(ends), NetstringReader()
        begun = time.monotonic()

        def verdict(address: bytes, at: float) -> bytes:
            lookups.ask(asker, RecipientQuestion(1, address, b"lmtp:/s"), begun + at)
            while not asker.verdicts.unwritten:
                poll = select.poll()
                lookups.prepare(poll, begun + at)
                lookups.run({descriptor for descriptor, _ in poll.poll(1000)}, begun + at)
            asker.verdicts.flush()
            reader.feed(asks.recv(1000))
            payload = reader.next()
            assert payload is not None
            return unpack_verdict(payload).letter

        assert (verdict(b"joe@h", 0.0), verdict(b"x@h", 0.0)) == (b"K", b"D")
        answers.update(dict.fromkeys(answers, Temporary("it is gone")))
        assert (verdict(b"joe@h", 10.0), verdict(b"x@h", 10.0)) == (b"K", b"Z")
        assert verdict(b"joe@h", check_service.LAST_SECONDS + 11) == b"Z"


def test_those_who_ask_for_unknown_recipients_make_nobody_forget_the_others() -> None:
    kept = KeptVerdicts()
    kept.put(b"joe@h", b"K", b"", 0.0)
    for number in range(2 * KEPT_MAX):
        kept.put(b"unknown-%d@h" % number, b"D", b"no", 1.0)
    assert len(kept) == KEPT_MAX + 1 and kept.get(b"joe@h", 2.0) is not None
    kept.put(b"joe@h", b"D", b"no", 3.0)
    assert not kept.existed(b"joe@h", 3.0) and len(kept) == KEPT_MAX
