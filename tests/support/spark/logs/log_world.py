"""A queue that is simulated in plain Python, its log, and the tables that the log must make: an independent truth.

The rows are made from what the simulation knows, never from the text of its lines. It does what makes a log hard to
read: numbers used again at once, crashes, clean stops, lines said twice, clock steps, equal stamps, a log that begins
in the middle, ends that were never written, bounces of bounces of bounces. One seed makes one log, always.
"""

from support.spark.logs.log_mail import ODD, SENDERS, Mail, some_recipients
from support.spark.logs.log_stream import SimulatedRun

DELETED = "deleted by the administrator; it ends when nothing of it is in flight"
RETURNED = "returned by the administrator; it bounces when nothing of it is in flight"
# How often what happens, against each other.
ACTIONS = {
    **dict.fromkeys(("start", "finish"), 20.0),
    **dict.fromkeys(("arrive", "end"), 11.0),
    **dict.fromkeys(("chatter", "hold", "say_again"), 2.0),
    "release": 3.0,
    **dict.fromkeys(("delay", "crash", "stop", "step_clock", "change_limits", "lose_end", "delete", "give_back"), 0.6),
}


class World(SimulatedRun):
    """One stream. lines: (stamp in Unix nanoseconds, text), in order. truth: its rows, complete once run() is over."""

    def __init__(self, seed: int, host: str = "alpha", queue: str = "main", begin: int = 1_700_000_000) -> None:
        super().__init__(seed, host, queue, begin)
        self._free = [*range(400, 408), 9_000_000_001]
        self._mails: list[Mail] = []
        self._ghosts: dict[int, Mail] = {}  # Their ends were never written.
        self._bounces: list[tuple[int, str, str | None]] = []  # qp, sender, key of what it reports.
        self._old_qps: list[int] = []
        self._ended: list[int] = []
        self._qp = self._rng.choice((300, 32_700))

    def run(self, steps: int) -> "World":
        """Let `steps` things happen, and note what is still open."""
        if self._rng.random() < 0.4:
            self._begin_in_the_middle()
        else:
            self._begin()
        names, weights = list(ACTIONS), list(ACTIONS.values())
        for _ in range(steps):
            getattr(self, f"_{self._rng.choices(names, weights)[0]}")()
        for mail in (*self._mails, *self._ghosts.values()):
            if mail.first_ns:
                self.truth.waiting.append(mail.row(self.host, self.queue, None, None))
        self.truth.flying += [flight.row(self.host, self.queue, None, None, None) for flight in self._flights]
        return self

    def _one(self, mails: list[Mail]) -> Mail | None:
        return self._rng.choice(mails) if mails else None

    def _next_qp(self) -> int:
        self._qp = self._qp + 1 if self._qp < 32_767 else 300
        return self._qp

    def _begin_in_the_middle(self) -> None:
        """Two deliveries and some messages are older than the log, so it tells of them without their beginning."""
        self._delivery = 57
        self._say("delivery 55: success: did_1+0+0/")
        self._sample((0, 10, 1, 20))
        self._say("delivery 54: deferral: later/")
        self._status()
        for _ in range(3):
            self._mails.append(Mail(self._free.pop(0), waiting=[("remote", "old@d9.example"), ("local", "no-at")]))

    def _chatter(self) -> None:
        self._say(self._rng.choice(ODD))

    def _arrive(self) -> None:
        """A message is classified: one of the bounces that wait, or a new one."""
        if not self._free:
            return
        rng = self._rng
        number = self._free.pop(rng.randrange(len(self._free)))
        mail = Mail(number, uid=rng.randrange(2000), waiting=some_recipients(rng))
        mail.bytes = len(self.lines) + 100
        if self._bounces and rng.random() < 0.7:
            mail.qp, mail.sender, mail.bounce_of = self._bounces.pop(0)
            self._old_qps.append(mail.qp)
        else:
            mail.sender = rng.choice(SENDERS)
            # A process number is used again, too, and then it means nothing.
            mail.qp = rng.choice(self._old_qps) if self._old_qps and rng.random() < 0.1 else self._next_qp()
        ghost = self._ghosts.pop(mail.id, None)
        mail.birth_ns = self._say(f"new msg {mail.id}", mail)
        if ghost is not None:
            self.truth.messages.append(ghost.row(self.host, self.queue, mail.birth_ns, "lost"))
        elif rng.random() < 0.05:
            self._crash()
            self._say(f"new msg {mail.id}")
        info = f"info msg {mail.id}: bytes {mail.bytes} from <{mail.sender}> qp {mail.qp} uid {mail.uid}"
        mail.info_ns = self._say(info)
        if rng.random() < 0.05:
            self._crash()
            self._say(f"new msg {mail.id}")
            mail.info_ns = self._say(info)
        if rng.random() < 0.03:
            mail.waiting = []
        self._mails.append(mail)

    def _start(self) -> None:
        mail = self._one([mail for mail in self._mails if mail.waiting and not mail.held])
        if mail is not None:
            self._fly(mail)
            self._after_delivery()

    def _end(self) -> None:
        """A message of which nothing is left to be tried ends, with a bounce where something failed."""
        mail = self._one([mail for mail in self._mails if mail.settled])
        if mail is not None:
            if mail.failures and mail.fate is None:
                self._bounce(mail)
            self._close(mail)

    def _close(self, mail: Mail) -> None:
        self._mails.remove(mail)
        if not mail.first_ns:
            return  # It is older than the log, which never spoke of it.
        at = self._say(f"end msg {mail.id}")
        self.truth.messages.append(mail.row(self.host, self.queue, at, mail.outcome()))
        self._free.append(mail.id)
        if self._rng.random() < 0.05:
            self._crash()
            self._say(f"end msg {mail.id}")

    def _bounce(self, mail: Mail) -> None:
        if mail.sender == "#@[]":
            self._say(f"triple bounce: discarding bounce/{mail.id}")
            mail.fate = "discarded"
            return
        sender = "" if mail.sender else "#@[]"
        for again in (False, True):
            if again and self._rng.random() < 0.9:
                return
            if again:
                self._crash()
            qp = self._next_qp()
            self._say(f"bounce msg {mail.id} qp {qp}")
            mail.bounce_qp = mail.bounce_qp or qp
            self._bounces.append((qp, sender, mail.key))

    def _say_again(self) -> None:
        """What is said of a number that no message has changes nothing."""
        numbers = [number for number in self._free if number not in self._ghosts]
        if numbers:
            number = self._rng.choice(numbers)
            words = self._rng.choice(("end msg {}", "bounce msg {} qp 299", "triple bounce: discarding bounce/{}"))
            self._say(words.format(number))

    def _lose_end(self) -> None:
        """A crash comes just when a message has ended, so that nobody ever reads that it did."""
        mail = self._one([mail for mail in self._mails if mail.settled and mail.first_ns and not mail.failures])
        if mail is not None:
            self._mails.remove(mail)
            self._ghosts[mail.id] = mail
            self._free.append(mail.id)
            self._crash()

    def _hold(self) -> None:
        mail = self._one([mail for mail in self._mails if mail.first_ns and not mail.held])
        if mail is not None:
            mail.held = True
            words = ("hold msg {}: by the administrator", "corrupt msg {}: info/1/2: no sender", "hold msg {}: ")
            self._say(self._rng.choice(words).format(mail.id))

    def _release(self) -> None:
        mail = self._one([mail for mail in self._mails if mail.held])
        if mail is not None:
            mail.held = False
            self._say(f"release msg {mail.id}")

    def _delay(self) -> None:
        mail = self._one([mail for mail in self._mails if mail.first_ns and mail.waiting and mail.sender])
        if mail is not None:
            qp = self._next_qp()
            self._say(f"delay msg {mail.id} qp {qp}")
            self._bounces.append((qp, "", None))

    def _delete(self) -> None:
        mail = self._one([mail for mail in self._mails if mail.first_ns and not mail.flying])
        if mail is not None:
            # As it is logged, and as earlier versions logged it.
            words = (f"delete msg {mail.id}: by the administrator", f"hold msg {mail.id}: {DELETED}")
            self._say(words[mail.id % 2])
            mail.fate = "deleted"
            self._close(mail)

    def _give_back(self) -> None:
        """The administrator wants a message returned: what is left of it fails at once."""
        mail = self._one([mail for mail in self._mails if mail.first_ns and mail.waiting and not mail.flying])
        if mail is not None:
            self._say(f"hold msg {mail.id}: {RETURNED}")
            mail.held = True
            while mail.waiting:
                self._land(self._fly(mail), "failure", "The_administrator_has_asked_for_this_message_to_be_returned.")
            self._bounce(mail)
            self._close(mail)
