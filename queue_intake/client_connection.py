"""One client's connection: what it sends becomes drafts and messages, and its answers are sent in order.

A connection reads at most CHUNK bytes at a time, and works on them for TURN_SECONDS before it is the turn of others. It
does not read on while it may not begin its next message, or its client does not read the answers. What breaks the
protocol is not answered: the connection ends after the answers to what came before.
"""

import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from queue_base.errors import QueueTrouble
from queue_base.queue.writer import QueueDraft
from queue_intake.acceptance import PROMISE_BYTES, Acceptance, Refusal, refusal_of
from queue_intake.answers import Answers, Place, answer_runs
from queue_intake.commit_group import SYNC_BYTES, PartSync, ReceivedMessage
from queue_intake.entrance import Entrance
from queue_intake.sharing import ClientUsage, UsageCounts
from queue_wire.format_error import FormatError
from queue_wire.pipes.package_reader import Begin, Data, Package, PackageFacts, PackageReader, Protocol
from queue_wire.pipes.qmtp import ACCEPTED, NUMBER_PLACE, PERMANENT, TEMPORARY

CHUNK = 65536
# Packages of one connection that are not answered, refused ones too.
IN_HAND = 100
# Seconds for what one connection has read, and pieces of answers that it sends, before it is the turn of others.
TURN_SECONDS = 0.002
SENDS_A_TURN = 8
# Smaller pieces of a message are gathered, and written together.
SMALL = 4096
# Seconds without a byte: between packages, within one, and of a client that does not read its answers.
IDLE_SECONDS = 300.0
STALL_SECONDS = 60.0
# Seconds in which a client that reads its answers slowly must have read all that are ready.
ANSWERS_SECONDS = 600.0
# Seconds for a package; QMQP gives a session an hour.
PACKAGE_SECONDS = 3600.0
# Bytes of recipients in memory, of all connections: a message that would exceed it is refused for now.
MEMORY_MAX = 64 << 20

_NO_MEMORY = Refusal(TEMPORARY, "too many recipients are being taken from all clients; try again later (#4.3.2)")
_TOO_MANY = Refusal(PERMANENT, "too many recipients (#5.5.3)")
_TOO_MANY_INVALID = Refusal(PERMANENT, "too many recipients that are no addresses (#5.1.3)")
_NO_SENDER = Refusal(PERMANENT, "not a sender: too long, or with a NUL (#5.1.7)")
_NO_RECIPIENT = Refusal(PERMANENT, "no recipient (#5.5.1)")
_NO_FACTS = Refusal(PERMANENT, "only the queue's own programs may say whose message it is (#5.7.1)")


class IntakeClient(NamedTuple):
    """Who has connected. `name` is that of its ClientUsage, `uid` stands in the envelopes.

    received: a line for the head of each message; it says from which host of the network it came. trusted: whether it
    may send facts, and has no limits of its own. submitter: that of its messages, empty for none.
    """

    name: str
    uid: int
    trusted: bool = False
    received: Callable[[], bytes] | None = None
    submitter: bytes = b""


