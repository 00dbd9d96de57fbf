"""Changes of messages' files by the disk thread: marks, births, and the removal of an envelope in todo/.

The loop does not wait for them. A message that is to end while its files are being changed ends after that.
"""

from collections import Counter
from collections.abc import Callable, Collection

from queue_base.daemon.disk_thread import DiskThread
from queue_base.durable import Commit
from queue_base.queue.hold_marks import describe_refusal
from queue_send.events import Events, Happened
from queue_send.log import Log
from queue_send.messages.records import MessageRecords
from queue_send.messages.transitions import MessageEvent, MessageState


def _do_nothing(message: int) -> None:
    pass


class MessageChanges:
    """The changes that are being made."""

    def __init__(self, records: MessageRecords, log: Log, disk: DiskThread, events: Events) -> None:
        self._records = records
        self._log = log
        self._disk = disk
        self._events = events
        self._changing: Counter[int] = Counter()

    def holds(self, message: int) -> bool:
        """Return whether files of a message are being changed. If it is to end, WRITTEN follows."""
        return message in self._changing

    def make(
        self,
        messages: Collection[int],
        work: Callable[[int, Commit], None],
        done: Callable[[int, str], None],
        then: Callable[[int], None] = _do_nothing,
        refused: Callable[[int], None] = _do_nothing,
    ) -> None:
        """Have the disk thread do `work` for the messages in one commit; then call `then` for each of them.

        If the disk refuses, `then` is called for those for which the work was done, `refused` for the others; neither
        is called for a message that is to end. At the end `done` is called with the number of messages for which
        `then` was called, and with the reason if the disk refused. Lines that were put into the log before are written
        before the work.
        """
        made: list[int] = []

        def whole() -> None:
            commit = Commit()
            for message in messages:
                work(message, commit)
                made.append(message)
            commit.sync()

        def finished(trouble: OSError | None) -> None:
            self._changing.subtract(messages)
            self._changing = +self._changing
            ending = {message for message in messages if self._records.state(message) is MessageState.ENDING}
            for number, message in enumerate(messages):
                if message not in ending:
                    then(message) if number < len(made) else refused(message)
            done(len(set(made) - ending), "" if trouble is None else describe_refusal(trouble))
            self._events.extend(Happened(MessageEvent.WRITTEN, message) for message in ending)

        self._changing.update(messages)
        self._log.flush()
        self._disk.submit(whole, finished)
