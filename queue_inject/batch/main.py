"""queue-inject --batch: many messages on stdin, in one of four formats, into the queue; a line on stdout for each.

    ok LONG-ID            it would survive a power cut
    failed N: REASON      message N, counted from 1, is not in the queue

The lines come in the messages' order, as soon as they are true: groups share a commit, and a group ends when it is
large enough, has waited half a second, or the input pauses. So after a crash as many messages were done as there are
lines, and --skip with that number takes the rest. A crash between a commit and its lines sends that group twice.

Exit code 0: all ok; 100: some can never be sent; 111: some may be sent later, or the batch ended early.
"""

import os

from queue_base.durable import write_all
from queue_base.errors import TEMPORARY, Failure, QueueTrouble, complain, explain, reason
from queue_base.home import Home, take_help
from queue_inject.batch.group import Group, Result, Stopped
from queue_inject.batch.input import BatchInput
from queue_inject.batch.options import USAGE, BatchOptions
from queue_inject.batch.take import Taker
from queue_inject.header.complete import Completer
from queue_inject.opening import open_writer
from queue_inject.source import guard_descriptors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue_inject.batch.progress import Progress

PROGRAM = "queue-inject"
HELP = f"""{USAGE}
Puts many messages in the queue. mbox is mboxrd, mboxo its elder; bsmtp is RFC 2442; netstring: message, envelope, ...
  --skip N        begin after the first N messages: as many as an earlier run has said lines for
Says `ok LONG-ID` or `failed N: REASON` for each, in order, once it would survive a power cut.
Exit code 0 all queued, 100 some can never be, 111 some may be later, or the batch ended early.
"""


def open_progress(source: BatchInput) -> "Progress | None":
    """Return a progress bar where stderr is a terminal."""
    if not os.isatty(2):
        return None
    # Imported here because click takes longer to load than a small batch.
    from queue_inject.batch.progress import Progress

    return Progress(source.size)


def say(results: list[Result], progress: "Progress | None") -> None:
    """Write the lines of a group on stdout, in one go. Raises Stopped."""
    text = "".join([f"{result}\n" for result in results])
    if progress is not None:
        progress.count(results)
    try:
        write_all(1, text.encode("ascii", "backslashreplace"))
    except OSError as error:
        numbers = f"{results[0].number} to {results[-1].number}"
        raise Stopped(f"unable to write results of messages {numbers}: {reason(error)}", TEMPORARY) from error


def read_batch(source: BatchInput, options: BatchOptions, taker: Taker, progress: "Progress | None") -> None:
    """Take all messages of the input. Raises Stopped, QueueTrouble."""
    reader = options.open_reader()
    while True:
        data = source.read(taker.group.waits, taker.begun)
        if data is None:
            taker.group.commit()
            continue
        for piece in reader.feed(data) if data else reader.finish():
            taker.take(piece)
        taker.group.commit_if_due()
        if progress is not None:
            progress.show(source.place)
        if not data:
            break
    taker.group.commit()


def inject_batch(home: Home, options: BatchOptions) -> int:
    """Inject a batch; return 0, 100 or 111. Raises a Failure before anything is done."""
    guard_descriptors(needed=2)
    source = BatchInput(0)
    completer = Completer(home, options.options) if options.open_reader().rewritten else None
    writer = open_writer(home, filters=True)
    progress = open_progress(source)
    group = Group(writer, options.skip, lambda results: say(results, progress))
    taker = Taker(writer, completer, options.skip, group)
    try:
        read_batch(source, options, taker, progress)
        code, text = group.worst, f"{group.failed} of {taker.number} messages are not queued; their lines say why"
    except Stopped as stopped:
        code, text = max(group.worst, stopped.exit_code), str(stopped)
    except QueueTrouble as trouble:
        code, text = TEMPORARY, f"{trouble}; --skip {group.done} takes what is left of the batch"
    except KeyboardInterrupt:
        code, text = TEMPORARY, f"interrupted; --skip {group.done} takes what is left of the batch"
    finally:
        taker.discard()
        if progress is not None:
            progress.end()
    if code:
        complain(PROGRAM, f"fatal: {text}")
    return code


def main(home: Home, arguments: list[str]) -> int:
    """Return 0, 100 or 111."""
    try:
        if take_help(arguments[-1:], HELP, short=False):
            return 0
        return inject_batch(home, BatchOptions(arguments))
    except Failure as failure:
        complain(PROGRAM, f"fatal: {failure}")
        return failure.exit_code
    except BaseException as error:
        explain(PROGRAM, error)
        return TEMPORARY
