"""Queues the messages of a batch in groups that share a commit, and returns what became of each message.

A result is returned when it is true: `ok` when the message would survive a power cut. A message that cannot be sent has
a result too, in its place. A temporary failure (a full disk, an overloaded queue) would meet all messages that follow,
so it ends the batch: `stopped` then says why, after the results so far.
"""

import time

from queue_base.errors import PERMANENT, TEMPORARY, Failure, QueueTrouble
from queue_base.queue.writer import Draft, Writer
from queue_inject.batch.batch_failure import BatchFailure
from queue_inject.batch.done_messages import DoneMessages
from queue_inject.batch.pieces import EndOfMessage, Piece, Unreadable
from queue_inject.header.completer import Completer
from queue_inject.header.fields import HeaderReader
from queue_wire.format_error import FieldError, FormatError

# The limits of a group: messages, bytes, and seconds since its first message ended.
GROUP = 250
GROUP_BYTES = 64 * 1024 * 1024
GROUP_SECONDS = 0.5


class Result:
    """What became of message `number`: it is queued as `draft`, or `error` says why not."""

    __slots__ = ("draft", "error", "number")

    def __init__(self, number: int, draft: Draft | None, error: BaseException | None = None) -> None:
        self.number = number
        self.draft = draft
        self.error = error

    @property
    def exit_code(self) -> int:
        """0: queued; 100: it can never be sent; 111: it may be sent later."""
        if self.error is None:
            return 0
        return self.error.exit_code if isinstance(self.error, Failure) else PERMANENT

    def __str__(self) -> str:
        if self.error is None and self.draft is not None:
            return f"ok {self.draft.long_id}"
        field = f"unable to parse {self.error.where}: " if isinstance(self.error, FieldError) else ""
        return f"failed {self.number}: {field}{self.error}".replace("\r", " ").replace("\n", " ")