class Memory:
    """The bytes of recipients that all connections, and the messages in hand, have in memory."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0


class _Incoming:
    """The message that is being received: its draft, or why it is refused; its size as sent, so far if in pieces.

    acceptance: that of the queue which has the draft.

    gathered: bytes that are not written yet. promised: the bytes that the acceptance has promised for it and that are
    not written yet. unsynced: the bytes that were written since its last PartSync, `part`. hold, copy: causes.
    priority: the class that is asked for. submitter: what a trusted client says. unnumbered: the place of its number
    has not come yet.
    """

    __slots__ = (
        "acceptance", "begun", "copy", "draft", "gathered", "hold", "in_pieces", "part", "priority", "promised",
        "refusal", "size", "submitter", "unnumbered", "unsynced", "written",
    )  # fmt: skip

    def __init__(self, size: int | None, begun: float) -> None:
        self.in_pieces = size is None
        self.size = size or 0
        self.begun = begun
        self.gathered = bytearray()
        self.promised = self.unsynced = self.written = 0
        self.draft: QueueDraft | None = None
        self.acceptance: Acceptance | None = None
        self.part: PartSync | None = None
        self.refusal: Refusal | None = None
        self.hold = self.copy = self.submitter = b""
        self.priority = ""
        self.unnumbered = False


class ClientConnection:
    """A connection.

    What keeps it from beginning its next message: it is `blocked`, until others end; it `waits` until a time
    (monotonic), or 0.0; or it `yields`, until its next turn. While it is blocked, `waits` means nothing.
    """

    def __init__(
        self,
        connection: socket.socket,
        client: IntakeClient,
        protocol: Protocol | None,
        usage: ClientUsage,
        counts: UsageCounts,
        entrance: Entrance,
        memory: Memory,
        now: float,
    ) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.descriptor = connection.fileno()
        self.client = client
        self.closed = False
        self.blocked = self.yields = False
        self.waits = 0.0
        self.interest = 0  # What its epoll waits for.
        self._reader = PackageReader(protocol)
        self._answers = Answers()
        self._usage = usage
        self._counts = counts
        self._entrance = entrance
        self._memory = memory
        self._counted = 0  # The bytes of `memory` that are for what this connection reads.
        self._incoming: _Incoming | None = None
        self._facts: PackageFacts | None = None
        self._numbers = False  # Its messages have places for their numbers.
        self._admitted = False
        self._in_hand = 0
        self._parts: list[PartSync] = []
        self._full = False  # Whether it is blocked for the number of its packages.
        self._behind = 0.0  # Since when the client has not taken all answers that are ready; 0.0 if it has.
        self._unsent = b""
        self._ended = False
        self._since = now

    def receive(self, now: float) -> None:
        """Read what has arrived, CHUNK bytes at most."""
        if self._ended:
            return
        try:
            data = self.socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._since = now
            self._reader.feed(data)
        else:
            self.end_input()

    def end_input(self) -> None:
        """Take nothing more from the client. A message that is not complete is dropped."""
        self._ended = True
        self.blocked = self.yields = False
        self.waits = 0.0
        self._drop_incoming()
        self._reader.forget_recipients()
        self._count_memory()

    def advance(self, now: float) -> list[ReceivedMessage]:
        """Carry out what has been read, for TURN_SECONDS; return the messages that are complete."""
        complete: list[ReceivedMessage] = []
        until = time.monotonic() + TURN_SECONDS
        self.yields = False
        try:
            while not self._ended and self._may_go_on(now):
                event = self._reader.next()
                if event is None:
                    self.yields = self._reader.paused
                    break
                if isinstance(event, Data):
                    self._add(event.data)
                elif isinstance(event, Begin):
                    self._begin(event.size, now)
                elif isinstance(event, Package):
                    complete += self._finish(event)
                elif isinstance(event, PackageFacts):
                    self._take_facts(event)
                else:
                    self._drop_incoming()
                if self._reader.ended:
                    self.end_input()
                elif self._reader.unread and time.monotonic() >= until:
                    self.yields = True
                    break
        except FormatError:
            self.end_input()
        self._write_gathered()
        return complete

    def _take_facts(self, facts: PackageFacts) -> None:
        """Take facts about the package that comes next, or about the one that is being read. Raises FormatError."""
        if facts.numbers:
            self._numbers = True
        elif self._incoming is not None:
            self._note_causes(self._incoming, facts)
        elif self._facts is not None:
            raise FormatError("facts about facts")
        else:
            self._facts = facts

    def _note_causes(self, incoming: _Incoming, facts: PackageFacts) -> None:
        if (facts.hold or facts.copy) and not self.client.trusted:
            self._refuse(incoming, _NO_FACTS)
            return
        incoming.hold = facts.hold or incoming.hold
        incoming.copy = facts.copy or incoming.copy
        incoming.priority = facts.priority or incoming.priority
        # A user may not take another's share; whose message it is, is known.
        if self.client.trusted:
            incoming.submitter = facts.submitter or incoming.submitter

    def take_parts(self) -> list[PartSync]:
        """Return the syncs that are wanted, and forget them. They are to run before that of their whole message."""
        parts, self._parts = self._parts, []
        return parts

    def _may_go_on(self, now: float) -> bool:
        """Whether the next package may begin, or has begun already."""
        if not self._reader.between or self._admitted or not self._reader.unread:
            return True
        self._since = now
        may_begin = self._counts.may_begin(self._usage, self.client.trusted)
        self._full = len(self._answers) >= IN_HAND
        self.blocked = self._full or not may_begin
        if self.blocked:
            return False
        if not self.waits:
            delay = self._entrance.delay(now)
            self.waits = now + delay if delay else 0.0
        if now < self.waits:
            return False
        self.waits = 0.0
        self._admitted = True
        return True

    def _begin(self, size: int | None, now: float) -> None:
        self._admitted = False
        facts, self._facts = self._facts, None
        incoming = self._incoming = _Incoming(size, now)
        uid = self.client.uid
        if facts is not None:
            self._note_causes(incoming, facts)
            if facts.uid is not None:
                uid = facts.uid
                if not self.client.trusted:
                    incoming.refusal = _NO_FACTS
        if incoming.refusal is not None:
            return
        promise = PROMISE_BYTES if size is None else min(size, PROMISE_BYTES)
        found = self._entrance.begin(uid, incoming.size, now, promise)
        if isinstance(found, Refusal):
            incoming.refusal = found
            return
        # What is refused holds nothing, so only now it counts.
        self._counts.begin_message(self._usage, incoming.size)
        incoming.draft, incoming.acceptance, incoming.promised = *found, promise
        incoming.unnumbered = self._numbers
        if self.client.received is not None:
            self._write(self.client.received())

    def _add(self, data: bytes) -> None:
        """Take bytes of the message."""
        incoming = self._incoming
        if incoming is None or incoming.draft is None:
            return
        if incoming.in_pieces:
            incoming.size += len(data)
            self._usage.bytes += len(data)
            if (refusal := self._entrance.refuse_size(incoming.size)) is not None:
                self._refuse(incoming, refusal)
                return
        if incoming.unnumbered and (place := data.find(NUMBER_PLACE)) >= 0:
            incoming.unnumbered = False
            try:
                # In a queue that was copied it may get another one at its end.
                data = b"%b%d%b" % (data[:place], incoming.draft.number, data[place + 1 :])
            except QueueTrouble as error:
                self._refuse(incoming, refusal_of(error))
                return
        self._write(data)

    def _write(self, data: bytes) -> None:
        """Write bytes of the message, small ones later, together with those that follow."""
        incoming = self._incoming
        if incoming is None:
            return
        if incoming.gathered or len(data) < SMALL:
            incoming.gathered += data
            if len(incoming.gathered) >= CHUNK:
                self._write_gathered()
        else:
            self._write_now(incoming, data)

    def _write_gathered(self) -> None:
        incoming = self._incoming
        if incoming is not None and incoming.gathered:
            data, incoming.gathered = bytes(incoming.gathered), bytearray()
            self._write_now(incoming, data)

    def _write_now(self, incoming: _Incoming, data: bytes) -> None:
        if incoming.draft is None or incoming.acceptance is None:
            return
        if len(data) > incoming.promised:
            rest = PROMISE_BYTES if incoming.in_pieces else min(PROMISE_BYTES, incoming.size - incoming.written)
            promise = max(rest, len(data))
            if (refusal := incoming.acceptance.promise(promise)) is not None:
                self._refuse(incoming, refusal)
                return
            incoming.promised += promise
        try:
            incoming.draft.write(data)
        except QueueTrouble as error:
            self._refuse(incoming, refusal_of(error))
            return
        self._take_off(incoming, len(data))
        incoming.written += len(data)
        incoming.unsynced += len(data)
        if incoming.unsynced >= SYNC_BYTES and (incoming.part is None or incoming.part.done):
            self._sync_part(incoming)

    def _sync_part(self, incoming: _Incoming) -> None:
        """Have what was written so far synced, unless the sync before has failed."""
        if incoming.draft is None or incoming.acceptance is None:
            return
        if incoming.part is not None and incoming.part.refusal is not None:
            self._refuse(incoming, incoming.part.refusal)
            return
        try:
            incoming.part = PartSync(incoming.draft, incoming.acceptance)
        except OSError:
            return  # Without descriptors all of it is synced at the end.
        incoming.unsynced = 0
        self._parts.append(incoming.part)

    def _take_off(self, incoming: _Incoming, count: int) -> None:
        """Take what was written, or is not coming any more, off what was promised."""
        count = min(count, incoming.promised)
        incoming.promised -= count
        if incoming.acceptance is not None:
            incoming.acceptance.promised -= count

    def _refuse(self, incoming: _Incoming, refusal: Refusal) -> None:
        """Remove the draft, and refuse the message when it has been read; a first reason stays. It holds nothing."""
        incoming.refusal = incoming.refusal or refusal
        incoming.gathered.clear()
        draft, incoming.draft = incoming.draft, None
        if incoming.part is not None:
            incoming.part.cancel()
        if draft is not None:
            draft.discard()
            self._take_off(incoming, incoming.promised)
            if incoming.acceptance is not None:
                incoming.acceptance.in_hand -= 1
            self._counts.end_message(self.client.name, incoming.size)

    def _count_memory(self) -> None:
        """Count what the recipients that were read so far take, and the answers that were not collected."""
        used = self._reader.recipient_bytes + self._answers.memory
        self._memory.used += used - self._counted
        self._counted = used

    def check_memory(self) -> None:
        """Count the recipients of the package that is being read, and refuse it if there is no memory for them."""
        if self._ended:
            return
        self._count_memory()
        large = self._reader.recipient_bytes > CHUNK
        if self._memory.used > MEMORY_MAX and large and self._incoming is not None:
            self._refuse(self._incoming, _NO_MEMORY)
            self._reader.forget_recipients()
            self._count_memory()

    def _finish(self, package: Package) -> list[ReceivedMessage]:
        self._write_gathered()
        incoming, self._incoming = self._incoming, None
        assert incoming is not None
        if package.sender is None:
            self._refuse(incoming, _NO_SENDER)
        elif package.too_many_invalid:
            self._refuse(incoming, _TOO_MANY_INVALID)
        elif package.too_many:
            self._refuse(incoming, _TOO_MANY)
        elif not package.recipients:
            self._refuse(incoming, _NO_RECIPIENT)
        elif package.invalid and self._memory.used > MEMORY_MAX:
            self._refuse(incoming, _NO_MEMORY)  # Their answers would take memory until the client reads them.
        place = self._answers.reserve()
        name = self.client.name
        if incoming.draft is None or incoming.acceptance is None or package.sender is None:
            self._answer(place, package, incoming.refusal or _NO_SENDER)
            return []
        incoming.draft.hold, incoming.draft.copy = incoming.hold, incoming.copy
        incoming.draft.priority, incoming.draft.may_raise = incoming.priority, self.client.trusted
        incoming.draft.submitter = incoming.submitter or self.client.submitter
        self._take_off(incoming, incoming.promised)
        self._in_hand += 1
        # From here on its recipients are counted as those of the message.
        self._memory.used += package.memory
        self._count_memory()
        return [
            ReceivedMessage(
                incoming.draft, package, package.sender, place, name, incoming.size, incoming.acceptance, incoming.part
            )
        ]

    def _answer(self, place: Place, package: Package, refusal: Refusal) -> None:
        # Invalid recipients are the reason for it if there is no other one.
        refuses_invalid = refusal is _NO_RECIPIENT
        text = refusal.text.encode("utf-8", "replace")
        runs = answer_runs(package, self._reader.protocol, refusal.letter, text, refuses_invalid)
        self._answers.settle(place, runs)

    def decide(self, message: ReceivedMessage, text: bytes, now: float) -> None:
        """Take what became of a message; `text` is that of K. It is the last of the message."""
        self._since = now
        self._memory.used -= message.package.memory
        self._counts.end_message(message.client, message.size)
        message.acceptance.in_hand -= 1
        self._in_hand -= 1
        if self.closed:
            return
        if message.refusal is not None:
            self._answer(message.place, message.package, message.refusal)
        else:
            self._answers.settle(message.place, answer_runs(message.package, self._reader.protocol, ACCEPTED, text))
        self._count_memory()

    def send(self, now: float) -> None:
        """Send the answers that are ready, as far as the client takes them."""
        self._send_some(now)
        if self.closed:
            return
        self._count_memory()
        if not self._unsent:
            self._behind = 0.0
        elif not self._behind:
            self._behind = now
        if self._full and len(self._answers) < IN_HAND:
            self._full = self.blocked = False
            self.yields = True

    def _send_some(self, now: float) -> None:
        for _ in range(SENDS_A_TURN):
            self._unsent = self._unsent or self._answers.collect()
            if not self._unsent or self.closed:
                return
            try:
                sent = self.socket.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            self._unsent = self._unsent[sent:]
            self._since = now
        self._unsent = self._unsent or self._answers.collect()

    @property
    def reads(self) -> bool:
        """Whether it is to read."""
        return not (self._ended or self.delayed or self._unsent)

    @property
    def delayed(self) -> bool:
        """Whether it must not begin its next message now."""
        return self.blocked or self.yields or self.waits > 0

    @property
    def writes(self) -> bool:
        """Whether it has answers that the client does not take yet."""
        return bool(self._unsent)

    @property
    def busy(self) -> bool:
        """Whether it has messages or answers in hand."""
        return self._in_hand > 0 or bool(self._unsent)

    @property
    def eviction_order(self) -> tuple[bool, float]:
        """The first one is closed where there is no room: not within a message, and silent for longest."""
        return self._incoming is not None, self._since

    @property
    def over(self) -> bool:
        """Whether nothing more comes, and all was answered."""
        return self._ended and not self.busy

    def is_late(self, now: float) -> bool:
        """Whether its client has been silent for too long, or takes too long for a package."""
        if self._unsent:
            return now > min(self._since + STALL_SECONDS, self._behind + ANSWERS_SECONDS)
        if self._incoming is not None:
            stalls = not self.yields and now > self._since + STALL_SECONDS
            return stalls or now > self._incoming.begun + PACKAGE_SECONDS
        # Otherwise it waits for us.
        return not (self._in_hand or self.delayed) and now > self._since + IDLE_SECONDS

    def close(self) -> None:
        """Close it, and drop what is not complete. Its messages in hand are queued, and not answered."""
        if not self.closed:
            self.closed = True
            self.end_input()
            self._unsent = b""
            self._answers.forget()
            self._count_memory()
            self._counts.disconnect(self.client.name)
            self.socket.close()

    def _drop_incoming(self) -> None:
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            self._refuse(incoming, _NO_SENDER)
