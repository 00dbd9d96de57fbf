"""queue-enqueue: message on descriptor 0, envelope on descriptor 1, into the queue (qmail-queue(8)).

Exit code 0 says that the message would survive a power cut; 11 to 40 that it can never be taken; any
other that it may be taken later. For each failure there is one line on stderr and nothing on stdout.
"""

import os
import sys

from queue_base.errors import Failure, Usage, complain
from queue_base.home import Home, take_home
from queue_inject.draft import BAD_ENVELOPE, BUG, NO_MEMORY, QUEUE_TROUBLE, READ, TOO_LONG, QueueTrouble
from queue_inject.source import Deadline, Source, guard_descriptors
from queue_inject.writer import open_writer
from queue_wire.envelope import EnvelopeReader
from queue_wire.errors import AddressTooLong, FormatError

PROGRAM = "queue-enqueue"


def read_envelope(source: Source) -> tuple[bytes, list[bytes]]:
    """Return (sender, recipients); what follows the closing NUL is not read. Raises QueueTrouble, FormatError."""
    reader = EnvelopeReader()
    while data := source.read():
        envelope = reader.feed(data)
        if envelope is not None:
            return envelope
    raise QueueTrouble(READ, "unable to read the envelope: it ends without its closing NUL; nothing was queued")


def enqueue(home: Home) -> None:
    """Put one message in the queue. Raises QueueTrouble, FormatError."""
    deadline = Deadline()
    guard_descriptors(needed=2)
    writer = open_writer(home)
    draft = writer.begin()
    try:
        message = Source(0, "the message on descriptor 0", deadline)
        while data := message.read():
            draft.write(data)
        draft.finish(*read_envelope(Source(1, "the envelope on descriptor 1", deadline)))
    except BaseException:
        draft.discard()
        raise
    writer.commit([draft])


def main(argv: list[str]) -> int:
    """Return qmail-queue's exit code."""
    os.umask(0o027)
    try:
        home, rest = take_home(argv[1:])
        if rest:
            raise Usage(f"{rest[0]} is not an option; usage: queue-enqueue [--home HOME] 0<message 1<envelope")
        enqueue(home)
    except QueueTrouble as failure:
        code, text = failure.code, str(failure)
    except Failure as failure:
        code, text = QUEUE_TROUBLE, str(failure)
    except AddressTooLong as error:
        code, text = TOO_LONG, f"unable to use the envelope: {error}; nothing was queued"
    except FormatError as error:
        code, text = BAD_ENVELOPE, f"unable to use the envelope: {error}; nothing was queued"
    except MemoryError:
        code, text = NO_MEMORY, "unable to take the message: out of memory; nothing was queued"
    except KeyboardInterrupt:
        code, text = READ, "unable to take the message: interrupted"
    except Exception:
        sys.excepthook(*sys.exc_info())
        code, text = BUG, "unable to take the message: a bug in queue-enqueue; please report the lines above"
    else:
        return 0
    complain(PROGRAM, f"fatal: {text}")
    return code