class BatchInjector:
    """Takes the pieces of a batch and returns results.

    `completer` is None if messages have envelopes. Messages that are `done` are read and not queued.

    number: that of the current message, or of the last one; begun: when the current message began, on the monotonic
    clock, or None between messages; worst: the exit code of all results so far; failed: how many messages are not
    queued; done: the messages that need not be sent again; committing: whether a commit is under way; interrupted:
    whether the batch was interrupted meanwhile.
    """

    def __init__(self, writer: Writer, completer: Completer | None, done: DoneMessages) -> None:
        self.number = 0
        self.worst = 0
        self.failed = 0
        self.done = done
        self.committing = self.interrupted = False
        self.stopped: BatchFailure | None = None
        self._writer = writer
        self._completer = completer
        self._skips = False
        self._now = 0
        # The group: results that are not true yet.
        self._admitted = False
        self._results: list[Result] = []
        self._group_bytes = 0
        self._group_since = 0.0
        self._reset()

    def _reset(self) -> None:
        self.begun: float | None = None
        self._size = 0
        self._draft: Draft | None = None
        self._error: BaseException | None = None
        self._header: HeaderReader | None = None
        self._envelope: tuple[bytes, list[bytes]] | None = None

    @property
    def waiting(self) -> bool:
        """Whether there are messages whose results have not been returned."""
        return bool(self._results)

    def take(self, piece: Piece) -> list[Result]:
        """Take the next piece of the input; return the results that have become true."""
        if self.begun is None:
            self._begin()
        try:
            if isinstance(piece, Unreadable):
                raise FormatError(f"{piece.error}; nothing from here on can be read")
            if isinstance(piece, EndOfMessage) and piece.error:
                raise FormatError(piece.error)
            if self._error is None and not self._skips:
                if isinstance(piece, EndOfMessage):
                    self._finish(piece)
                else:
                    self._write(piece)
        except (Failure, FormatError) as error:
            self._fail(error)
        if isinstance(piece, Unreadable):
            results = self._end() + self.commit()
            self._stop(f"unable to read the batch from message {self.number} on: {piece.error}", PERMANENT)
            return results
        if isinstance(piece, EndOfMessage) or (self._ends_batch and not self._skips):
            return self._end()
        return []

    def commit_if_due(self) -> list[Result]:
        """Commit the group if its first message has waited long enough; return the results."""
        if self._results and time.monotonic() >= self._group_since + GROUP_SECONDS:
            return self.commit()
        return []

    def commit(self) -> list[Result]:
        """Make the messages of the group safe; return their results. Raises KeyboardInterrupt, if `interrupted`."""
        results, self._results = self._results, []
        self._group_bytes = 0
        self._admitted = False
        if not results:
            return results
        self.committing = True
        try:
            self._commit(results)
        finally:
            self.committing = False
        if self.interrupted:
            raise KeyboardInterrupt
        return results

    def _commit(self, results: list[Result]) -> None:
        try:
            self._writer.commit([result.draft for result in results if result.draft is not None])
        except QueueTrouble as error:
            for result in results:
                if result.draft is not None and not result.draft.queued:
                    result.error = error
        self.failed += sum(result.exit_code != 0 for result in results)
        deferred = [result for result in results if result.exit_code == TEMPORARY]
        self.worst = max(self.worst, *(result.exit_code for result in results))
        for result in results:
            if result.exit_code != TEMPORARY:
                self.done.add(result.number, result.number)
        if deferred and not self._writer.one_by_one:
            self._stop(str(deferred[0].error), TEMPORARY)

    def discard(self) -> None:
        """Remove messages that are not safe yet, as far as possible."""
        if self._draft is not None:
            self._draft.discard()
        results, self._results = self._results, []
        for result in results:
            if result.draft is not None:
                result.draft.discard()

    def _begin(self) -> None:
        self.number += 1
        self._skips = self.number in self.done
        self.begun = time.monotonic()
        if self._completer is not None:
            self._header = HeaderReader()

    def _write(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._header is None:
            self._open().write(piece)
        elif self._header.feed(piece):
            self._complete(self._header)

    def _open(self) -> Draft:
        if self._draft is None:
            if not self._admitted:
                self._admitted = True
                self._writer.inflow.admit()
            self._draft = self._writer.begin()
        return self._draft

    def _complete(self, header: HeaderReader) -> None:
        """The header has ended: write it completed, with the part of the body that came with it."""
        assert self._completer is not None
        self._header = None
        # Message-IDs are made from the time in microseconds.
        self._now = max(time.time_ns(), self._now + 1000)
        completed = self._completer.complete(header.fields, self._now)
        if not completed.recipients:
            raise FormatError(header.lacks_recipients)
        self._envelope = completed.sender, completed.recipients
        self._open().write(completed.text + header.body)

    def _finish(self, end: EndOfMessage) -> None:
        if self._header is not None:
            self._header.end()
            self._complete(self._header)
        sender, recipients = self._envelope or (end.sender or b"", list(end.recipients))
        self._open().finish(sender, recipients)

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
        draft, self._draft = self._draft, None
        if draft is not None:
            draft.discard()

    @property
    def _ends_batch(self) -> bool:
        # The rest of the message need not be read if the batch is about to end.
        return isinstance(self._error, Failure) and self._error.exit_code == TEMPORARY and not self._writer.one_by_one

    def _end(self) -> list[Result]:
        """The message has ended: add its result to the group. Return the results if the group is complete."""
        result, size = Result(self.number, self._draft, self._error), self._size
        self._reset()
        if self._skips:
            return []
        if not self._results:
            self._group_since = time.monotonic()
        self._results.append(result)
        self._group_bytes += size
        limit = 1 if self._writer.one_by_one or result.exit_code == TEMPORARY else GROUP * self._writer.queues
        if len(self._results) >= limit or self._group_bytes >= GROUP_BYTES:
            return self.commit()
        return []

    def _stop(self, why: str, exit_code: int) -> None:
        if self.stopped is None:
            text = f"{why}; the batch ends here, --skip {self.done} takes what is left of it"
            self.stopped = BatchFailure(text, max(self.worst, exit_code))
