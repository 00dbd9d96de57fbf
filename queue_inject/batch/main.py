"""queue-inject --batch: reads many messages on stdin, in one of four formats, queues them, and prints a line for each.

    ok LONG-ID            the message would survive a power cut
    failed N: REASON      message N, counted from 1, is not in the queue

The lines come in the order of the messages, as soon as they are true. Groups of messages share a commit: a group ends
when it is large enough, has waited half a second, or the input pauses. After a crash as many messages were done as
there are lines, and --skip with that number injects the rest. A crash between a commit and its lines injects that group
twice. A batch that ends early names what --skip is to have, which leaves out messages in the middle that failed.

A batch lowers its own priority, so that deliveries have the processors first when all are busy.

Exit code 0: all are queued; 100: some can never be sent; 111: some may be sent later, or the batch ended early.
"""

import os
import signal

from queue_base.durable import write_all
from queue_base.errors import PERMANENT, TEMPORARY, QueueTrouble, Usage, reason
from queue_base.queue.writer import Writer
from queue_inject.batch.batch_failure import BatchFailure
from queue_inject.batch.done_messages import unpack_done
from queue_inject.batch.injector import BatchInjector, Result
from queue_inject.batch.input import BatchInput
from queue_inject.batch.pieces import BatchReader
from queue_inject.header.completer import Completer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

    from queue_inject.batch.progress_bar import ProgressBar

# Those that have envelopes of their own come last.
FORMATS = ("mbox", "mboxo", "bsmtp", "netstring")
BATCH_USAGE = (
    f"usage: queue-inject [--home HOME] --batch {'|'.join(FORMATS)} [--skip N[,A-B]...] "
    "[-aAhH] [-f SENDER] [RECIPIENT ...] <messages"
)
BATCH_HELP = f"""{BATCH_USAGE}
Puts many messages in the queue. Formats: mbox (mboxrd quoting), mboxo (the older quoting), bsmtp (RFC 2442), and
netstring (for each message, one netstring with it and one with its envelope).
  --skip N[,A-B]...  do not inject the first N messages, and those from A to B: what an earlier run that ended early
                  has named, or as many as one that was killed has printed lines for
Prints `ok LONG-ID` or `failed N: REASON` for each message, in order, when it would survive a power cut.
Exit code 0: all are queued; 100: some can never be; 111: some may be later, or the batch ended early.
"""
# What nice(1) adds if it is not told. Where a delivery wants the same processor, a batch gets a tenth of it.
NICER = 10


class BatchOptions:
    """The options --batch and --skip, which come first.

    format: one of FORMATS; done: the messages that are not to be queued; has_envelopes: whether messages of this
    format have envelopes; rest: the other arguments.
    """

    def __init__(self, arguments: list[str]) -> None:
        found: dict[str, str] = {}
        while arguments and arguments[0].partition("=")[0] in ("--batch", "--skip"):
            name, equals, value = arguments[0].partition("=")
            arguments = arguments[1:]
            if not equals:
                value, arguments = (arguments or [""])[0], arguments[1:]
            found[name] = value
        self.format = found.get("--batch", "")
        if self.format not in FORMATS:
            raise Usage(f"--batch needs a format, one of {', '.join(FORMATS)}; {BATCH_USAGE}")
        skip = found.get("--skip", "0")
        done = unpack_done(skip)
        if done is None:
            raise Usage(f"--skip needs a number of messages, and ranges after it if any; {BATCH_USAGE}")
        self.done = done
        self.has_envelopes = self.format in FORMATS[2:]
        self.rest = arguments

    def check(self, show: bool) -> None:
        """Raise Usage if the other options are not for batches; `show` says whether -n is one of them."""
        if show:
            raise Usage(f"-n prints one message, and is not for batches; {BATCH_USAGE}")
        if self.has_envelopes and self.rest:
            raise Usage(f"messages of {self.format} have their own sender and recipients; {BATCH_USAGE}")


