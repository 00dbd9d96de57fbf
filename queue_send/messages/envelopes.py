"""The envelopes of new messages, as the full notices of queue-todo gave them, so that their files need not be read.

An envelope is kept until its message has ended or is deferred, or a recipient has failed, or an order is about to
change its files. From then on the files are read, as those of every other message. At most KEPT_MAX envelopes of
about BYTES_MAX bytes are kept; those of more messages are read from their files, too.
"""

from collections.abc import Collection

from queue_wire.pipes import cleaning
from queue_wire.pipes.notice import LOCAL, REMOTE, Arrived

KEPT_MAX = 20_000
BYTES_MAX = 20_000_000
# What an envelope and a recipient need in memory besides the addresses.
ENVELOPE_BYTES = 1200
RECIPIENT_BYTES = 150
CHANNELS = {LOCAL: "local", REMOTE: "remote"}


class KeptEnvelope:
    """One message: `birth` in microseconds since the epoch, `due` in seconds, the sender, the class, which is empty for
    the first one, the injector's uid, the submitter, which is empty for none, and what is left to do.

    `left` are, for each channel that has recipients, (offset of the record in the file, address) of those that are not
    done. `sizes` are the bytes of the files, `length` about those of the envelope in memory.
    """

    announced = False
    __slots__ = ("birth", "due", "left", "length", "priority", "sender", "sizes", "submitter", "uid")

    def __init__(self, notice: Arrived, due: int) -> None:
        self.birth = notice.birth
        self.due = due
        self.sender = notice.sender
        self.priority = notice.priority
        self.uid = notice.uid
        self.submitter = notice.submitter
        self.left: dict[str, list[tuple[int, bytes]]] = {}
        self.sizes: dict[str, int] = {}
        for letter, address in notice.recipients:
            kind = CHANNELS[letter]
            at = self.sizes.get(kind, 0)
            self.left.setdefault(kind, []).append((at, address))
            self.sizes[kind] = at + len(address) + 2
        addresses = sum(self.sizes.values()) + len(self.sender)
        self.length = addresses + ENVELOPE_BYTES + RECIPIENT_BYTES * len(notice.recipients)

    def mark_done(self, kind: str, offsets: Collection[int]) -> None:
        """Remove recipients that are done."""
        self.left[kind] = [recipient for recipient in self.left[kind] if recipient[0] not in offsets]


class Envelopes:
    """The envelopes that are kept, by the numbers of their messages."""

    def __init__(self) -> None:
        self._kept: dict[int, KeptEnvelope] = {}
        self._room = BYTES_MAX
        self.get = self._kept.get

    def keep(self, notice: Arrived, due: int) -> None:
        """Keep the envelope of a new message, if there is room."""
        self.forget(notice.message)
        if self._room > 0 and len(self._kept) < KEPT_MAX:
            envelope = self._kept[notice.message] = KeptEnvelope(notice, due)
            self._room -= envelope.length

    def put(self, message: int, envelope: KeptEnvelope) -> None:
        """Keep the envelope of an announced message, which has no files."""
        self.drop(message)
        self._kept[message] = envelope
        self._room -= envelope.length

    def files(self, message: int) -> bytes:
        """Return which files a message has, for queue-clean. With an envelope it has neither bounce/ nor marks."""
        envelope = self._kept.get(message)
        if envelope is None:
            return cleaning.ANY
        if len(envelope.sizes) == 1:
            return cleaning.LOCAL if "local" in envelope.sizes else cleaning.REMOTE
        return cleaning.BOTH

    def forget(self, message: int) -> None:
        """Forget the envelope of a message: its files are read from now on. That of an announced one stays."""
        envelope = self._kept.get(message)
        if envelope is not None and not envelope.announced:
            self.drop(message)

    def drop(self, message: int) -> None:
        """Forget the envelope of a message, announced or not."""
        envelope = self._kept.pop(message, None)
        if envelope is not None:
            self._room += envelope.length
