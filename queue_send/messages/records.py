"""The records of messages that do more than wait: state, reason, facts. Of the others only the number is in memory.

The facts of a new message are its envelope, as the full notice of queue-todo gave it, so that its files need not be
read. They are kept until the message has ended or is deferred, or a recipient has failed, or an order is about to
change its files. From then on the files are read, as those of every other message. At most KEPT_MAX envelopes of about
BYTES_MAX bytes are kept; those of more messages are read from their files, too.
"""

from collections.abc import Collection
from time import time

from queue_send.messages.transitions import MARKED, TRANSITIONS, Actions, MessageEvent, MessageState
from queue_wire.files.hold_mark import HoldOrder
from queue_wire.pipes import cleaning
from queue_wire.pipes.notice import LOCAL, REMOTE, Arrived

KEPT_MAX = 20_000
BYTES_MAX = 20_000_000
# What an envelope and a recipient need in memory besides the addresses.
ENVELOPE_BYTES = 1300
RECIPIENT_BYTES = 150
LIFE_MAX = 6  # States of a message that are remembered.
CHANNELS = {LOCAL: "local", REMOTE: "remote"}
_WAITING = MessageState.WAITING


class MessageRecord:
    """One message: its number, its birth in microseconds since the epoch (0 if it was not read), and its state.

    life: the last states, the present one at the end: each with what led to it, and since when (seconds since the
    epoch). order: that of its mark in hold/, None if it has none. unread: the mark was not read yet.
    """

    announced = False
    __slots__ = ("birth", "life", "number", "order", "state", "unread")

    def __init__(self, number: int, birth: int = 0) -> None:
        self.number = number
        self.birth = birth
        self.state = _WAITING
        self.life: list[tuple[MessageState, MessageEvent, float]] = []
        self.order: HoldOrder | None = None
        self.unread = False

    def take_over(self, other: "MessageRecord") -> None:
        """Take the life of an earlier record of the message."""
        self.state, self.life, self.order, self.unread = other.state, other.life, other.order, other.unread


class KeptEnvelope(MessageRecord):
    """A message with its facts: `due` in seconds, the sender, the class, which is empty for the first one, the
    injector's uid, the submitter, which is empty for none, and what is left to do.

    `left` are, for each channel that has recipients, (offset of the record in the file, address) of those that are not
    done. `sizes` are the bytes of the files, `length` about those of the envelope in memory.
    """

    __slots__ = ("due", "left", "length", "priority", "sender", "sizes", "submitter", "uid")

    def __init__(self, notice: Arrived, due: int) -> None:
        super().__init__(notice.message, notice.birth)
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

    @property
    def files(self) -> bytes:
        """Which files a classified message has, for queue-clean. With an envelope it has neither bounce/ nor marks."""
        if len(self.sizes) == 1:
            return cleaning.LOCAL if "local" in self.sizes else cleaning.REMOTE
        return cleaning.BOTH

    def mark_done(self, kind: str, offsets: Collection[int]) -> None:
        """Remove recipients that are done."""
        self.left[kind] = [recipient for recipient in self.left[kind] if recipient[0] not in offsets]


class MessageRecords:
    """The records, by the numbers of their messages. `marked`: how many are in each state that has a mark."""

    def __init__(self) -> None:
        self._records: dict[int, MessageRecord] = {}
        self._room = BYTES_MAX
        self._kept: dict[int, KeptEnvelope] = {}  # The records with envelopes.
        self.get = self._records.get
        self.facts = self._kept.get
        self.marked = dict.fromkeys(MARKED, 0)

    def state(self, message: int) -> MessageState:
        """Return the state of a message."""
        record = self._records.get(message)
        return _WAITING if record is None else record.state

    def step(self, event: MessageEvent, message: int) -> Actions:
        """Carry out an event in a message's record; return what is to be done."""
        record = self._records.get(message)
        state = _WAITING if record is None else record.state
        move = TRANSITIONS[state][event]
        assert move is not None, f"msg {message}: {event.name} in {state.name}"
        new, actions = move
        if new is not state:
            if state in MARKED:
                self.marked[state] -= 1
            if new in MARKED:
                self.marked[new] += 1
            if record is None:
                record = self._records[message] = MessageRecord(message)
            if new is _WAITING:
                self._remove(record)
                return actions
            record.state, life = new, record.life
            life.append((new, event, time()))
            if len(life) > LIFE_MAX:
                del life[0]
        return actions

    def note_order(self, message: int, order: HoldOrder | None, unread: bool = False) -> None:
        """Note the order of a message's mark in hold/, or that the mark is to be read."""
        record = self._records.get(message)
        if record is None:
            record = self._records[message] = MessageRecord(message)
        record.order, record.unread = order, unread

    def keep(self, notice: Arrived, due: int) -> None:
        """Keep the envelope of a new message that waits, if there is room."""
        self.forget(notice.message)
        if self._room > 0 and len(self._kept) < KEPT_MAX and notice.message not in self._records:
            self.put(KeptEnvelope(notice, due))

    def put(self, envelope: KeptEnvelope) -> None:
        """Keep an envelope; the message is in the state in which it was before."""
        before = self._records.get(envelope.number)
        if before is not None:
            envelope.take_over(before)
            self._remove(before)
        self._records[envelope.number] = self._kept[envelope.number] = envelope
        self._room -= envelope.length

    def forget(self, message: int) -> None:
        """Forget the envelope of a message: its files are read from now on. That of an announced one stays."""
        envelope = self._kept.get(message)
        if envelope is not None and not envelope.announced:
            self.drop(envelope)

    def drop(self, envelope: KeptEnvelope) -> None:
        """Forget an envelope, announced or not."""
        self._remove(envelope)
        if envelope.state is not _WAITING:
            plain = self._records[envelope.number] = MessageRecord(envelope.number, envelope.birth)
            plain.take_over(envelope)

    def _remove(self, record: MessageRecord) -> None:
        del self._records[record.number]
        envelope = self._kept.pop(record.number, None)
        if envelope is not None:
            self._room += envelope.length
