"""The messages that a request names by their long ids. Pure, but for the function that tells births."""

from collections.abc import Callable

from queue_wire.admin.socket import GONE, TROUBLE, Note
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_long_id


class Chosen:
    """`messages` are those that are there, each once; `notes` are for the reply."""

    def __init__(self) -> None:
        self.messages: list[int] = []
        self.notes: list[Note] = []
        self._names: dict[int, str] = {}

    def add(self, message: int, name: str) -> None:
        """Take a message with the name that it was asked for by."""
        if message not in self._names:
            self._names[message] = name
            self.messages.append(message)

    def note(self, letter: bytes, message: int, text: str) -> None:
        """Add a note about a message."""
        self.notes.append(Note(letter, f"{self._names[message]}: {text}".encode()))


def choose(names: list[bytes], birth_of: Callable[[int], int | None]) -> Chosen:
    """Return the messages with these long ids. A later message of the same number is not touched.

    `birth_of` returns microseconds, None where there is no message, or raises OSError.
    """
    chosen = Chosen()
    for each in names:
        name = each.decode("ascii", "replace")
        try:
            message, birth = unpack_long_id(name)
            found = birth_of(message)
        except (FormatError, OSError) as error:
            chosen.notes.append(Note(TROUBLE, f"{name}: {error}".encode("utf-8", "replace")))
            continue
        if birth is None or found is None or found != birth:
            chosen.notes.append(Note(GONE, f"{name}: no such message".encode("utf-8", "replace")))
        else:
            chosen.add(message, name)
    return chosen
