"""What a run tries next: groups in order, clusters one after the other, and what each purpose takes."""

from queue_ondemand.domain_run import GROUP_MAX, ChosenRecords, DomainRun, Purpose
from queue_wire.files.cluster import ClusterRecord, StoredRecipient
from queue_wire.files.stored_order import WHOLE, ClusterEnd, StoredOrder


def record(offset: int, message: int, recipient: bytes = b"r", birth: int = 100, sender: bytes = b"s") -> ClusterRecord:
    return ClusterRecord(offset, False, StoredRecipient(message, birth, 10, sender, recipient))


def is_old(birth: int) -> bool:
    return birth < 50


def run(purpose: Purpose = Purpose.DELIVERY, chosen: str = "") -> DomainRun:
    ids = frozenset([chosen] if chosen else [])
    return DomainRun(b"example.net", b"etrn", [3, 5], is_old, purpose, ChosenRecords(ids))


def groups(found: DomainRun) -> list[list[int]]:
    result = []
    while group := found.next_group():
        result.append([each.offset for each in group])
    return result


def test_recipients_of_one_message_that_follow_each_other_are_one_group() -> None:
    found = run()
    assert found.next_cluster() == 3
    others = [record(5, 7, birth=101), record(6, 7, sender=b"t")]
    found.load([record(1, 7), record(2, 7), record(3, 8), record(4, 7), *others])

    assert groups(found) == [[1, 2], [3], [4], [5], [6]]
    assert found.next_cluster() == 5
    assert found.next_cluster() is None


def test_a_group_has_a_limit() -> None:
    found = run()
    found.load([record(offset, 7) for offset in range(GROUP_MAX + 2)])

    assert [len(group) for group in groups(found)] == [GROUP_MAX, 2]


def test_a_run_that_stops_takes_nothing_more_and_knows_the_oldest_that_stays() -> None:
    found = run()
    found.next_cluster()
    found.load([record(1, 7), record(2, 8, birth=60), record(3, 9, birth=70)])
    found.keep(found.next_group())

    found.stop()

    assert found.next_group() == [] and found.next_cluster() is None
    assert (found.deferred, found.oldest) == (1, 60)


def test_an_unloaded_run_goes_on_with_the_record_that_was_next() -> None:
    found = run()
    found.next_cluster()
    records = [record(1, 7), record(2, 8), record(3, 9, birth=60), record(4, 10)]
    found.load(records)
    found.keep(found.next_group())
    found.touched = True
    found.next_group()
    found.put_back()
    found.unload()
    assert (found.unloaded, found.next_group(), found.oldest) == (True, [], 60)

    assert found.next_cluster() == 3
    found.load(records)
    assert groups(found) == [[2], [3], [4]]
    assert (found.unloaded, found.touched, found.next_cluster(), found.deferred) == (False, True, 5, 1)
    found.load(records)
    assert groups(found) == [[1], [2], [3], [4]]


def test_an_unloaded_run_whose_cluster_cannot_be_read_takes_all_of_the_next_one() -> None:
    found = run()
    found.next_cluster()
    found.load([record(1, 7), record(2, 8)])
    found.next_group()
    found.next_group()
    found.put_back()
    found.unload()
    assert (found.next_cluster(), found.next_cluster()) == (3, 5)
    found.load([record(1, 9)])
    assert groups(found) == [[1]]


def test_a_run_for_expiry_takes_what_has_expired_and_ends_at_a_cluster_without() -> None:
    found = run(Purpose.EXPIRY)
    found.next_cluster()
    found.load([record(1, 7, birth=49), record(2, 8, birth=50), record(3, 9, birth=10)])
    assert groups(found) == [[1], [3]]
    assert found.next_cluster() == 5
    found.load([record(1, 7, birth=90)])

    assert groups(found) == [] and found.next_cluster() is None
    assert found.oldest == 50


def test_an_order_takes_one_message_or_all() -> None:
    records = [record(1, 7), record(2, 8), record(3, 7)]
    for purpose in (Purpose.DELETION, Purpose.RETURN):
        one, everything = run(purpose, chosen=records[0].stored.long_id), run(purpose)
        one.load(records)
        everything.load(records)
        assert groups(one) == [[1, 3]]
        assert groups(everything) == [[1], [2], [3]]


def test_a_cluster_in_which_all_is_done_is_to_be_settled() -> None:
    found = run()
    found.load([])
    assert found.touched
    found.load([record(1, 7)])
    assert not found.touched


def test_what_is_on_hold_is_neither_tried_nor_expires_and_orders_take_it() -> None:
    records = [record(1, 7, birth=10), record(2, 8, birth=10), record(3, 9, birth=200)]
    held = frozenset([records[0].stored.long_id])
    for purpose, taken in ((Purpose.DELIVERY, [2, 3]), (Purpose.EXPIRY, [2]), (Purpose.DELETION, [1, 2, 3])):
        found = run(purpose)
        found.next_cluster()
        found.load(records, held)
        assert [each for group in groups(found) for each in group] == taken
    whole = run()
    whole.next_cluster()
    whole.load(records, frozenset([WHOLE]))
    assert groups(whole) == [] and whole.next_cluster() == 5
    assert whole.oldest == 10, "the domain is looked through again when it expires"


def test_a_search_for_expired_mail_goes_on_behind_what_is_on_hold() -> None:
    found = run(Purpose.EXPIRY)
    found.next_cluster()
    found.load([record(1, 7, birth=10)], frozenset([WHOLE]))
    assert groups(found) == [] and found.next_cluster() == 5


def test_an_order_may_be_about_one_recipient() -> None:
    chosen = ChosenRecords(order=StoredOrder(b"bounce", b"ann@x", ends=(ClusterEnd(3, 9, 100),)))
    found = DomainRun(b"example.net", b"bounce", [3], is_old, Purpose.RETURN, chosen)
    found.next_cluster()
    found.load([record(1, 7, b"Ann@X"), record(2, 7, b"bob@x"), record(3, 8, b"ann@x")], seed=9)
    assert groups(found) == [[1], [3]]


def test_an_order_takes_nothing_that_was_stored_after_it_was_given() -> None:
    order = StoredOrder(b"delete", ends=(ClusterEnd(3, 9, 20), ClusterEnd(4, 8, 100)))
    found = DomainRun(b"example.net", b"delete", [3, 4, 5], is_old, Purpose.DELETION, ChosenRecords(order=order))
    taken = []
    # The last two are other clusters than the order has seen.
    for seed in (9, 7, 6):
        found.next_cluster()
        found.load([record(10, 7), record(20, 8), record(30, 9)], seed=seed)
        taken.append(groups(found))
    assert taken == [[[10]], [], []]
