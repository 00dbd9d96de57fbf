"""A world in which the protocol runs: injectors, the daemons, hosts that take mail, crashes; and what must always hold.

`World.moves` returns what may happen next. Whoever chooses among them (a generator of random numbers, hypothesis) is
the scheduler, the network, the disk and the power company.

    lost        a recipient whose message was accepted gets it, also if nothing but inotify tells of the message
    repeated    no recipient gets it twice, except once for each crash; after SIGKILL not if its verdict was recorded
    wrong       nobody gets a message that was not sent to them
    states      the files of a number are always in S1 to S5
    bounded     queue-todo knows as many announced messages as the limit allows; a slot has one message
"""

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from support.notice.daemons import ModelClean, ModelMessage, ModelSend, ModelTodo, Pipes
from support.notice.disk import Letter, ModelDisk

NUMBERS = (1, 2, 3)
SLOTS = LIMIT = 2
# Both births are likely to be used by two messages of one number: times are coarse.
BIRTHS = (7, 8)
ENVELOPES = ("a", "ab", "ba")


class Fault(AssertionError):
    """Something that must never happen."""


class Move(NamedTuple):
    """`weight` is how often it happens, relative to others. `progress`: it leads to the end of all messages."""

    name: str
    weight: float
    do: Callable[[], object]
    progress: bool = True


class Fate:
    """What became of a letter: whether it was accepted, and how often each recipient has it."""

    def __init__(self, letter: Letter, crashes: int) -> None:
        self.letter = letter
        self.accepted = False
        self.taken = [0] * len(letter.recipients)
        self.crashes = crashes  # Those before it.


class Injection(NamedTuple):
    letter: Letter
    linked: bool


