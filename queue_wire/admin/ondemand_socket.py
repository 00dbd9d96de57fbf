"""The socket intake/ondemand: requests to queue-ondemand for the mail of a domain, and its answers. Pure.

    request    netstring: command NUL name NUL client [NUL user]        from queue-smtpd and queuectl
    answer     netstring: word NUL text

    etrn       a client's ETRN; `client` is its address. It is limited by etrninterval.
    atrn       a user's ATRN; the name is one or more domains with commas between them, the user has authenticated, and
               each user has a share of the places. With the first byte comes a
               descriptor (SCM_RIGHTS): a connected stream socket, at whose other end the user's host is the server
    flush      the administrator's; `client` has the long ids of the messages, with commas, or is empty for all
    delete     remove stored mail; `client` is the long id of one message, or empty for all. From root and the owner
    bounce     return it to its sender; likewise
    orders     carry out the orders about the domain that are on the disk (queue_wire.files.stored_order); or the one
               whose bytes are in `client`, for which a full disk has no room
    holds      read the marks of the domain anew
    when       nothing is done
    requeued   tell what an order has requeued, which was not told before; the name is that of the order

The name is a domain, `@` and a domain for that and all domains below it, or `#` and a domain, which is the same as the
domain. Any number of requests on a connection, one after the other. The answers are those of RFC 1985 section 5:

                                                                        ETRN   ATRN
    started    a delivery has begun, or waits for its turn               250    250
    empty      nothing is stored                                         251    453
    running    a delivery was under way already                          252    450
    later      it was asked for a short while ago, or too often, or      458    451
               is on hold, with the text ON_HOLD
    unknown    the domain is not an on-demand domain of this kind;       459    451
               with the text NO_LINE if mail is stored for it

`started` to `atrn` is followed by another answer when all that can be delivered has been: `clean` if the connection
can carry more, since its server waits for a command; `broken` if it cannot. The descriptor is closed before. Nothing
else may be asked meanwhile. Each time that the user asks on another connection, which is told `running`, `wanted` comes
before it: who has the connection ends it if nothing passes.

`orders`, `holds` and `when` are answered with `running` if there is a run of the domain, `empty` if nothing is stored,
`unknown` if the domain has no line in control/ondemand any more, or `later` with the seconds until the next probe,
without a text if none is planned. `orders` with an order is answered when it is carried out, with `empty`, or with
`later` if not all of it could be; at once with `running` if that has to wait for a delivery. `requeued` is answered
with `started` and lines, each the domain, the long id that a message had and the one that it has in the queue; or
`empty`.

The socket is in the directory of queue-intake's, where every user may go. Who may ask is up to queue-ondemand.
"""

from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted
from queue_wire.pipes.framing import pack_netstring

SOCKET = "intake/ondemand"
REQUEST_MAX = 262144
ETRN = b"etrn"
ATRN = b"atrn"
FLUSH = b"flush"
DELETE = b"delete"
BOUNCE = b"bounce"
ORDERS = b"orders"
HOLDS = b"holds"
WHEN = b"when"
REQUEUED = b"requeued"
COMMANDS = (ETRN, ATRN, FLUSH, DELETE, BOUNCE, ORDERS, HOLDS, WHEN, REQUEUED)
STARTED = b"started"
EMPTY = b"empty"
RUNNING = b"running"
LATER = b"later"
UNKNOWN = b"unknown"
CLEAN = b"clean"
BROKEN = b"broken"
WANTED = b"wanted"
ON_HOLD = b"on hold"
NO_LINE = b"no line in control/ondemand"
WORDS = (STARTED, EMPTY, RUNNING, LATER, UNKNOWN, CLEAN, BROKEN, WANTED)


class RequeuedMessage(NamedTuple):
    """A message that was stored for a domain and is in the queue now, under a new long id."""

    domain: bytes
    old: str
    new: str


class RunRequest(NamedTuple):
    """A request for the mail of a domain."""

    command: bytes
    name: bytes
    client: bytes = b""
    user: bytes = b""


class RunAnswer(NamedTuple):
    """One of WORDS, and a text for people, which may be empty."""

    word: bytes
    text: bytes = b""


def pack_run_request(request: RunRequest) -> bytes:
    """Return the request as a netstring."""
    return pack_netstring(b"\0".join(request if request.user else request[:3]))


def unpack_run_request(payload: bytes) -> RunRequest:
    """Return the request in one netstring's payload. Raises FormatError."""
    fields = payload.split(b"\0")
    if not 3 <= len(fields) <= 4 or fields[0] not in COMMANDS:
        raise FormatError(f"on-demand request: not command, name, client, user: {quoted(payload)}")
    return RunRequest(*fields)


def pack_run_answer(answer: RunAnswer) -> bytes:
    """Return the answer as a netstring."""
    return pack_netstring(answer.word + b"\0" + answer.text.replace(b"\0", b"_"))


def unpack_run_answer(payload: bytes) -> RunAnswer:
    """Return the answer in one netstring's payload. Raises FormatError."""
    word, nul, text = payload.partition(b"\0")
    if not nul or word not in WORDS:
        raise FormatError(f"on-demand answer: not word, text: {quoted(payload)}")
    return RunAnswer(word, text)


def unpack_requeued(text: bytes) -> list[RequeuedMessage]:
    """Return the messages in the text of the answer to `requeued`. Raises FormatError."""
    found = []
    for line in text.splitlines():
        words = line.split(b" ")
        if len(words) != 3:
            raise FormatError(f"on-demand answer: not domain, old id, new id: {quoted(line)}")
        found.append(RequeuedMessage(words[0], *(word.decode("ascii", "replace") for word in words[1:])))
    return found
