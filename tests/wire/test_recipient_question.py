"""Verdicts of the recipient checker that are too long."""

from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.recipient_question import VERDICT_MAX, RecipientVerdict, pack_verdict, unpack_verdict


def test_a_long_text_is_cut() -> None:
    reader = NetstringReader()
    reader.feed(pack_verdict(RecipientVerdict(7, b"Z", b"x" * 10_000)))
    cut = reader.next()
    assert cut is not None and len(cut) == VERDICT_MAX and unpack_verdict(cut).letter == b"Z"