def open_reader(name: str) -> BatchReader:
    """Return the reader of a format. Only its module is imported."""
    if name == "bsmtp":
        from queue_inject.batch.bsmtp_reader import BsmtpReader

        return BsmtpReader()
    if name == "netstring":
        from queue_inject.batch.netstring_reader import NetstringBatchReader

        return NetstringBatchReader()
    from queue_inject.batch.mbox_reader import MBOXO, MBOXRD, MboxReader

    return MboxReader(MBOXRD if name == "mbox" else MBOXO)


def open_progress(source: BatchInput) -> "ProgressBar | None":
    """Return a progress bar if stderr is a terminal."""
    if not os.isatty(2):
        return None
    # Imported here because click takes longer to load than a small batch takes.
    from queue_inject.batch.progress_bar import ProgressBar

    return ProgressBar(source.size)


def _rest(injector: BatchInjector) -> str:
    return f"--skip {injector.done} takes what is left of the batch"


def report(injector: BatchInjector, results: list[Result], progress: "ProgressBar | None") -> None:
    """Print the lines of results, in one write. Raises BatchFailure, also if the injector has stopped."""
    if results:
        text = "".join([f"{result}\n" for result in results])
        if progress is not None:
            progress.count(results)
        try:
            write_all(1, text.encode("ascii", "backslashreplace"))
        except OSError as error:
            numbers = f"{results[0].number} to {results[-1].number}"
            failure = f"unable to write results of messages {numbers}: {reason(error)}; {_rest(injector)}"
            raise BatchFailure(failure, TEMPORARY) from error
    if injector.stopped is not None:
        raise injector.stopped


def read_batch(
    source: BatchInput, reader: BatchReader, injector: BatchInjector, progress: "ProgressBar | None"
) -> None:
    """Inject all messages of the input. Raises BatchFailure, QueueTrouble."""
    while True:
        data = source.read(injector.waiting, injector.begun)
        if data is None:
            report(injector, injector.commit(), progress)
            continue
        for piece in reader.feed(data) if data else reader.finish():
            report(injector, injector.take(piece), progress)
        report(injector, injector.commit_if_due(), progress)
        if progress is not None:
            progress.show(source.place)
        if not data:
            break
    report(injector, injector.commit(), progress)


def interrupt_between_commits(injector: BatchInjector) -> None:
    """Have an interrupt wait until a commit that is under way has ended, and it is known what is queued.

    The second one does not wait: the disk may hang.
    """

    def interrupt(_number: int, _frame: "FrameType | None") -> None:
        if not injector.committing or injector.interrupted:
            raise KeyboardInterrupt
        injector.interrupted = True

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def inject_batch(writer: Writer, options: BatchOptions, completer: Completer | None) -> None:
    """Inject the batch on standard input; `completer` is None if its messages have envelopes.

    Raises BatchFailure if a message is not queued.
    """
    os.nice(NICER)
    source = BatchInput(0)
    reader = open_reader(options.format)
    injector = BatchInjector(writer, completer, options.done)
    progress = open_progress(source)
    interrupt_between_commits(injector)
    try:
        read_batch(source, reader, injector, progress)
    except QueueTrouble as trouble:
        raise BatchFailure(f"{trouble}; {_rest(injector)}", TEMPORARY) from trouble
    except KeyboardInterrupt as interrupt:
        raise BatchFailure(f"interrupted; {_rest(injector)}", TEMPORARY) from interrupt
    finally:
        injector.discard()
        if progress is not None:
            progress.end()
    if injector.worst:
        text = f"{injector.failed} of {injector.number} messages are not queued; their lines say why"
        if injector.worst == TEMPORARY:
            text = f"{text}; {_rest(injector)}"
        raise BatchFailure(text, injector.worst)
    if injector.done.last > injector.number:
        text = f"--skip names message {injector.done.last}, and the batch has {injector.number}; is it another batch?"
        raise BatchFailure(text, PERMANENT)
