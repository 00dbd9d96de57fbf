"""queue-local to its forwarder and back: one netstring each way for a message to be forwarded. Pure.

    number \\0 mess/B/I \\0 uid \\0 sender \\0 head \\0 recipient [\\0 recipient ...]
    number \\0 letter and text           K and `qp PID`, the injector's, or Z or D and the reason

The number is of queue-local's choice; answers come in any order.
"""

from typing import NamedTuple

from queue_local.result import Forward, pack_forward, unpack_forward
from queue_wire.format_error import FormatError, quoted
from queue_wire.framing import pack_netstring
from queue_wire.report import PERMANENT, SUCCESS, TEMPORARY

_LETTERS = (SUCCESS, TEMPORARY, PERMANENT)


class Request(NamedTuple):
    """A forward to make of the message whose file is `path` under queue/."""

    number: int
    path: bytes
    forward: Forward


class Answer(NamedTuple):
    """How the forward of that number went."""

    number: int
    letter: bytes
    text: bytes


def pack_request(request: Request) -> bytes:
    """Return a request as a netstring. Raises FormatError for a forward that cannot be packed."""
    return pack_netstring(b"%d\0%s\0%s" % (request.number, request.path, pack_forward(request.forward)))


def unpack_request(payload: bytes) -> Request:
    """Return the request in a netstring's payload. Raises FormatError."""
    number, path, rest = [*payload.split(b"\0", 2), b"", b""][:3]
    return Request(_number(number), path, unpack_forward(rest))


def pack_answer(answer: Answer) -> bytes:
    """Return an answer as a netstring; a NUL in its text becomes `_`."""
    return pack_netstring(b"%d\0%s%s" % (answer.number, answer.letter, answer.text.replace(b"\0", b"_")))


def unpack_answer(payload: bytes) -> Answer:
    """Return the answer in a netstring's payload. Raises FormatError."""
    number, _, text = payload.partition(b"\0")
    if text[:1] not in _LETTERS:
        raise FormatError(f"forward: not an answer: {quoted(payload)}")
    return Answer(_number(number), text[:1], text[1:])


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > 18:
        raise FormatError(f"forward: not a number: {quoted(text)}")
    return int(text)
