"""queue-enqueue: reads a message on descriptor 0 and its envelope on descriptor 1, and queues it (qmail-queue(8)).

Exit code 0 means that the message would survive a power cut, 11 to 40 that it can never be queued, any other code that
it may be queued later. Each failure is one line on stderr; nothing is written to stdout. With --id-on the long id is
written to a descriptor once the message is queued.
"""

import os

from queue_base.errors import READ, QueueTrouble, Usage, explain, reason
from queue_base.home import Home, take_help, take_home, take_queue
from queue_inject.source import Deadline, TimedSource, guard_descriptors
from queue_inject.writers import open_writer
from queue_wire.files.envelope import EnvelopeReader

PROGRAM = "queue-enqueue"
USAGE = "usage: queue-enqueue [--home HOME] [--queue NAME] [--id-on DESCRIPTOR] 0<message 1<envelope"
HELP = f"""{USAGE}
Puts a message in the queue. The envelope on descriptor 1 is F<sender> and T<recipient> ..., each ended by a NUL, and
one more NUL. Exit code 0: queued; 11 to 40: it can never be queued; any other: try again later (as qmail-queue).
--queue names one of several queues (control/queues); by default it is chosen by room and load.
--id-on has the long id of the message written to DESCRIPTOR when it is queued, a line; `-` if it is not known yet.
"""
ID_ON = "--id-on"
DESCRIPTORS = 1 << 20  # More than a process has.


def read_envelope(source: TimedSource) -> tuple[bytes, list[bytes]]:
    """Return (sender, recipients). Reads nothing after the closing NUL. Raises QueueTrouble, FormatError."""
    reader = EnvelopeReader()
    for data in source:
        envelope = reader.feed(data)
        if envelope is not None:
            return envelope
    raise QueueTrouble(READ, "unable to read the envelope: it ends without its closing NUL; nothing was queued")


def take_descriptor(arguments: list[str]) -> tuple[int | None, list[str]]:
    """Return the descriptor of a leading --id-on, and the arguments without it. Raises Usage."""
    if arguments[:1] != [ID_ON]:
        return None, arguments
    word = (arguments[1:] or [""])[0]
    if not word.isascii() or not word.isdigit() or not 2 < int(word) < DESCRIPTORS:
        raise Usage(f"{ID_ON} needs the number of a descriptor, from 3 on; {USAGE}")
    try:
        os.fstat(int(word))
    except OSError as error:
        raise Usage(f"unable to use descriptor {word} of {ID_ON}: {reason(error)}") from error
    return int(word), arguments[2:]


def enqueue(home: Home, descriptor: int | None = None) -> None:
    """Put one message in the queue; its long id goes to the descriptor. Raises QueueTrouble, FormatError."""
    deadline = Deadline()
    guard_descriptors(needed=2, readable=2)
    message = TimedSource(0, "the message on descriptor 0", deadline)
    addresses = TimedSource(1, "the envelope on descriptor 1", deadline)
    draft = open_writer(home).put(message, lambda: read_envelope(addresses))
    if descriptor is not None:
        try:
            os.write(descriptor, draft.long_id.encode() + b"\n")
        except OSError:
            pass  # The message is queued, whether anybody learns its id or not.


def main(argv: list[str]) -> int:
    """Return an exit code of qmail-queue."""
    os.umask(0o027)
    try:
        home, rest = take_queue(*take_home(argv[1:]))
        if take_help(rest, HELP):
            return 0
        descriptor, rest = take_descriptor(rest)
        if rest:
            raise Usage(f"{rest[0]} is not an option; {USAGE}")
        enqueue(home, descriptor)
    except BaseException as error:
        return explain(PROGRAM, error)
    return 0
