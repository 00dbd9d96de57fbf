"""The socket lock/control: requests of queuectl and responses of queue-send, as netstrings of NUL-separated fields.

    request    command NUL argument NUL argument ...
    response   ok NUL count NUL note NUL note ...        count: the number of messages that were changed
               error NUL text                            nothing was changed

The arguments of release, requeue, delete, bounce and flush are long ids, at most IDS_MAX; those of hold are the reason
and long ids; those of bounce-some and flush-some are a recipient and a domain, one of them perhaps empty, and long ids;
those of probe are domains. A note is a letter and a text: `-` there is no such message (any more), `!`
the message could not be changed, `*` it is on hold, and stays as it is, `=` information.

The arguments of resubmit are long ids, or none for all messages that wait in todo/.

reread has no arguments and does what HUP does. The response comes when the other daemons have reread, too; a `!` note
says that a daemon keeps its old values, and why. A `=` note for each daemon has its name, a newline and what it has in
force (queue_wire.admin.settings).

Queries change nothing. The texts of their notes are records (queue_wire.admin.cause, facts, figure):

    why            arguments: a long id, then the pending recipients, L and an address or R and a domain
                   notes: causes
    destinations   arguments: a channel, the page to continue at (empty: the first), nexthops (none: all)
                   notes: destinations; count: the next page, 0 if there is none
    totals         notes: channels; count: 1 if the backlog has been read
    settings       as reread, but nothing is read anew by queue-send and queue-todo; the others look at their files as
                   they do with their next job
    figures        notes: figures (queue_wire.admin.figure)
    removals       count: finished messages that wait for queue-clean; one note: the seconds of the oldest request
"""

from typing import NamedTuple

from queue_wire.admin.returning import RecipientSelector
from queue_wire.format_error import FormatError, quoted
from queue_wire.pipes.framing import pack_netstring

IDS_MAX = 100  # Ids, or domains, in one request.
REQUEST_MAX = 65536  # Bytes of a request.
RESPONSE_MAX = 1 << 20  # Bytes of a response.
HOLD = b"hold"
RELEASE = b"release"
REQUEUE = b"requeue"
DELETE = b"delete"
BOUNCE = b"bounce"
BOUNCE_SOME = b"bounce-some"
FLUSH = b"flush"
FLUSH_SOME = b"flush-some"
PROBE = b"probe"
RESUBMIT = b"resubmit"
WHY = b"why"
DESTINATIONS = b"destinations"
TOTALS = b"totals"
REMOVALS = b"removals"
REREAD = b"reread"
SETTINGS = b"settings"
FIGURES = b"figures"
QUERIES = frozenset((WHY, DESTINATIONS, TOTALS, REMOVALS, SETTINGS, FIGURES))
SOME = frozenset((BOUNCE_SOME, FLUSH_SOME))  # Those that act on some recipients.
COMMANDS = frozenset((HOLD, RELEASE, REQUEUE, DELETE, BOUNCE, FLUSH, PROBE, REREAD, RESUBMIT)) | SOME | QUERIES
CHANNELS = (b"local", b"remote")
GONE = b"-"
TROUBLE = b"!"
NEWS = b"="
ON_HOLD = b"*"
_LETTERS = GONE + TROUBLE + NEWS + ON_HOLD


class Request(NamedTuple):
    """A command, the reason of hold (empty for others), and long ids, domains, or the arguments of a query.

    `selector` is that of bounce-some and flush-some: which recipients of the messages are bounced, or tried.
    """

    command: bytes
    reason: bytes
    names: list[bytes]
    selector: RecipientSelector = RecipientSelector(b"", b"")


class Note(NamedTuple):
    """GONE, TROUBLE, NEWS or ON_HOLD, and a text without NUL."""

    letter: bytes
    text: bytes


class Response(NamedTuple):
    """The number of messages that were changed, and notes; or an `error`, which says why nothing was changed."""

    touched: int
    notes: list[Note]
    error: bytes = b""


def pack_request(request: Request) -> bytes:
    """Return the request as a netstring. No field may contain a NUL."""
    reason = [request.reason] if request.command == HOLD else []
    if request.command in SOME:
        reason = list(request.selector)
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
    selector = RecipientSelector(b"", b"")
    if command in SOME:
        selector = RecipientSelector(*names[:2]) if len(names) >= 2 else selector
        if not selector.any:
            raise FormatError(f"control: {command.decode()} without a recipient or a domain")
        names = names[2:]
    if len(names) > IDS_MAX:
        raise FormatError(f"control: {len(names)} names, limit {IDS_MAX}")
    if command == WHY and not (names and all(name[:1] in (b"L", b"R") for name in names[1:])):
        raise FormatError("control: why without an id, or with something that is no recipient")
    if command == DESTINATIONS and not _is_place(names[:2]):
        raise FormatError("control: destinations without a channel and a place")
    return Request(command, reason, names, selector)


def _is_place(names: list[bytes]) -> bool:
    if len(names) < 2 or names[0] not in CHANNELS:
        return False
    return not names[1] or (names[1].isdigit() and len(names[1]) <= 18)


def pack_response(response: Response) -> bytes:
    """Return the response as a netstring."""
    if response.error:
        return pack_netstring(b"error\0" + response.error)
    notes = [note.letter + note.text for note in response.notes]
    return pack_netstring(b"\0".join([b"ok", b"%d" % response.touched, *notes]))


def unpack_response(payload: bytes) -> Response:
    """Return the response in one netstring's payload. Raises FormatError."""
    word, *fields = payload.split(b"\0")
    if word == b"error" and len(fields) == 1 and fields[0]:
        return Response(0, [], fields[0])
    if word != b"ok" or not fields or not fields[0].isdigit() or len(fields[0]) > 18:
        raise FormatError(f"control: neither ok nor error: {quoted(payload)}")
    count, *texts = fields
    if not all(text[:1] and text[:1] in _LETTERS for text in texts):
        raise FormatError(f"control: unknown note: {quoted(payload)}")
    return Response(int(count), [Note(text[:1], text[1:]) for text in texts])
