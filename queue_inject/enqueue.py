"""queue-enqueue: message on descriptor 0, envelope on descriptor 1, into the queue (qmail-queue(8)).

Exit code 0 says that the message would survive a power cut; 11 to 40 that it can never be taken; any
other that it may be taken later. For each failure there is one line on stderr and nothing on stdout.
"""

import os

from queue_base.errors import READ, QueueTrouble, Usage, explain
from queue_base.home import Home, take_help, take_home
from queue_inject.opening import open_writer
from queue_inject.source import Deadline, Source, guard_descriptors
from queue_wire.envelope import EnvelopeReader

PROGRAM = "queue-enqueue"
USAGE = "usage: queue-enqueue [--home HOME] 0<message 1<envelope"
HELP = f"""{USAGE}
Puts a message in the queue: F<sender>, T<recipient> ... on descriptor 1, each with a NUL, and a NUL at the end.
Exit code 0 queued, 11 to 40 it can never be taken, any other: later perhaps. They are qmail-queue's.
"""


def read_envelope(source: Source) -> tuple[bytes, list[bytes]]:
    """Return (sender, recipients); what follows the closing NUL is not read. Raises QueueTrouble, FormatError."""
    reader = EnvelopeReader()
    for data in source:
        envelope = reader.feed(data)
        if envelope is not None:
            return envelope
    raise QueueTrouble(READ, "unable to read the envelope: it ends without its closing NUL; nothing was queued")


def enqueue(home: Home) -> None:
    """Put one message in the queue. Raises QueueTrouble, FormatError."""
    deadline = Deadline()
    guard_descriptors(needed=2)
    message = Source(0, "the message on descriptor 0", deadline)
    addresses = Source(1, "the envelope on descriptor 1", deadline)
    open_writer(home).put(message, lambda: read_envelope(addresses))


def main(argv: list[str]) -> int:
    """Return qmail-queue's exit code."""
    os.umask(0o027)
    try:
        home, rest = take_home(argv[1:])
        if take_help(rest, HELP):
            return 0
        if rest:
            raise Usage(f"{rest[0]} is not an option; {USAGE}")
        enqueue(home)
    except BaseException as error:
        return explain(PROGRAM, error)
    return 0
