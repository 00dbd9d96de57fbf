"""Hypothesis strategies for what travels in the formats, and the ways in which bytes may arrive."""

from collections.abc import Iterator

from hypothesis import strategies as st

from queue_wire.files.envelope import ADDRESS_MAX
from queue_wire.ids import ID_MAX

# Any bytes that an address may hold on disk: all but NUL; mostly short, sometimes as long as they may be.
addresses = st.one_of(
    st.binary(max_size=40).map(lambda data: data.replace(b"\0", b"@")),
    st.sampled_from([b"", b"a@example.org", b"x y\n@[]", b"\xff@\xc3\xa9", b"a" * ADDRESS_MAX]),
)
recipients = st.lists(addresses, max_size=8)
some_recipients = st.lists(addresses, min_size=1, max_size=8)
ids = st.integers(1, ID_MAX)
numbers = st.integers(0, 10**18 - 1)
small_numbers = st.integers(0, 2**32 - 1)
# Text without NUL, as fields of NUL-separated records hold it.
texts = st.binary(max_size=60).map(lambda data: data.replace(b"\0", b"/"))
# Bytes that are nearly in a format, so that readers are taken to all their branches.
garbage = st.one_of(
    st.binary(max_size=60),
    st.lists(
        st.sampled_from(
            [
                *(b"\0", b"F", b"T", b"D", b"u", b"p", b"1", b"0", b"a@b", b":", b",", b"\n", b"mess/1/2", b"K", b"m"),
                *(b"h", b"L", b"ready", b"<", b">:\n", b"-", b"\xff", b"9" * 30, b"x" * 1100),
            ]
        ),
        max_size=12,
    ).map(b"".join),
)


def arrivals(data: bytes) -> Iterator[list[bytes]]:
    """Yield the pieces in which `data` may arrive: whole, byte by byte, and in two at every place."""
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    for at in range(0, len(data), max(1, len(data) // 50)):
        yield [data[:at], data[at:]]
# Names of classes of mail; empty for the first one.
classes = st.from_regex(r"([a-z][a-z0-9-]{0,30})?", fullmatch=True)
