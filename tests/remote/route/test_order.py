"""In which order the addresses of equally good hosts are tried."""

from hypothesis import given
from hypothesis import strategies as st

from queue_remote.route.order import HOST_ADDRESSES_MAX, Target, interleave


def host(name: str, *addresses: str) -> list[Target]:
    return [Target(name.encode(), address, 25, False) for address in addresses]


def names(targets: list[Target]) -> list[tuple[str, bool]]:
    """Return (host, whether IPv6) for each target."""
    return [(target.host.decode(), ":" in target.address) for target in targets]


def test_ipv4_and_ipv6_take_turns_so_that_one_that_does_not_work_costs_every_second_attempt() -> None:
    both = host("a", "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2")
    assert names(interleave([both])) == [("a", False), ("a", True), ("a", False), ("a", True)]


def test_the_first_host_stays_the_first_whatever_kind_of_address_it_has() -> None:
    new, both, old = host("a", "2001:db8::1"), host("b", "192.0.2.1", "2001:db8::2"), host("c", "192.0.2.3")
    assert names(interleave([new, both, old])) == [("a", True), ("b", False), ("b", True), ("c", False)]
    assert names(interleave([old, both, new])) == [("c", False), ("b", True), ("b", False), ("a", True)]


def test_one_host_with_many_addresses_leaves_the_next_its_turn() -> None:
    many = host("a", *(f"192.0.2.{number}" for number in range(40)))
    assert names(interleave([many, host("b", "198.51.100.1")])) == [("a", False)] * HOST_ADDRESSES_MAX + [("b", False)]


def test_the_addresses_of_a_host_begin_with_another_each_time() -> None:
    two = host("a", "192.0.2.1", "192.0.2.2")
    assert len({interleave([two])[0] for _ in range(60)}) == 2


def test_equals_begin_with_another_each_time_where_the_lot_decides() -> None:
    assert len({interleave([host("a", "192.0.2.1"), host("b", "192.0.2.2")], shuffled=True)[0] for _ in range(60)}) == 2


@given(st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 200)), max_size=4, unique=True), max_size=5))
def test_every_address_of_few_is_there_once(shape: list[list[tuple[bool, int]]]) -> None:
    hosts = [
        host(str(index), *(f"2001:db8::{number}" if new else f"192.0.2.{number}" for new, number in addresses))
        for index, addresses in enumerate(shape)
    ]
    assert sorted(interleave(hosts)) == sorted(target for each in hosts for target in each)
