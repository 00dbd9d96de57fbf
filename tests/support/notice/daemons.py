"""queue-todo, queue-send and queue-clean as the protocol of delivery from the notice has them: pure, a step at a time.

A daemon's work with the disk is a generator, which yields wherever a crash, or a step of another process, may come in
between. `without` names the guards (support.notice.guards) that are left out.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from support.notice.disk import Letter, ModelDisk, Record, Work


def channel_of(recipient: str, rules: int) -> str:
    return "local" if (recipient == "a") == (rules == 0) else "remote"


class Notice(NamedTuple):
    """`classified`: the files are written. `channels`: the channel of each recipient of an announced message."""

    number: int
    letter: Letter
    classified: bool
    channels: tuple[str, ...] = ()


class Order(NamedTuple):
    """queue-send to queue-todo: `gone`, or `classify` with the places that are done."""

    word: str
    number: int
    done: frozenset[int] = frozenset()


class Absent(NamedTuple):
    """queue-todo to queue-send: the envelope that was to be classified is not there."""

    number: int


class Request(NamedTuple):
    """queue-send to queue-clean. `slot` is that of a message that was not classified, None otherwise."""

    number: int
    announced: bool
    slot: int | None


class Pipes:
    """What lies in the pipes between the daemons, and the events of inotify."""

    def __init__(self) -> None:
        self.names: deque[int] = deque()
        self.overflow = False
        self.notices: deque[Notice | Absent] = deque()
        self.orders: deque[Order] = deque()
        self.requests: deque[Request] = deque()
        self.answers: deque[tuple[Request, bool]] = deque()


class Announced(NamedTuple):
    letter: Letter
    rules: int


class ModelTodo:
    """queue-todo. `work` is what its thread does."""

    def __init__(self, disk: ModelDisk, pipes: Pipes, limit: int, rules: int, without: frozenset[str]) -> None:
        self.disk, self.pipes, self.limit, self.rules, self.without = disk, pipes, limit, rules, without
        self.waiting: list[int] = []
        self.in_hand: dict[int, bool] = {}
        self.announced: dict[int, Announced] = {}
        self.again: set[int] = set()
        self.asked: dict[int, frozenset[int]] = {}
        self.begun: set[int] = set()
        self.scan: deque[int] = deque(disk.numbers("todo"))
        self.first = set(self.scan)
        self.left = {slot: record for slot, record in enumerate(disk.slots) if record}
        self.work: Iterator[bool] | None = None  # It yields whether the disk may refuse the next step.
        self.worked_on = 0
        self.stopping = self.lost = False

    def add(self, number: int) -> None:
        """A name has come."""
        if number in self.announced and "announced" not in self.without:
            if "again" not in self.without:
                self.again.add(number)
        elif number in self.in_hand:
            self.in_hand[number] = True
        elif number not in self.waiting:
            self.waiting.append(number)

    def take_name(self) -> None:
        self.add(self.pipes.names.popleft())

    def scan_on(self) -> None:
        self.add(self.scan.popleft())

    def rescan(self) -> None:
        self.pipes.overflow = False
        self.scan = deque(self.disk.numbers("todo"))

    def take_order(self) -> None:
        order = self.pipes.orders.popleft()
        if order.word == "classify":
            self.asked[order.number] = order.done
        else:
            self._leave(order.number)

    def _leave(self, number: int) -> None:
        self.announced.pop(number, None)
        if number in self.again:
            self.again.discard(number)
            self.add(number)

    def _done(self, number: int) -> None:
        if self.in_hand.pop(number):
            if "in hand" in self.without and number in self.announced:
                self.waiting.append(number)
            else:
                self.add(number)

    @property
    def may_announce(self) -> bool:
        return not self.stopping and (len(self.announced) < self.limit or "limit" in self.without)

    def read(self) -> None:
        """Begin to read the oldest message that waits."""
        number = self.waiting.pop(0)
        self.in_hand[number] = False
        self._begin(number, self._read(number))

    def classify_waiting(self) -> None:
        """Begin to classify the oldest message that waits, as in every other mode and at the limit."""
        number = self.waiting.pop(0)
        self.in_hand[number] = False
        self._begin(number, self._classify(number))

    def serve(self) -> None:
        """Begin to classify a message on request."""
        number = min(self.asked)
        self._begin(number, self._classify(number, self.asked[number]))

    def _begin(self, number: int, work: Iterator[bool]) -> None:
        self.worked_on, self.work = number, work

    def go_on(self) -> bool:
        """Do the next step of the thread; return whether the disk may refuse the step after it."""
        assert self.work is not None
        refusable = next(self.work, None)
        if refusable is None:
            self.work = None
        return bool(refusable)

    def refuse(self) -> None:
        """The disk refuses: the message is tried again later, as it was asked for."""
        self.work = None
        number = self.worked_on
        if number in self.in_hand:
            del self.in_hand[number]
            self.waiting.append(number)
        elif "kept request" in self.without and number in self.asked:
            del self.asked[number], self.announced[number]
            self.add(number)

    def _read(self, number: int) -> Iterator[bool]:
        letter = self.disk.letter("todo", number)
        if letter is None:
            self._done(number)
            return
        leftovers = [kind for kind in ("info", "local", "remote") if self.disk.get(kind, number)]
        left = number in self.first and leftovers and "leftovers" not in self.without
        if left or (number in self.begun and "begun" not in self.without):
            yield from self._classify(number)
            return
        yield True
        if not self.may_announce:
            del self.in_hand[number]
            self.waiting.insert(0, number)
            return
        self.first.discard(number)
        self.announced[number] = Announced(letter, self.rules)
        channels = tuple(channel_of(recipient, self.rules) for recipient in letter.recipients)
        self.pipes.notices.append(Notice(number, letter, False, channels))
        self._done(number)

    def _left_by_killed(self, letter: Letter) -> frozenset[int]:
        """Return the places that are done in the records of an earlier run, as they are now."""
        if "records" in self.without:
            return frozenset()
        by_number = "identity" in self.without
        done: frozenset[int] = frozenset()
        for slot, record in self.left.items():
            same = record[0] == letter.identity or (by_number and record[0][0] == letter.number)
            now = self.disk.slots[slot]
            if same and now is not None and now[0] == record[0]:
                done |= now[1]
        return done

    def _classify(self, number: int, asked: frozenset[int] | None = None) -> Iterator[bool]:
        disk, letter = self.disk, self.disk.letter("todo", number)
        known = self.announced.get(number) if asked is not None else None
        if known is not None and letter is not known.letter:
            self.pipes.notices.append(Absent(number))
            del self.asked[number]
            self._leave(number)
            return
        if letter is None:
            self._done(number)
            return
        self.begun.add(number)
        rules = self.rules if known is None or "rules" in self.without else known.rules
        done = asked if asked is not None else self._left_by_killed(letter)
        if "bits" in self.without and asked is not None:
            done = frozenset()
        if "names first" not in self.without:
            disk.sync("todo")
        yield True
        for kind in ("local", "remote"):
            places = tuple(
                place for place, each in enumerate(letter.recipients) if channel_of(each, rules) == kind
            )
            disk.put(kind, number, Work(letter, places, tuple(place in done for place in places)) if places else None)
            yield True
        disk.put("info", number, letter)
        yield True
        if "files first" not in self.without:
            disk.sync("info", "local", "remote")
        yield True
        disk.put("todo", number, None)
        yield False
        if "unlinked" not in self.without:
            disk.sync("todo")
        yield False
        self.begun.discard(number)
        self.first.discard(number)
        self.pipes.notices.append(Notice(number, letter, True))
        if asked is not None:
            del self.asked[number]
            self._leave(number)
        else:
            self._done(number)


class ModelMessage:
    """A message in queue-send. `step`: announced, asked (for classification), files, ending, ended.

    `left` are places that wait, `flying` those in flight. `at`: where each place is in local/I or remote/I.
    """

    def __init__(self, letter: Letter, step: str, channels: tuple[str, ...] = ()) -> None:
        self.letter = letter
        self.step = step
        self.left = set(range(len(letter.recipients)))
        self.flying: set[int] = set()
        self.taken: set[int] = set()  # In flight, and the host has the message.
        self.done: set[int] = set()
        self.recorded: set[int] = set()  # What its record has.
        self.announced = False  # It ended without being classified.
        self.slot: int | None = None
        self.at: dict[int, tuple[str, int]] = {}
        counts = {"local": 0, "remote": 0}
        for place, channel in enumerate(channels):
            self.at[place] = (channel, counts[channel])
            counts[channel] += 1
        self.bits: frozenset[int] = frozenset()  # What was done when classification was asked for.


class ModelSend:
    """queue-send."""

    def __init__(
        self, disk: ModelDisk, pipes: Pipes, numbers: Iterable[int], slots: int, without: frozenset[str]
    ) -> None:
        self.disk, self.pipes, self.without = disk, pipes, without
        self.messages: dict[int, ModelMessage] = {}
        self.kept: dict[int, Notice] = {}
        self.backlog: deque[int] = deque(numbers)  # A directory that is read may show names that came meanwhile.
        self.arrived: set[int] = set()
        self.stopping = False
        self.recorded: list[tuple[Letter, int]] = []  # Since the last look: what a SIGKILL may not repeat.
        self.held = set(disk.numbers("hold"))
        self.marking: set[int] = set()  # Messages whose mark in hold/ is being made.
        self.clean_lost = False
        self.left = {slot: record[0] for slot, record in enumerate(disk.slots) if record}
        self.taken: set[int] = set() if "reserved" in without else set(self.left)
        self.slots = slots
        if "absent" not in without:
            for slot, (number, *_) in list(self.left.items()):
                if disk.get("todo", number) is None:
                    self._clear(slot)

    def _clear(self, slot: int) -> None:
        self.disk.write_slot(slot, None)
        self.left.pop(slot, None)
        self.taken.discard(slot)

    def _adopt(self, letter: Letter) -> tuple[int, frozenset[int]] | None:
        for slot, identity in list(self.left.items()):
            same = identity == letter.identity or ("identity" in self.without and identity[0] == letter.number)
            if not same and identity[0] == letter.number:
                self._clear(slot)  # Its message has ended where nobody knew of the record.
            if not same:
                continue
            del self.left[slot]
            record: Record | None = self.disk.slots[slot]
            if record is not None and record[0] == identity and "records" not in self.without:
                return slot, record[1]
            self.taken.discard(slot)
        return None

    def take_notice(self) -> None:
        notice = self.pipes.notices.popleft()
        if isinstance(notice, Absent):
            self._drop(notice.number)
        else:
            self._arrive(notice)

    def _drop(self, number: int) -> None:
        message = self.messages.pop(number)
        if message.slot is not None:
            self._clear(message.slot)

    def _arrive(self, notice: Notice) -> None:
        number = notice.number
        message = self.messages.get(number)
        if message is not None and message.step == "ending" and "notice waits" not in self.without:
            self.kept[number] = notice
            return
        if notice.classified:
            self._arrive_classified(notice, message)
            return
        self.arrived.add(number)
        found = ModelMessage(notice.letter, "announced", notice.channels)
        adopted = self._adopt(notice.letter)
        self.messages[number] = found
        if adopted is not None:
            found.slot, done = adopted
            found.done |= done
            found.recorded |= done
            found.left -= done
        else:
            found.slot = next((slot for slot in range(self.slots) if slot not in self.taken), None)
        if found.slot is not None:
            self.taken.add(found.slot)
        if found.slot is None or number in self.held:
            self.ask(number)

    def _arrive_classified(self, notice: Notice, message: ModelMessage | None) -> None:
        number = notice.number
        for slot, identity in list(self.left.items()):
            if identity[0] == number:
                self._clear(slot)
        if message is not None and message.step == "asked":
            message.step = "files"
            if message.slot is not None:
                self._clear(message.slot)
                message.slot = None
            late = sorted(message.done - message.bits)
            for place in late:
                if "late verdicts" not in self.without:
                    self._mark(number, message, place)
                else:
                    message.done.discard(place)
                    message.left.add(place)
            return
        if message is None and self.disk.get("info", number) and not self.disk.get("todo", number):
            self.arrived.add(number)
            self._load(number)

    def discover(self) -> None:
        """Add a message that the last run has left in info/."""
        number = self.backlog.popleft()
        if number in self.arrived and "backlog" not in self.without:
            return
        if self.disk.get("info", number) and not self.disk.get("todo", number):
            message = self.messages.get(number)
            if message is None or (message.step == "asked" and "backlog" in self.without):
                self._load(number)

    def _load(self, number: int) -> None:
        letter = self.disk.letter("info", number)
        assert letter is not None
        message = ModelMessage(letter, "files")
        message.left = set()
        for kind in ("local", "remote"):
            work = self.disk.work(kind, number)
            if work is not None:
                for at, place in enumerate(work.places):
                    message.at[place] = (kind, at)
                    if not work.done[at]:
                        message.left.add(place)
        self.messages[number] = message

    def start(self, number: int, place: int) -> None:
        message = self.messages[number]
        message.left.discard(place)
        message.flying.add(place)

    def succeed(self, number: int, place: int, writes: bool = True) -> None:
        """Record a success; if the record cannot be written, have the message classified."""
        message = self.messages[number]
        message.flying.discard(place)
        message.taken.discard(place)
        message.done.add(place)
        if message.step == "files":
            self._mark(number, message, place)
        elif not writes:
            if message.step == "announced" and (message.left or message.flying):
                self.ask(number)
        elif message.slot is not None:
            self.disk.write_slot(message.slot, (message.letter.identity, frozenset(message.done)))
            message.recorded = set(message.done)
            if message.step == "announced":
                self.recorded.append((message.letter, place))

    def _mark(self, number: int, message: ModelMessage, place: int) -> None:
        kind, at = message.at[place]
        work = self.disk.work(kind, number)
        assert work is not None and at < len(work.places), f"{number}: a DONE mark beyond {kind}"
        self.disk.put(kind, number, work.with_done(at))
        self.recorded.append((message.letter, place))

    def defer(self, number: int, place: int) -> None:
        """A recipient must be tried again later."""
        message = self.messages[number]
        message.flying.discard(place)
        message.left.add(place)
        if message.step == "announced":
            self.ask(number)

    def ask(self, number: int) -> None:
        """Ask for the classification of an announced message."""
        message = self.messages[number]
        message.step = "asked"
        message.bits = frozenset(message.done)
        self.pipes.orders.append(Order("classify", number, message.bits))

    def is_marked(self, number: int) -> bool:
        """Return whether a message may have a mark in hold/."""
        return number in self.held or number in self.marking

    def make_mark(self, number: int) -> None:
        """The disk has made a mark, of the message that has the number now."""
        self.marking.discard(number)
        self.disk.put("hold", number, self.disk.letter("mess", number))
        self.disk.sync("hold")
        self.held.add(number)

    def release(self, number: int) -> None:
        self.disk.put("hold", number, None)
        self.disk.sync("hold")
        self.held.discard(number)

    def may_end(self, number: int) -> bool:
        message = self.messages[number]
        if number in self.marking or (number in self.held and "marked" not in self.without):
            if message.step == "announced" and "marked" not in self.without:
                return False  # It is classified first: queue-clean removes the mark with all its files.
            if number in self.marking:
                return False
        steps = ("announced", "files", "asked") if "one of both" in self.without else ("announced", "files")
        return message.step in steps and not message.left and not message.flying

    def end(self, number: int) -> None:
        message = self.messages[number]
        if message.step == "files":
            for kind in ("local", "remote"):
                self.disk.put(kind, number, None)
        announced = message.announced = message.step != "files"
        message.step = "ending"
        if "slot" in self.without and message.slot is not None:
            self.taken.discard(message.slot)
        self.held.discard(number)
        slot = message.slot if announced else None
        request = Request(number, announced, slot)
        if self.clean_lost:
            self._give_up(request)
        else:
            self.pipes.requests.append(request)

    def lose_clean(self) -> None:
        """queue-clean is lost. queue-todo is told that its messages are gone; their records stay for the next run."""
        self.clean_lost = True
        self.pipes.requests.clear()
        for number, message in list(self.messages.items()):
            if message.step == "ending":
                self._give_up(Request(number, message.announced, None))

    def _give_up(self, request: Request) -> None:
        message = self.messages.pop(request.number)
        if request.announced:
            if message.recorded == message.done:
                self.recorded += [(message.letter, place) for place in message.done]
            self.pipes.orders.append(Order("gone", request.number))
        notice = self.kept.pop(request.number, None)
        if notice is not None:
            self._arrive(notice)

    def settle(self) -> None:
        """queue-todo is lost, and nothing is in flight: the files of what it has classified get their marks."""
        for number, message in self.messages.items():
            if message.step == "asked" and self.disk.get("todo", number) is None:
                for place in sorted(message.done - message.bits):
                    if "left behind" not in self.without:
                        self._mark(number, message, place)
            if message.step in ("announced", "asked") and message.recorded == message.done:
                self.recorded += [(message.letter, place) for place in message.done]

    def take_answer(self) -> None:
        request, removed = self.pipes.answers.popleft()
        if not removed:
            self.pipes.requests.append(request)
            return
        number = request.number
        if request.slot is not None:
            if "clear" in self.without:
                self.disk.write_slot(request.slot, None)
            self.taken.discard(request.slot)
        message = self.messages.get(number)
        if message is not None and message.step == "ending":
            del self.messages[number]
        if request.announced and "gone" not in self.without:
            self.pipes.orders.append(Order("gone", number))
        notice = self.kept.pop(number, None)
        if notice is not None:
            self._arrive(notice)


class ModelClean:
    """queue-clean. It removes all that was asked for as one group. pid/I is the second name of a classified message.

    For the others `finished` stands for the group's file: it names the very file, and may be lost in a power cut.
    """

    def __init__(self, disk: ModelDisk, pipes: Pipes, finished: dict[int, Letter], without: frozenset[str]) -> None:
        self.disk, self.pipes, self.finished, self.without = disk, pipes, finished, without
        self.work: Iterator[None] | None = self._start()
        self.group: list[Request] = []
        self.removed: set[int] = set()
        self.failing: set[int] = set()  # What will be asked for again. The sweep leaves it alone.

    def begin(self) -> None:
        self.removed = set()
        self.group = list(self.pipes.requests)
        self.pipes.requests.clear()
        self.work = self._remove()

    def go_on(self) -> None:
        assert self.work is not None
        if next(self.work, self) is self:
            self.work = None

    def refuse(self) -> None:
        """The disk refuses a step of a group. A message whose mess/ is gone is removed, whatever fails after that."""
        self.work = None
        self.pipes.answers.extend((request, request.number in self.removed) for request in self.group)
        self.failing.update(request.number for request in self.group if request.number not in self.removed)
        self.group = []

    def _start(self) -> Iterator[None]:
        if "start sync" not in self.without:
            self.disk.sync("todo", "info")
        yield
        for number in self.disk.numbers("pid"):
            if self.disk.state(number) == 2:
                self.disk.put("hold", number, None)
                self.disk.sync("hold")
                self.disk.put("mess", number, None)
            self.disk.put("pid", number, None)
            yield
        for number, letter in list(self.finished.items()):
            same = self.disk.get("mess", number) is letter or "finished" in self.without
            if same and self.disk.state(number) == 2:
                if "clear" not in self.without:
                    for slot, record in enumerate(self.disk.slots):
                        if record is not None and record[0][0] == number:
                            self.disk.write_slot(slot, None)
                self.disk.put("hold", number, None)
                self.disk.sync("hold")
                self.disk.put("mess", number, None)
            self.finished.pop(number, None)
            yield

    def _remove(self) -> Iterator[None]:
        disk = self.disk
        announced = [request for request in self.group if request.announced]
        classified = [request.number for request in self.group if not request.announced]
        unlinked = "repeated sync" not in self.without
        for request in announced:
            letter = disk.letter("mess", request.number)
            if letter is not None:
                self.finished[request.number] = letter
            if disk.get("todo", request.number) is not None:
                disk.put("todo", request.number, None)
                unlinked = True
            yield
        for number in classified:
            disk.put("local", number, None)
            disk.put("remote", number, None)
            disk.put("pid", number, disk.get("mess", number))
            yield
        if announced and unlinked and "removal sync" not in self.without:
            disk.sync("todo")
        disk.sync("local", "remote")
        yield
        for number in classified:
            disk.put("info", number, None)
            disk.put("hold", number, None)
            yield
        disk.sync("info", "hold")
        yield
        for request in announced:
            if request.slot is not None and "clear" not in self.without:
                disk.write_slot(request.slot, None)
        yield
        for request in self.group:
            disk.put("mess", request.number, None)
            disk.put("pid", request.number, None)
            self.removed.add(request.number)
            self.failing.discard(request.number)
            yield
        for request in self.group:
            self.finished.pop(request.number, None)
        self.pipes.answers.extend((request, True) for request in self.group)
        self.group = []
