"""Does a recipient exist? queue-smtpd asks the recipient checker of queue-local on a Unix socket.

    question     netstring: number \\0 address            any number of them on a connection; \\0 servers may follow,
                                                        and \\0 R for a relayed recipient
    verdict      netstring: number \\0 letter and text    one for each, in any order

The address is the one that the delivery would get: rewritten by percenthack and virtualdomains. `servers` names the
LMTP servers that localroutes, or smtproutes for a relayed recipient, has for it, so that not too many are asked of the
same ones. The letter is that of
queue-local's report on a delivery: K there is such a mailbox, D there is none, Z it cannot be told now. The text is the
reason, for the log.
"""

from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted
from queue_wire.pipes.framing import pack_netstring

# Below queue/. The directory is that of queue-intake's socket.
CHECK_SOCKET = "intake/recipients"
EXISTS = b"K"
UNKNOWN = b"D"
UNDECIDED = b"Z"
# Bytes of the payload of a question: virtualdomains may put anything before an address.
QUESTION_MAX = 8192
VERDICT_MAX = 4096
_RELAYED = b"\0R"
_LETTERS = (EXISTS, UNKNOWN, UNDECIDED)


class RecipientQuestion(NamedTuple):
    """A question; the number is the asker's. `servers` is empty for a recipient of queue-local's own.

    `relayed`: smtproutes has the servers, and not localroutes.
    """

    number: int
    address: bytes
    servers: bytes = b""
    relayed: bool = False


class RecipientVerdict(NamedTuple):
    """The verdict on the question with this number."""

    number: int
    letter: bytes
    text: bytes = b""


def pack_question(question: RecipientQuestion) -> bytes:
    """Return a question as a netstring."""
    text = b"%d\0%s" % question[:2]
    if question.servers:
        text += b"\0%s" % question.servers + (_RELAYED if question.relayed else b"")
    return pack_netstring(text)


def unpack_question(payload: bytes) -> RecipientQuestion:
    """Return the question in a netstring's payload. Raises FormatError."""
    relayed = payload.endswith(_RELAYED) and payload.count(b"\0") == 3
    number, *rest = (payload.removesuffix(_RELAYED) if relayed else payload).split(b"\0")
    if len(rest) not in (1, 2):
        raise FormatError(f"recipient question: not a number and an address: {quoted(payload)}")
    address, servers = rest if len(rest) == 2 else (rest[0], b"")
    return RecipientQuestion(_number(number), address, servers, relayed)


def pack_verdict(verdict: RecipientVerdict) -> bytes:
    """Return a verdict as a netstring; of a long text the end is left out."""
    return pack_netstring((b"%d\0%s%s" % verdict)[:VERDICT_MAX])


def unpack_verdict(payload: bytes) -> RecipientVerdict:
    """Return the verdict in a netstring's payload. Raises FormatError."""
    number, _, text = payload.partition(b"\0")
    if text[:1] not in _LETTERS:
        raise FormatError(f"recipient verdict: not a verdict: {quoted(payload)}")
    return RecipientVerdict(_number(number), text[:1], text[1:])


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > 18:
        raise FormatError(f"recipient question: not a number: {quoted(text)}")
    return int(text)
