"""The standing holds in queue/holds, read again when the file has changed: before each group, by one stat(2).

Until the file could be read once, or did not exist, it is not known what is to be held, and nothing may be classified.
After that, holds that were read stay if the file cannot be read.
"""

from queue_base.errors import reason
from queue_base.queue.standing_holds import holds_version, read_holds
from queue_wire.files.standing_hold import HoldTable
from queue_wire.format_error import FormatError

NOTHING = (
    "nothing is classified, because it is not known what is to be held; mend or remove it, then it goes on within a"
    " minute, at HUP at once"
)


class StandingHolds:
    """The holds of one queue. `known`: they were read. `trouble` is what to alert about, once for each cause."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._version: tuple[int, int, int] | None = None
        self._table = HoldTable()
        self._said = ""
        self.known = False
        self.trouble: str | None = None

    def current(self) -> HoldTable:
        """Return the holds. If the file cannot be read, those that were read last stay."""
        try:
            version = holds_version(self._queue)
            if version != self._version:
                self._table = HoldTable(read_holds(self._queue))
                self._version = version
                self._said = ""
            self.known = True
        except (OSError, FormatError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            fate = "the standing holds that were read before stay" if self.known else NOTHING
            text = f"unable to read {self._queue}/holds: {why}; {fate}"
            if text != self._said:
                self._said = self.trouble = text
        return self._table

    def repeat_trouble(self) -> None:
        """Have `trouble` say again what it has said."""
        self._said = ""

    def take_trouble(self) -> str | None:
        """Return what to alert about, and forget it."""
        trouble, self.trouble = self.trouble, None
        return trouble
