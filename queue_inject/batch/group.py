"""What became of the messages of a batch: groups of them share a commit, and results are said when they are true.

`ok` is said when the message would survive a power cut. A message that cannot be sent is a result too, in its place.
Trouble that may pass (a full disk, a queue that is behind) would meet all messages that follow, so it ends the
batch: Stopped, after the results so far.
"""

import time

from queue_base.errors import PERMANENT, TEMPORARY, Failure, QueueTrouble
from queue_inject.header.rewrite import FieldError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from queue_base.writer import Draft, Writer

# What shares a commit at the most: messages, their bytes, and seconds since the first of them was whole.
GROUP = 250
GROUP_BYTES = 64 * 1024 * 1024
GROUP_SECONDS = 0.5


class Stopped(Exception):
    """The batch ends here; `exit_code` is the program's. The text says why."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Result:
    """What became of message `number`: it is queued as `draft`, or `error` says why it is not."""

    __slots__ = ("draft", "error", "number")

    def __init__(self, number: int, draft: "Draft | None", error: BaseException | None = None) -> None:
        self.number = number
        self.draft = draft
        self.error = error

    @property
    def exit_code(self) -> int:
        """Return 0, 100 where it can never be sent, 111 where it may be later."""
        if self.error is None:
            return 0
        return self.error.exit_code if isinstance(self.error, Failure) else PERMANENT

    def __str__(self) -> str:
        if self.error is None and self.draft is not None:
            return f"ok {self.draft.long_id}"
        field = f"unable to parse {self.error.where}: " if isinstance(self.error, FieldError) else ""
        return f"failed {self.number}: {field}{self.error}".replace("\r", " ").replace("\n", " ")


class Group:
    """`say` gets the results of each group once they are true; `worst` is the exit code of all so far, `failed` counts.

    `done` counts the messages up to the first that may be sent later: those that need not be sent again.
    """

    def __init__(self, writer: "Writer", done: int, say: "Callable[[list[Result]], None]") -> None:
        self.worst = 0
        self.failed = 0
        self.done = done
        self._writer = writer
        self._say = say
        self._results: list[Result] = []
        self._bytes = 0
        self._since = 0.0

    def add(self, result: Result, size: int) -> None:
        """Add the next message, of `size` bytes; commit where it is enough. Raises Stopped."""
        if not self._results:
            self._since = time.monotonic()
        self._results.append(result)
        self._bytes += size
        most = 1 if self._writer.one_by_one or result.exit_code == TEMPORARY else GROUP
        if len(self._results) >= most or self._bytes >= GROUP_BYTES:
            self.commit()

    @property
    def waits(self) -> bool:
        """Whether there are messages whose results are not said yet."""
        return bool(self._results)

    def commit_if_due(self) -> None:
        """Commit where the first message has waited long enough. Raises Stopped."""
        if self._results and time.monotonic() >= self._since + GROUP_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Make the messages safe and say what became of each. Raises Stopped."""
        results, self._results = self._results, []
        self._bytes = 0
        if not results:
            return
        try:
            self._writer.commit([result.draft for result in results if result.draft is not None])
        except QueueTrouble as error:
            for result in results:
                if result.draft is not None and not result.draft.queued:
                    result.error = error
        self.failed += sum(result.exit_code != 0 for result in results)
        deferred = [result for result in results if result.exit_code == TEMPORARY]
        self.worst = max(self.worst, *(result.exit_code for result in results))
        if self.worst != TEMPORARY:
            self.done = results[-1].number
        elif deferred and self.done < deferred[0].number:
            self.done = max(self.done, deferred[0].number - 1)
        self._say(results)
        if deferred and not self._writer.one_by_one:
            self.stop(str(deferred[0].error), TEMPORARY)

    def stop(self, why: str, exit_code: int) -> None:
        """End the batch. Raises Stopped."""
        raise Stopped(f"{why}; the batch ends here, --skip {self.done} takes what is left of it", exit_code)

    def discard(self) -> None:
        """Remove what is not safe yet; best effort."""
        results, self._results = self._results, []
        for result in results:
            if result.draft is not None:
                result.draft.discard()
