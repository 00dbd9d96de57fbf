"""lock/control: what queuectl asks of queue-send, and what it gets. Netstrings, fields separated by NULs.

    request   command NUL argument NUL argument ...
    reply     ok NUL count NUL note NUL note ...        count: messages that were changed
              error NUL text                             nothing was done

hold has the reason as its first argument; release, requeue, delete, bounce, flush have none of their own. After it
come long ids, at most IDS_MOST. probe has domains instead. A note is a letter and a text: `-` a message that
is not there (any more), `!` one that could not be changed, `=` something to know.

Questions change nothing, and the texts of their notes are facts (queue_wire.admin.cause, queue_wire.admin.facts):

    why           long id, then where its recipients go: L and an address, R and a domain   causes
    destinations  channel, place to go on from (empty: the start), nexthops (none: all)     destinations;
                                                                  count is the next place, 0 for no more
    totals                                                 channels; count is 1 once the backlog is read
"""

from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted
from queue_wire.framing import pack_netstring

IDS_MOST = 100  # Ids, or domains, in one request.
REQUEST_MOST = 65536  # Bytes of a request.
RESPONSE_MOST = 1 << 20  # Bytes of a reply.
HOLD = b"hold"
RELEASE = b"release"
REQUEUE = b"requeue"
DELETE = b"delete"
BOUNCE = b"bounce"
FLUSH = b"flush"
PROBE = b"probe"
WHY = b"why"
DESTINATIONS = b"destinations"
TOTALS = b"totals"
QUESTIONS = frozenset((WHY, DESTINATIONS, TOTALS))
COMMANDS = frozenset((HOLD, RELEASE, REQUEUE, DELETE, BOUNCE, FLUSH, PROBE)) | QUESTIONS
CHANNELS = (b"local", b"remote")
GONE = b"-"
TROUBLE = b"!"
NEWS = b"="
_LETTERS = GONE + TROUBLE + NEWS


class Request(NamedTuple):
    """A command, the reason of hold (else empty), and long ids, domains, or what a question is about."""

    command: bytes
    reason: bytes
    names: list[bytes]


class Note(NamedTuple):
    """GONE, TROUBLE or NEWS, and a text without NUL."""

    letter: bytes
    text: bytes


class Response(NamedTuple):
    """How many messages were changed, and notes; `error`, where it is not empty, says why nothing was done."""

    touched: int
    notes: list[Note]
    error: bytes = b""


def pack_request(request: Request) -> bytes:
    """Return the request as a netstring. A NUL in a field is the caller's bug."""
    reason = [request.reason] if request.command == HOLD else []
    return pack_netstring(b"\0".join([request.command, *reason, *request.names]))


def unpack_request(payload: bytes) -> Request:
    """Return the request in one netstring's payload. Raises FormatError."""
    command, *names = payload.split(b"\0")
    if command not in COMMANDS:
        raise FormatError(f"control: unknown command: {quoted(command)}")
    reason = b""
    if command == HOLD:
        if not names:
            raise FormatError("control: hold without a reason")
        reason = names.pop(0)
    if len(names) > IDS_MOST:
        raise FormatError(f"control: {len(names)} names, limit {IDS_MOST}")
    if command == WHY and not (names and all(name[:1] in (b"L", b"R") for name in names[1:])):
        raise FormatError("control: why without an id, or with something that is no recipient")
    if command == DESTINATIONS and not _is_place(names[:2]):
        raise FormatError("control: destinations without a channel and a place")
    return Request(command, reason, names)


def _is_place(names: list[bytes]) -> bool:
    if len(names) < 2 or names[0] not in CHANNELS:
        return False
    return not names[1] or (names[1].isdigit() and len(names[1]) <= 18)


def pack_response(reply: Response) -> bytes:
    """Return the reply as a netstring."""
    if reply.error:
        return pack_netstring(b"error\0" + reply.error)
    notes = [note.letter + note.text for note in reply.notes]
    return pack_netstring(b"\0".join([b"ok", b"%d" % reply.touched, *notes]))


def unpack_response(payload: bytes) -> Response:
    """Return the reply in one netstring's payload. Raises FormatError."""
    word, *fields = payload.split(b"\0")
    if word == b"error" and len(fields) == 1 and fields[0]:
        return Response(0, [], fields[0])
    if word != b"ok" or not fields or not fields[0].isdigit() or len(fields[0]) > 18:
        raise FormatError(f"control: neither ok nor error: {quoted(payload)}")
    count, *texts = fields
    if not all(text[:1] and text[:1] in _LETTERS for text in texts):
        raise FormatError(f"control: unknown note: {quoted(payload)}")
    return Response(int(count), [Note(text[:1], text[1:]) for text in texts])
