"""How clients share queue-intake, and the order of answers: pure parts."""

from collections import deque

from queue_intake.answers import Answers, answer_runs
from queue_intake.sharing import SharingLimits, Turns, UsageCounts, limits_for
from queue_wire.pipes.package_reader import Package, Protocol
from queue_wire.pipes.qmtp import pack_answer


def test_clients_take_turns_however_many_messages_one_of_them_has() -> None:
    turns: Turns[int] = Turns()
    for number in range(5):
        turns.add("ann", number)
    turns.add("bob", 10)
    turns.add("joe", 20)
    assert len(turns) == 7
    assert turns.take(4) == [0, 10, 20, 1]
    turns.add("bob", 11)
    assert turns.take(9) == [2, 11, 3, 4]
    assert turns.take(9) == [] and len(turns) == 0


def test_a_client_at_its_limit_of_connections_leaves_room_for_others() -> None:
    counts = UsageCounts(SharingLimits(connections=2, all_connections=4))
    assert counts.connect("ann") and counts.connect("ann")
    assert counts.connect("ann") is None
    assert counts.connect("bob")
    # The last quarter is for trusted clients.
    assert counts.connect("joe") is None and counts.connect("joe", trusted=True)
    assert counts.connect("joe", trusted=True) is None
    for client in ("bob", "joe"):
        counts.disconnect(client)
    assert counts.connect("joe")


def test_a_client_begins_no_more_messages_than_its_limits_say() -> None:
    counts = UsageCounts(SharingLimits(messages=2, bytes=100, all_messages=4))
    ann, bob = counts.connect("ann"), counts.connect("bob")
    assert ann and bob
    counts.begin_message(ann, 1000)
    assert not counts.may_begin(ann, trusted=False) and counts.may_begin(ann, trusted=True)
    assert counts.may_begin(bob, trusted=False)
    for _ in range(2):
        counts.begin_message(bob, 1)
    # The last quarter is for trusted clients.
    assert not counts.may_begin(bob, trusted=False) and counts.may_begin(bob, trusted=True)
    counts.begin_message(bob, 1)
    assert not counts.may_begin(bob, trusted=True)
    counts.end_message("ann", 1000)
    assert not counts.may_begin(ann, trusted=False)
    counts.end_message("bob", 1)
    assert counts.may_begin(ann, trusted=False)
    # What it has is remembered while messages of it are in hand.
    counts.disconnect("bob")
    again = counts.connect("bob")
    assert again is bob


def test_limits_fit_into_the_descriptors_of_the_process() -> None:
    assert limits_for(8192) == SharingLimits()
    small = limits_for(256)
    assert small.all_connections + small.all_messages < 256
    assert 0 < small.connections < small.all_connections < small.all_messages


def refused(*invalid: int, sent: int = 4) -> Package:
    return Package(b"", [], list(invalid), sent, False, 0)


def test_every_recipient_has_its_own_answer_and_qmqp_has_one() -> None:
    bad = pack_answer(b"D", b"not an address: too long, or with a NUL (#5.1.3)")
    ok = pack_answer(b"K", b"ok")
    assert answer_runs(refused(1, 3), Protocol.QMTP, b"K", b"ok") == deque([(ok, 1), (bad, 1), (ok, 1), (bad, 1)])
    assert answer_runs(refused(0, sent=3), Protocol.QMTP, b"K", b"ok") == deque([(bad, 1), (ok, 2)])
    assert answer_runs(refused(1), Protocol.QMTP, b"K", b"ok", refuses_invalid=False) == deque([(ok, 4)])
    assert answer_runs(refused(1), Protocol.QMQP, b"K", b"ok") == deque([(ok, 1)])
    assert not answer_runs(refused(sent=0), Protocol.QMTP, b"D", b"no recipient")


def test_answers_keep_the_order_of_the_packages() -> None:
    answers = Answers()
    first, second = answers.reserve(), answers.reserve()
    second.runs = deque([(b"b", 2)])
    assert answers.collect() == b"" and len(answers) == 2
    first.runs = deque([(b"a", 1)])
    assert answers.collect() == b"abb" and len(answers) == 0


def test_neighbours_with_the_same_answer_are_one_run() -> None:
    bad = pack_answer(b"D", b"not an address: too long, or with a NUL (#5.1.3)")
    ok = pack_answer(b"K", b"ok")
    runs = answer_runs(refused(*range(900), 901, 902, sent=1000), Protocol.QMTP, b"K", b"ok")
    assert runs == deque([(bad, 900), (ok, 1), (bad, 2), (ok, 97)])
    assert answer_runs(refused(*range(900), sent=900), Protocol.QMTP, b"K", b"ok") == deque([(bad, 900)])


def test_answers_count_as_memory_until_they_are_collected() -> None:
    answers = Answers()
    for _ in range(3):
        runs = answer_runs(refused(*range(0, 1000, 2), sent=1000), Protocol.QMTP, b"K", b"ok")
        answers.settle(answers.reserve(), runs)
    assert answers.memory >= 3000 * 100
    while answers.collect():
        pass
    assert answers.memory == 0 and len(answers) == 0
    answers.settle(answers.reserve(), deque([(b"x", 1)]))
    answers.forget()
    assert answers.memory == 0 and not answers.collect()


def test_answers_for_very_many_recipients_are_made_a_piece_at_a_time() -> None:
    answers = Answers()
    answers.reserve().runs = deque([(b"x" * 100, 100_000)])
    pieces = []
    while piece := answers.collect():
        assert len(piece) < 100_000
        pieces.append(len(piece))
    assert sum(pieces) == 100 * 100_000


def test_the_client_with_most_connections_owes_one_to_those_with_few() -> None:
    counts = UsageCounts(SharingLimits(connections=4, all_connections=8))
    for client in ("ann", "ann", "ann", "bob", "bob"):
        assert counts.connect(client) and counts.evicted_for(client) in (None, "ann")
    assert counts.connect("queued", trusted=True)
    for client, owing in (("joe", "ann"), ("bob", None), ("ann", None)):
        assert counts.connect(client) is None
        assert counts.evicted_for(client) == owing
    counts.disconnect("ann")
    assert counts.connect("joe")
    # Now each has its share.
    assert [counts.evicted_for(client) for client in ("ann", "bob", "joe")] == [None, None, None]


def test_trusted_clients_owe_nothing() -> None:
    counts = UsageCounts(SharingLimits(connections=4, all_connections=8))
    for _ in range(6):
        assert counts.connect("queued", trusted=True)
    assert counts.connect("joe") is None and counts.evicted_for("joe") is None
