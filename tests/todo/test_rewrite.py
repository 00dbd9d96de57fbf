"""Rewriting: every rule of qmail-send(8) on locals, percenthack, virtualdomains and envnoathost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.control.lines import unpack_map, unpack_set
from queue_wire.control.rewrite import LOCAL, REMOTE, Rules, rewrite, rule_key, split_recipients

RULES = Rules(
    envnoathost=b"me.example",
    locals=unpack_set(b"me.example\nLocal.Example\n"),
    percenthack=unpack_set(b"hack.example\nme.example\nOther.example\n"),
    virtualdomains=unpack_map(
        b"joe@virtual.example:joe-user\nvirtual.example:virtual\n.virtual.example:under\n"
        b"out.virtual.example:\nbob@out.virtual.example:bob\n.deep.virtual.example:deep\n"
        b"local.example:never\nBIG.example:BIG-Alias\n"
    ),
)
CATCH_ALL = RULES._replace(virtualdomains=unpack_map(b"out.example:\n:all\n.in.example:in\n"))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        # locals, without regard to case; the address keeps its own.
        (b"joe@me.example", (LOCAL, b"joe@me.example")),
        (b"Joe@LOCAL.example", (LOCAL, b"Joe@LOCAL.example")),
        (b"joe@sub.me.example", (REMOTE, b"joe@sub.me.example")),
        (b"joe@elsewhere.example", (REMOTE, b"joe@elsewhere.example")),
        # envnoathost, which the other rules then apply to.
        (b"joe", (LOCAL, b"joe@me.example")),
        (b"", (LOCAL, b"@me.example")),
        (b"a%b.example", (REMOTE, b"a@b.example")),
        # An empty host is a host: nothing is added.
        (b"joe@", (REMOTE, b"joe@")),
        (b"@", (REMOTE, b"@")),
        # percenthack, repeatedly.
        (b"joe%there.example@hack.example", (REMOTE, b"joe@there.example")),
        (b"joe%there.example@HACK.example", (REMOTE, b"joe@there.example")),
        (b"joe%local.example@hack.example", (LOCAL, b"joe@local.example")),
        (b"joe%a.example%other.example@hack.example", (REMOTE, b"joe@a.example")),
        (b"joe%a.example%b.example@hack.example", (REMOTE, b"joe%a.example@b.example")),
        (b"joe%there.example@elsewhere.example", (REMOTE, b"joe%there.example@elsewhere.example")),
        (b"joe%@hack.example", (REMOTE, b"joe@")),
        (b"%@hack.example", (REMOTE, b"@")),
        (b"joe%virtual.example@me.example", (LOCAL, b"joe-user-joe@virtual.example")),
        # virtualdomains: the address, the host, the suffixes from the longest to the shortest.
        (b"joe@virtual.example", (LOCAL, b"joe-user-joe@virtual.example")),
        (b"JOE@Virtual.Example", (LOCAL, b"joe-user-JOE@Virtual.Example")),
        (b"sue@virtual.example", (LOCAL, b"virtual-sue@virtual.example")),
        (b"sue@a.virtual.example", (LOCAL, b"under-sue@a.virtual.example")),
        (b"sue@b.a.virtual.example", (LOCAL, b"under-sue@b.a.virtual.example")),
        (b"sue@a.deep.virtual.example", (LOCAL, b"deep-sue@a.deep.virtual.example")),
        (b"sue@deep.virtual.example", (LOCAL, b"under-sue@deep.virtual.example")),
        (b"sue@notvirtual.example", (REMOTE, b"sue@notvirtual.example")),
        (b"sue@big.EXAMPLE", (LOCAL, b"BIG-Alias-sue@big.EXAMPLE")),
        (b"sue@.virtual.example", (LOCAL, b"under-sue@.virtual.example")),
        # An empty prepend is an exception, and ends the search; a more specific entry comes before it.
        (b"sue@out.virtual.example", (REMOTE, b"sue@out.virtual.example")),
        (b"bob@out.virtual.example", (LOCAL, b"bob-bob@out.virtual.example")),
        # locals come first.
        (b"sue@local.example", (LOCAL, b"sue@local.example")),
        # The last @ divides.
        (b"a@b@me.example", (LOCAL, b"a@b@me.example")),
        (b"a@me.example@elsewhere.example", (REMOTE, b"a@me.example@elsewhere.example")),
        (b"a@b%c@hack.example", (REMOTE, b"a@b@c")),
        # A fully qualified name with its final dot is the same one. No name ends in two dots.
        (b"joe@me.example.", (LOCAL, b"joe@me.example")),
        (b"Joe@LOCAL.example.", (LOCAL, b"Joe@LOCAL.example")),
        (b"joe%local.example.@hack.example.", (LOCAL, b"joe@local.example")),
        (b"sue@a.virtual.example.", (LOCAL, b"under-sue@a.virtual.example")),
        (b"joe@elsewhere.example.", (REMOTE, b"joe@elsewhere.example.")),
        (b"joe@me.example..", (REMOTE, b"joe@me.example..")),
        (b"joe@.", (REMOTE, b"joe@.")),
    ],
)
def test_an_address_is_rewritten_as_the_manual_says(address: bytes, expected: tuple[bool, bytes]) -> None:
    assert rewrite(address, RULES) == expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (b"sue@anywhere.example", (LOCAL, b"all-sue@anywhere.example")),
        (b"sue@out.example", (REMOTE, b"sue@out.example")),
        (b"sue@a.in.example", (LOCAL, b"in-sue@a.in.example")),
        (b"sue@in.example", (LOCAL, b"all-sue@in.example")),
        (b"sue@", (LOCAL, b"all-sue@")),
        (b"sue@me.example", (LOCAL, b"sue@me.example")),
    ],
)
def test_the_catch_all_takes_what_no_other_entry_names(address: bytes, expected: tuple[bool, bytes]) -> None:
    assert rewrite(address, CATCH_ALL) == expected


IDN = "b\u00fccher.example"
PLAIN = b"xn--bcher-kva.example"


@pytest.mark.parametrize("entry", [IDN, IDN.upper(), PLAIN.decode()])
@pytest.mark.parametrize("host", [IDN, IDN.upper(), "b\uff55\u0308cher\uff0eexample", PLAIN.decode()])
def test_u_labels_and_a_labels_are_equal_in_addresses_and_entries(entry: str, host: str) -> None:
    address, key = f"Joe@{host}".encode(), rule_key(entry.encode())
    here = Rules(b"me.example", frozenset((key,)), frozenset((key,)), {})
    assert rewrite(address, here) == (LOCAL, b"Joe@" + PLAIN)
    assert rewrite(f"joe%there.example@{host}".encode(), here) == (REMOTE, b"joe@there.example")
    none = here._replace(locals=frozenset(), percenthack=frozenset())
    for virtual in (entry, f"joe@{entry}"):
        rules = none._replace(virtualdomains={rule_key(virtual.encode()): b"ann"})
        assert rewrite(address, rules) == (LOCAL, b"ann-Joe@" + PLAIN)
    below = none._replace(virtualdomains={rule_key(b"." + entry.encode()): b"ann"})
    assert rewrite(f"joe@mx.{host}".encode(), below) == (LOCAL, b"ann-joe@mx." + PLAIN)
    # Remote mail keeps its address: queue-remote knows what the other host takes.
    assert rewrite(address, none) == (REMOTE, address)
    impossible = "joe@\u0378.example".encode()
    assert rewrite(impossible, none._replace(locals=frozenset((rule_key(impossible[4:]),)))) == (LOCAL, impossible)


def test_the_percent_hack_does_not_look_into_a_host_with_an_at_sign() -> None:
    # What stands behind the % is the host that percenthack is asked about, whatever is in it.
    rules = RULES._replace(percenthack=unpack_set(b"here\nc\n"))
    assert rewrite(b"x%a%b@c@here", rules) == (REMOTE, b"x%a@b@c")


def test_recipients_are_divided_in_their_order_and_repeats_stay() -> None:
    recipients = [b"r1@x.example", b"l1", b"r2@x.example", b"l1", b"r1@x.example"]
    assert split_recipients(recipients, RULES) == (
        [b"l1@me.example", b"l1@me.example"],
        [b"r1@x.example", b"r2@x.example", b"r1@x.example"],
    )


def test_an_address_whose_host_is_no_domain_keeps_its_case() -> None:
    rules = Rules(b"me.example", frozenset(), frozenset(), {b"": b"v"})
    assert rewrite(b"U@A\xff", rules) == (LOCAL, b"v-U@A\xff")
    assert rewrite("U@Ä.Example".encode(), rules) == (LOCAL, b"v-U@xn--4ca.example")


def naive(address: bytes, rules: Rules) -> tuple[bool, bytes]:
    """qmail-send(8) read literally, one position at a time, with positions instead of parts.

    What is not in it: the final dot of a host does not count.
    """
    text = bytearray(address)
    at = text.rfind(b"@")
    if at < 0:
        at = len(text)
        text += b"@" + rules.envnoathost
    while dotless(bytes(text[at + 1 :])).lower() in rules.percenthack:
        percent = text.rfind(b"%", 0, at)
        if percent < 0:
            break
        del text[at:]
        at = percent
        text[at] = ord("@")
    sent = bytes(text)
    at = sent.rfind(b"@")
    whole = sent[: at + 1] + dotless(sent[at + 1 :])
    if whole[at + 1 :].lower() in rules.locals:
        return LOCAL, whole
    for place in range(len(whole) + 1):
        if place in (0, at + 1, len(whole)) or (place > at and whole[place : place + 1] == b"."):
            prepend = rules.virtualdomains.get(whole[place:].lower())
            if prepend == b"":
                break
            if prepend is not None:
                return LOCAL, prepend + b"-" + whole
    return REMOTE, sent


def dotless(host: bytes) -> bytes:
    return host[:-1] if host.endswith(b".") and host != b"." and not host.endswith(b"..") else host


hosts = st.sampled_from([b"a", b"b.a", b"c.b.a", b".a", b"a.", b"b..a", b"", b"A", b"B.a"])
addresses = st.lists(st.sampled_from([b"u", b"@", b"%", b".", b"a", b"b.a", b"A", b"c", b"\xff"]), max_size=9).map(
    b"".join
)


@given(
    address=addresses,
    envnoathost=hosts,
    local=st.sets(hosts, max_size=2),
    hack=st.sets(hosts, max_size=3),
    virtual=st.dictionaries(
        st.one_of(hosts, hosts.map(lambda host: b"." + host), addresses), st.sampled_from([b"", b"v", b"W"]), max_size=5
    ),
)
def test_rewriting_agrees_with_a_literal_reading_of_the_manual(
    address: bytes, envnoathost: bytes, local: set[bytes], hack: set[bytes], virtual: dict[bytes, bytes]
) -> None:
    rules = Rules(
        envnoathost,
        frozenset(map(rule_key, local)),
        frozenset(map(rule_key, hack)),
        {rule_key(key): prepend for key, prepend in virtual.items()},
    )
    assert rewrite(address, rules) == naive(address, rules)