class World:
    """`chance` makes the choices inside of a move; `without` are guards that are left out."""

    def __init__(self, chance: random.Random, without: frozenset[str] = frozenset()) -> None:
        self.chance = chance
        self.without = without
        self.disk = ModelDisk(SLOTS)
        self.finished: dict[int, Letter] = {}
        self.fates: dict[int, Fate] = {}
        self.injections: list[Injection] = []
        self.recorded: set[tuple[int, int]] = set()
        self.crashes = 0
        self.era = 0
        self.rules = 0
        self.stopping = False
        self.refusable = False
        self.begin()

    def begin(self) -> None:
        """Start the daemons."""
        self.pipes = Pipes()
        self.todo = ModelTodo(self.disk, self.pipes, LIMIT, self.rules, self.without)
        self.send = ModelSend(self.disk, self.pipes, NUMBERS, SLOTS, self.without)
        self.clean = ModelClean(self.disk, self.pipes, self.finished, self.without)
        self.stopping = self.refusable = False

    # What may happen

    def moves(self) -> list[Move]:
        return [*self._outside(), *self._todo_moves(), *self._send_moves(), *self._clean_moves()]

    def _outside(self) -> list[Move]:
        found = []
        busy = {injection.letter.number for injection in self.injections}
        free = [number for number in NUMBERS if not self.disk.is_used(number) and number not in busy]
        if free and len(self.fates) < 12:
            found.append(Move("inject", 3, lambda: self._inject(self.chance.choice(free)), False))
        for at, injection in enumerate(self.injections):
            found.append(Move("inject on", 6, partial(self._inject_on, at, injection)))
        if self.injections:
            found.append(Move("kill an injector", 0.1, lambda: self.injections.pop(0), False))
        dead = [number for number in NUMBERS if self.disk.state(number) == 2 and number not in busy]
        if "failing" not in self.without:
            dead = [number for number in dead if number not in self.clean.failing]
        if dead and not self.clean.work and not self.send.clean_lost:
            found.append(Move("sweep", 1, lambda: self._sweep(dead[0])))
        found += [
            Move("kill", 0.25, self._kill, False),
            Move("power cut", 0.25, self._cut, False),
            Move("qmail takes over", 0.1, self._qmail, False),
            Move("HUP", 0.2, self._hup, False),
            Move("rescan", 0.3, self.todo.rescan, self.pipes.overflow),
        ]
        if not self.stopping:
            found.append(Move("TERM", 0.2, self._term, False))
        elif self._has_stopped():
            found.append(Move("start again", 5, self._start_again))
        if not self.send.clean_lost:
            found.append(Move("lose queue-clean", 0.05, self._lose_clean, False))
        if not self.todo.lost:
            found.append(Move("lose queue-todo", 0.05, self._lose_todo, False))
        if self.stopping and not self.todo.stopping:
            found.append(Move("X comes", 1, self._exit_todo))
        return [*found, *self._orders()]

    def _orders(self) -> list[Move]:
        """What the administrator does."""
        send, found = self.send, []
        for number in NUMBERS:
            message = send.messages.get(number)
            ending = message is not None and message.step == "ending"
            if number in send.marking:
                found.append(Move("the mark is made", 4, partial(send.make_mark, number)))
            elif number in send.held:
                found.append(Move("release", 0.5, partial(send.release, number)))
            elif (self.disk.get("todo", number) or message is not None) and not (ending or self.stopping):
                found.append(Move("hold", 0.2, partial(send.marking.add, number), False))
        return found

    def _todo_moves(self) -> list[Move]:
        todo, pipes = self.todo, self.pipes
        found: list[Move] = []
        if todo.lost:
            return found
        if pipes.names:
            found.append(Move("todo takes a name", 4, todo.take_name))
        if todo.scan:
            found.append(Move("todo scans", 4, todo.scan_on))
        if pipes.orders:
            found.append(Move("todo takes an order", 4, todo.take_order))
        if todo.work is not None:
            found.append(Move("todo works", 8, self._todo_works))
            if self.refusable:
                found.append(Move("the disk refuses todo", 0.4, self._todo_is_refused, False))
        else:
            if todo.asked:
                found.append(Move("todo serves", 6, todo.serve))
            if todo.waiting and not todo.stopping:
                if todo.may_announce:
                    found.append(Move("todo reads", 6, todo.read))
                found.append(Move("todo classifies", 0.7, todo.classify_waiting, False))
        return found

    def _send_moves(self) -> list[Move]:
        send, pipes = self.send, self.pipes
        found = []
        if pipes.notices:
            found.append(Move("send takes a notice", 5, self._take_notice))
        if pipes.answers:
            found.append(Move("send takes an answer", 4, self._take_answer))
        if send.backlog:
            found.append(Move("send discovers", 2, send.discover))
        for number, message in list(send.messages.items()):
            found += self._message_moves(number, message)
        return found

    def _message_moves(self, number: int, message: ModelMessage) -> list[Move]:
        send = self.send
        found = []
        for place in sorted(message.left):
            if message.step in ("announced", "files") and not self.stopping and number not in send.held:
                found.append(Move("start", 4, partial(send.start, number, place)))
        for place in sorted(message.flying - message.taken):
            found.append(Move("host takes", 5, partial(self._host_takes, number, message, place)))
            found.append(Move("host defers", 0.7, partial(send.defer, number, place), False))
        for place in sorted(message.taken):
            found.append(Move("success", 5, partial(self._succeed, number, place)))
            if message.step in ("announced", "asked"):
                found.append(Move("success without a record", 0.2, partial(self._succeed, number, place, False), False))
        if message.step == "announced":
            # After classifyafter, or with very many announced messages: what is in flight, too. A mark needs it.
            marked = send.is_marked(number)
            found.append(Move("ask", 4 if marked else 0.7, lambda: send.ask(number), marked))
        if send.may_end(number):
            found.append(Move("end", 5, lambda: send.end(number)))
        return found

    def _clean_moves(self) -> list[Move]:
        clean = self.clean
        if self.send.clean_lost:
            return []
        if clean.work is not None:
            found = [Move("clean works", 7, clean.go_on)]
            if clean.group:
                found.append(Move("the disk refuses clean", 0.3, clean.refuse, False))
            return found
        return [Move("clean begins", 3, clean.begin)] if self.pipes.requests else []

    # What they do

    def _inject(self, number: int) -> None:
        letter = Letter(
            len(self.fates), number, self.chance.choice(BIRTHS) + 10 * self.era, self.chance.choice(ENVELOPES)
        )
        left = [kind for kind in ("todo", "info", "local", "remote", "hold") if self.disk.get(kind, number)]
        if left:
            raise Fault(f"number {number} is free and has {left}")
        self.fates[letter.serial] = Fate(letter, self.crashes)
        self.disk.put("mess", number, letter)
        self.disk.sync("mess")
        self.injections.append(Injection(letter, False))

    def _inject_on(self, at: int, injection: Injection) -> None:
        letter = injection.letter
        if injection.linked:
            self.disk.sync("todo")
            self.fates[letter.serial].accepted = True
            del self.injections[at]
            return
        if self.disk.get("mess", letter.number) is not letter:
            raise Fault(f"mess/{letter.number} is gone while it is injected")
        self.disk.put("todo", letter.number, letter)
        self.injections[at] = Injection(letter, True)
        if self.chance.random() < 0.1:
            self.pipes.overflow = True
        else:
            self.pipes.names.append(letter.number)

    def _sweep(self, number: int) -> None:
        """36 hours have passed."""
        for slot, record in enumerate(self.disk.slots):
            if record is not None and record[0][0] == number:
                self.disk.write_slot(slot, None)
        self.finished.pop(number, None)
        self.disk.put("hold", number, None)
        self.disk.sync("hold")
        self.disk.put("mess", number, None)

    def _hup(self) -> None:
        self.rules = 1 - self.rules
        self.todo.rules = self.rules
        self.todo.rescan()

    def _todo_works(self) -> None:
        self.refusable = self.todo.go_on()

    def _todo_is_refused(self) -> None:
        self.refusable = False
        self.todo.refuse()

    def _take_notice(self) -> None:
        self.send.take_notice()
        if self.stopping:
            self._ask_for_all()

    def _take_answer(self) -> None:
        self.send.take_answer()
        if self.stopping:
            self._ask_for_all()  # A notice may have waited for the answer.

    def _host_takes(self, number: int, message: ModelMessage, place: int) -> None:
        letter = self.disk.letter("mess", number)
        if letter is None or letter.serial != message.letter.serial:
            raise Fault(f"{message.letter} is delivered with the text of {letter}")
        if message.step == "files":
            work = self.disk.work(message.at[place][0], number)
            if work is None or work.letter is not letter or work.places[message.at[place][1]] != place:
                raise Fault(f"{letter} is delivered to the recipients of {work}")
        fate = self.fates[letter.serial]
        fate.taken[place] += 1
        if (letter.serial, place) in self.recorded:
            raise Fault(f"place {place} of {letter} was recorded, and is delivered again")
        if fate.taken[place] > 1 + self.crashes - fate.crashes:
            raise Fault(f"place {place} of {letter} is delivered {fate.taken[place]} times")
        message.taken.add(place)

    def _succeed(self, number: int, place: int, writes: bool = True) -> None:
        self.send.succeed(number, place, writes)
        self._take_recorded()

    def _take_recorded(self) -> None:
        for letter, place in self.send.recorded:
            self.recorded.add((letter.serial, place))
        self.send.recorded.clear()

    def _term(self) -> None:
        self.stopping = self.todo.stopping = True
        self._ask_for_all()

    def _lose_clean(self) -> None:
        """queue-send tells queue-todo to exit, and then that what has ended is gone."""
        self.stopping = True
        self.todo.stopping = self.todo.stopping or "exit first" not in self.without
        self.clean.work, self.clean.group = None, []
        self.pipes.answers.clear()
        self.crashes += 1
        self.send.lose_clean()
        self._ask_for_all()

    def _exit_todo(self) -> None:
        self.todo.stopping = True

    def _lose_todo(self) -> None:
        self.stopping = self.todo.stopping = self.todo.lost = True
        self.todo.work = None
        self.crashes += 1
        self.pipes.orders.clear()

    def _ask_for_all(self) -> None:
        for number, message in self.send.messages.items():
            if message.step == "announced" and not self.send.may_end(number):
                self.send.ask(number)

    def _has_stopped(self) -> bool:
        pipes, messages = self.pipes, self.send.messages.values()
        if any(message.flying for message in messages) or self.clean.work or self.send.marking:
            return False
        if pipes.notices or pipes.requests or pipes.answers:
            return False
        if self.todo.lost:
            return True  # Nobody reads the orders.
        if pipes.orders:
            return False
        return not (self.todo.work or self.todo.announced or any(message.step != "files" for message in messages))

    def _start_again(self) -> None:
        lost = self.send.clean_lost or self.todo.lost
        self.send.settle()
        self._take_recorded()
        if any(self.disk.slots) and not self.send.left and not lost:
            raise Fault(f"records are left by a clean stop: {self.disk.slots}")
        self.begin()

    def _crash(self) -> None:
        self.crashes += 1
        self._take_recorded()
        self.check_owed()
        self.begin()

    def _kill(self) -> None:
        """SIGKILL of all, or of queue-send, whose peers may still finish some of what they do."""
        for _ in range(self.chance.choice((0, 0, 5, 30))):
            works = [daemon for daemon in (self.todo, self.clean) if daemon.work]
            if works:
                self.chance.choice(works).go_on()
            elif self.pipes.requests:
                self.clean.begin()
        self._crash()

    def _cut(self) -> None:
        self.disk.cut(self.chance.choice, keep_marks="boot" in self.without)
        self.injections.clear()
        self.recorded.clear()
        for number in list(self.finished):
            if self.chance.random() < 0.5:
                del self.finished[number]
        self._take_recorded()
        self.recorded.clear()
        self.check_states("after a power cut ")
        self._crash()

    def _qmail(self) -> None:
        """After a kill an original qmail delivers some of what is in todo/. It knows nothing of queue/marks."""
        self.crashes += 1
        busy, freed = {injection.letter.number for injection in self.injections}, []
        for number in self.disk.numbers("todo"):
            letter = self.disk.letter("todo", number)
            if letter is None or number in busy or self.chance.random() < 0.3:
                continue
            fate = self.fates[letter.serial]
            fate.taken = [count + 1 for count in fate.taken]
            for kind in ("local", "remote", "info", "todo", "hold", "mess", "pid"):
                self.disk.put(kind, number, None)
                self.disk.sync(kind)
            self.finished.pop(number, None)
            freed.append(number)
        self.era += 1  # It takes longer than a birth is coarse.
        self._take_recorded()
        for number in freed:
            if self.chance.random() < 0.5:
                self._inject(number)  # While no daemon of ours runs.
                self._inject_on(len(self.injections) - 1, self.injections[-1])
        self._crash()

    # What must hold

    def check(self) -> None:
        """Raise Fault if something is wrong."""
        self._take_recorded()
        self.check_states("")
        todo = self.todo
        if len(todo.announced) > LIMIT:
            raise Fault(f"{len(todo.announced)} messages are announced")
        if not (todo.again | set(todo.asked)) <= set(todo.announced):
            raise Fault(f"{todo.again} or {sorted(todo.asked)} are remembered, and {sorted(todo.announced)} announced")
        slots = [each.slot for each in self.send.messages.values() if each.slot is not None]
        if len(slots) != len(set(slots)):
            raise Fault("two messages have one slot")

    def check_states(self, when: str) -> None:
        for number in NUMBERS:
            if self.disk.state(number) is None:
                files = [kind for kind in ("mess", "todo", "info", "local", "remote") if self.disk.get(kind, number)]
                raise Fault(f"{when}number {number} is in no state: {files}")

    def check_owed(self) -> None:
        """Raise Fault if an accepted recipient is neither served nor owed by the disk."""
        for fate in self.fates.values():
            missing = {place for place, count in enumerate(fate.taken) if not count}
            if fate.accepted and missing - self._owed(fate.letter):
                raise Fault(f"{missing} of {fate.letter} are lost in a crash")

    def _owed(self, letter: Letter) -> set[int]:
        number = letter.number
        if self.disk.get("todo", number) is letter:
            return set(range(len(letter.recipients)))
        if self.disk.get("todo", number) or self.disk.get("info", number) is not letter:
            return set()
        works = [self.disk.work(kind, number) for kind in ("local", "remote")]
        return {
            place
            for work in works
            if work is not None and work.letter is letter
            for place, done in zip(work.places, work.done, strict=True)
            if not done
        }

    def settle(self) -> None:
        """Let everything come to its end, without crashes and refusals; check that nothing is left."""
        for _ in range(5000):
            moves = [move for move in self.moves() if move.progress]
            if not moves:
                break
            self.chance.choice(moves).do()
            self.check()
        else:
            raise Fault("it does not come to its end")
        for fate in self.fates.values():
            if fate.accepted and not all(fate.taken):
                raise Fault(f"{fate.letter} was accepted and is delivered {fate.taken}")
        left = {number: self.disk.state(number) for number in NUMBERS}
        if set(left.values()) != {1}:
            raise Fault(f"states at the end: {left}")
        if self.todo.announced or self.send.taken or any(self.disk.slots):
            raise Fault(f"left: {self.todo.announced}, {self.send.taken}, {self.disk.slots}")


def choose_move(chance: random.Random, moves: list[Move], factors: dict[str, float], *, prefers: bool) -> Move:
    """Return one of the moves, by their weights and factors.

    A move without a factor gets one: at random if the walk `prefers` some moves, else 1.
    """
    for move in moves:
        if move.name not in factors:
            factors[move.name] = chance.choice((0.1, 1, 1, 5)) if prefers else 1
    return chance.choices(moves, [move.weight * factors[move.name] for move in moves])[0]


def walk(
    seed: int, steps: int, without: frozenset[str] = frozenset(), favour: Mapping[str, float] | None = None
) -> World:
    """Make moves at random and settle; raise Fault if something is wrong. Return the world.

    `favour` are factors for the weights of moves. Every second walk prefers other moves at random, so that some see
    many crashes, others a slow queue-clean, and so on.
    """
    chance = random.Random(seed)
    world = World(chance, without)
    factors = dict(favour or {})
    for _ in range(steps):
        choose_move(chance, world.moves(), factors, prefers=bool(seed % 2)).do()
        world.check()
    world.settle()
    return world
