"""The state that the reference reader keeps of one stream: messages and deliveries that are open, by their numbers."""

from support.spark.logs.log_mail import Flight, Mail
from support.spark.logs.log_rows import IntervalRow, Truth
from support.spark.logs.log_world import DELETED

Facts = tuple[int, str, int, int]


class Lives:
    """One method a kind of line, called in the order of the log."""

    def __init__(self, host: str, queue: str) -> None:
        self.truth = Truth()
        self._place = (host, queue)
        self._mails: dict[int, Mail] = {}
        self._facts: dict[Mail, Facts] = {}
        self._again: dict[int, int] = {}  # When `new` came for a number that has a message with facts.
        self._flights: dict[int, Flight] = {}
        self._bounces: dict[int, str] = {}
        self._sample: tuple[int, tuple[int, int, int, int]] | None = None
        self._begun: list[tuple[int, int]] = []  # Messages that began with the stamp with which one began last.
        self.last_ns = 0  # Of the queue's last line.

    def new(self, at: int, number: int) -> None:
        mail = self._mails.get(number)
        if mail is None:
            self._begin(number, at).birth_ns = at
        elif mail in self._facts or mail.birth_ns is None:
            self._again[number] = at

    def _begin(self, number: int, at: int) -> Mail:
        self._begun = [one for one in self._begun if one[1] == at] + [(number, at)]
        mail = self._mails[number] = Mail(number, first_ns=at, life=self._begun.count((number, at)))
        return mail

    def info(self, at: int, number: int, size: int, sender: str, qp: int, uid: int) -> None:
        mail, again = self._mails.get(number), self._again.pop(number, None)
        facts = (size, sender, qp, uid)
        if mail is not None and (self._facts.get(mail, facts) != facts or mail.birth_ns is None):
            self._close(mail, at if again is None else again, "lost")
            mail = None
        if mail is None:
            begin = at if again is None else again
            mail = self._begin(number, begin)
            mail.birth_ns = begin
        mail.info_ns = at
        if mail not in self._facts:
            self._facts[mail] = facts
            mail.bytes, mail.sender, mail.qp, mail.uid = facts
            if sender in ("", "#@[]"):
                mail.bounce_of = self._bounces.pop(qp, None)

    def start(self, at: int, delivery: int, number: int, channel: str, recipient: str) -> None:
        self._lose(self._flights.pop(delivery, None))
        mail = self._mails.get(number) or self._begin(number, at)
        mail.tried.add((channel, recipient))
        self._flights[delivery] = Flight(mail, delivery, channel, recipient, at)

    def done(self, at: int, delivery: int, result: str, reason: str | None) -> None:
        flight = self._flights.pop(delivery, None)
        if flight is not None:
            mail = flight.mail
            if self._mails.get(mail.id) is mail:
                mail.successes += result == "success"
                mail.failures += result == "failure"
                mail.deferrals += result in ("deferral", "mangled")
            self.truth.deliveries.append(flight.row(*self._place, at, result, reason))

    def mangled(self, at: int, delivery: int) -> None:
        self.done(at, delivery, "mangled", None)

    def _lose(self, flight: Flight | None) -> None:
        if flight is not None:
            self.truth.deliveries.append(flight.row(*self._place, None, "lost", None))

    def _lose_all(self) -> None:
        for flight in self._flights.values():
            self._lose(flight)
        self._flights.clear()

    def bounce(self, at: int, number: int, qp: int) -> None:
        mail = self._mails.get(number)
        if mail is not None:
            mail.bounce_qp = qp if mail.bounce_qp is None else mail.bounce_qp
            self._bounces[qp] = mail.key

    def triple(self, at: int, number: int) -> None:
        if number in self._mails:
            self._mails[number].fate = "discarded"

    def hold(self, at: int, number: int, why: str) -> None:
        if why == DELETED:
            self.delete(at, number, why)

    def delete(self, at: int, number: int, why: str) -> None:
        if number in self._mails:
            self._mails[number].fate = "deleted"

    def end(self, at: int, number: int) -> None:
        if number in self._mails:
            mail = self._mails[number]
            self._close(mail, at, mail.outcome())

    def _close(self, mail: Mail, at: int, outcome: str) -> None:
        del self._mails[mail.id]
        self._again.pop(mail.id, None)
        self.truth.messages.append(mail.row(*self._place, at, outcome))

    def corrupt(self, at: int, number: int, why: str) -> None:
        pass

    def release(self, at: int, number: int) -> None:
        if number in self._mails and self._mails[number].fate == "deleted":
            self._mails[number].fate = None

    def delay(self, at: int, number: int, qp: int) -> None:
        pass

    def status(self, at: int, local: int, local_limit: int, remote: int, remote_limit: int) -> None:
        if local == remote == 0 and self._flights:
            self._lose_all()
            self._end_sample(self.last_ns)  # It crashed; what was seen last held until then.
        sample = (local, local_limit, remote, remote_limit)
        if self._sample is None or self._sample[1] != sample:
            self._end_sample(at)
            self._sample = (at, sample)

    def exiting(self, at: int) -> None:
        self._lose_all()
        self._end_sample(at)

    def _end_sample(self, at: int) -> None:
        if self._sample is not None:
            self.truth.intervals.append(IntervalRow(*self._place, self._sample[0], at, *self._sample[1]))
            self._sample = None

    def finish(self) -> None:
        """The log is over: what is open is pending."""
        self.truth.waiting += [mail.row(*self._place, None, None) for mail in self._mails.values()]
        self.truth.flying += [flight.row(*self._place, None, None, None) for flight in self._flights.values()]
