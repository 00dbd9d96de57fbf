"""Takes the messages of a batch, piece by piece as its reader hands them over, into drafts; a Group does the rest."""

import time

from queue_base.errors import PERMANENT, TEMPORARY, Failure
from queue_inject.batch.format import End, Lost
from queue_inject.batch.group import Group, Result
from queue_inject.header.header import HeaderReader
from queue_wire.format_error import FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue_base.draft import Draft, Writer
    from queue_inject.batch.format import Piece
    from queue_inject.header.complete import Completer


class Taker:
    """`completer` is None where messages have their envelopes; messages up to the number `skip` are only read.

    `number` is of the message under way, or of the last one.
    """

    def __init__(self, writer: "Writer", completer: "Completer | None", skip: int, group: Group) -> None:
        self.number = 0
        self.group = group
        self._writer = writer
        self._completer = completer
        self._skip = skip
        self._admitted = False
        self._now = 0
        self._forget()

    def _forget(self) -> None:
        # Monotonic seconds, None between messages.
        self.begun: float | None = None
        self._size = 0
        self._draft: Draft | None = None
        self._error: BaseException | None = None
        self._header: HeaderReader | None = None
        self._envelope: tuple[bytes, list[bytes]] | None = None

    def take(self, piece: "Piece") -> None:
        """Take the next piece of the input. Raises Stopped."""
        if self.begun is None:
            self._begin()
        try:
            if isinstance(piece, Lost):
                raise FormatError(f"{piece.error}; nothing from here on can be read")
            if isinstance(piece, End) and piece.error:
                raise FormatError(piece.error)
            if self._error is None and self.number > self._skip:
                if isinstance(piece, End):
                    self._finish(piece)
                else:
                    self._write(piece)
        except (Failure, FormatError) as error:
            self._fail(error)
        if isinstance(piece, Lost):
            number = self.number
            self._end()
            self.group.commit()
            self.group.stop(f"unable to read the batch from message {number} on: {piece.error}", PERMANENT)
        if isinstance(piece, End) or (self._stops and self.number > self._skip):
            self._end()

    @property
    def _stops(self) -> bool:
        # No need to read the rest of a message where the batch is about to end.
        return isinstance(self._error, Failure) and self._error.exit_code == TEMPORARY and not self._writer.one_by_one

    def _begin(self) -> None:
        self.number += 1
        self.begun = time.monotonic()
        if self._completer is not None:
            self._header = HeaderReader()

    def _write(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._header is None:
            self._open().write(piece)
        elif self._header.feed(piece):
            self._complete(self._header)

    def _open(self) -> "Draft":
        if self._draft is None:
            if not self._admitted:
                self._admitted = True
                self._writer.intake.admit()
            self._draft = self._writer.begin()
        return self._draft

    def _complete(self, header: HeaderReader) -> None:
        """The header is whole: write it as it is to be sent, and as much of the body as came with it."""
        assert self._completer is not None
        self._header = None
        # Message-IDs are made of the time, to the microsecond.
        self._now = max(time.time_ns(), self._now + 1000)
        done = self._completer.complete(header.fields, self._now)
        if not done.recipients:
            raise FormatError("it has no recipients")
        self._envelope = done.sender, done.recipients
        self._open().write(done.header + header.body)

    def _finish(self, end: End) -> None:
        if self._header is not None:
            self._header.end()
            self._complete(self._header)
        sender, recipients = self._envelope or (end.sender or b"", end.recipients)
        self._open().finish(sender, recipients)

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
        draft, self._draft = self._draft, None
        if draft is not None:
            draft.discard()

    def _end(self) -> None:
        """The message has ended: what became of it joins the group."""
        result, size = Result(self.number, self._draft, self._error), self._size
        self._forget()
        if result.number > self._skip:
            self.group.add(result, size)
            if not self.group.waits:
                self._admitted = False

    def discard(self) -> None:
        """Remove what is not safe yet; best effort."""
        if self._draft is not None:
            self._draft.discard()
        self.group.discard()
