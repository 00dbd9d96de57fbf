"""A message being taken in, wherever it goes, and how that fails: qmail-queue's exit codes (qmail-queue(8))."""

import os
import sys

from queue_base.durable import write_all
from queue_base.errors import PERMANENT, TEMPORARY, Failure, complain, reason
from queue_wire.format_error import AddressTooLong, FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from queue_base.intake import Intake

# 11 to 40 are permanent, all others may pass. 31, refused for good, is never used: no message is judged here.
TOO_LONG = 11
NO_MEMORY = 51
TIMEOUT = 52
WRITE = 53
READ = 54
CONFIG = 55
HOME_TROUBLE = 61
QUEUE_TROUBLE = 62
PID_TROUBLE = 63
MESS_TROUBLE = 64
INTD_TROUBLE = 65
TODO_TROUBLE = 66
REFUSED = 71
BUG = 81
BAD_ENVELOPE = 91
# A message may grow by so many bytes before the disk is looked at again.
CHECK_BYTES = 1 << 20


class QueueTrouble(Failure):
    """A message could not be put in the queue; `code` is qmail-queue's exit code for it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.exit_code = PERMANENT if 11 <= code <= 40 else TEMPORARY


class Draft:
    """A message being taken in. Any method may raise QueueTrouble; `discard` then removes what was made."""

    __slots__ = ("_handle", "_head", "_intake", "_unchecked", "path", "queued")

    def __init__(self, intake: "Intake", path: str, handle: int, head: bytes) -> None:
        self.path = path
        self.queued = False
        self._handle = handle
        self._head = head
        self._intake = intake
        self._unchecked = 0

    @property
    def long_id(self) -> str:
        """What names the message for people once it is queued (INTERNALS, The home); `-` where only others know."""
        return "-"

    def write(self, data: bytes) -> None:
        """Add bytes of the message."""
        if self._head:
            data, self._head = self._head + data, b""
        try:
            write_all(self._handle, data)
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to write {self.path}: {reason(error)}") from error
        self._unchecked += len(data)
        if self._unchecked >= CHECK_BYTES:
            self._unchecked = 0
            self._intake.check(self._handle)

    def sync(self) -> None:
        """Make safe what was written so far, so that the commit of a large message has less to wait for."""
        try:
            os.fdatasync(self._handle)
        except OSError as error:
            raise QueueTrouble(WRITE, f"unable to sync {self.path}: {reason(error)}") from error

    def close(self) -> None:
        """Close the file; nothing happens where it is closed already."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            try:
                os.close(handle)
            except OSError as error:
                raise QueueTrouble(WRITE, f"unable to write {self.path}: {reason(error)}") from error

    def finish(self, sender: bytes, recipients: list[bytes]) -> None:
        """End the message and set its envelope. Raises FormatError for an address that cannot be one."""
        raise NotImplementedError

    def discard(self) -> None:
        """Remove what was made of a message that is not queued; best effort, silent."""
        try:
            self.close()
        except QueueTrouble:
            pass
        remove(self.path)


class Writer:
    """Where drafts are begun and committed: the queue itself, or maildrop/ for a user who may not write there."""

    intake: "Intake"
    # Whether each draft is to be committed before the next one is begun.
    one_by_one = False

    def begin(self) -> Draft:
        """Return a new, empty draft. Raises QueueTrouble, where the disk is short too."""
        raise NotImplementedError

    def commit(self, drafts: "Sequence[Draft]") -> None:
        """Make finished drafts safe, all or, where QueueTrouble is raised, those whose `queued` says so."""
        raise NotImplementedError

    def put(self, message: "Iterable[bytes]", envelope: "Callable[[], tuple[bytes, list[bytes]]]") -> None:
        """Take in one message; `envelope` is asked for sender and recipients when it is read. Raises QueueTrouble."""
        self.intake.admit()
        draft = self.begin()
        try:
            for data in message:
                draft.write(data)
            draft.finish(*envelope())
        except BaseException:
            draft.discard()
            raise
        self.commit([draft])


def remove(path: str) -> bool:
    """Remove a name; return whether it is gone."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def explain(program: str, error: BaseException) -> int:
    """Say on stderr, in one line, why a message could not be taken; return qmail-queue's exit code for it."""
    if isinstance(error, Failure):
        code, text = (error.code if isinstance(error, QueueTrouble) else CONFIG), str(error)
    elif isinstance(error, FormatError):
        code = TOO_LONG if isinstance(error, AddressTooLong) else BAD_ENVELOPE
        text = f"unable to use the envelope: {error}; nothing was queued"
    elif isinstance(error, MemoryError):
        code, text = NO_MEMORY, "unable to take the message: out of memory; nothing was queued"
    elif isinstance(error, KeyboardInterrupt):
        code, text = READ, "unable to take the message: interrupted"
    else:
        sys.excepthook(type(error), error, error.__traceback__)
        code, text = BUG, "unable to take the message: this is a bug; please report it with the lines above"
    complain(program, f"fatal: {text}")
    return code
