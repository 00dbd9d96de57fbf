"""Random histories of messages, and in plain Python what the reports about the queue should say of them."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import strategies as st

from support.spark.lake_rows import LakeRows

LIMITS = [minutes * 60 for minutes in (5, 10, 20, 40, 80, 160, 320, 640, 1280)]
TERMINAL = ("success", "failure")


@dataclass(frozen=True)
class Attempt:
    """One delivery of one recipient. done None: lost, or in flight where result is None."""

    recipient: str
    start: int
    done: int | None
    result: str | None
    kind: str = ""


@dataclass(frozen=True)
class Life:
    """One message. done None: it waits. first: of its first line, where its birth is not known."""

    host: str
    key: str
    birth: int | None
    first: int
    done: int | None
    outcome: str
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def born(self) -> int:
        return self.first if self.birth is None else self.birth

    def of(self, recipient: str) -> list[Attempt]:
        """Return the attempts of a recipient in order."""
        return sorted((a for a in self.attempts if a.recipient == recipient), key=lambda a: a.start)

    @property
    def recipients(self) -> list[str]:
        return sorted({attempt.recipient for attempt in self.attempts})

    def waits_at(self, recipient: str, at: float) -> bool:
        """Return whether a recipient, none of which is named twice here, waits at a time."""
        if self.born > at or (self.done is not None and self.done <= at):
            return False
        return not any(a.result in TERMINAL and a.done is not None and a.done <= at for a in self.of(recipient))


@st.composite
def lives(draw: st.DrawFn, number: int, domains: list[str], host: str, step: int) -> Life:
    """Draw a life: each recipient is tried some times, and its last attempt settles it, or the message waits.

    Times between events are up to `step` seconds.
    """
    wait = st.integers(1, step)
    born = draw(st.integers(0, 3 * step))
    attempts, ends, settled = [], [born], True
    for i in range(draw(st.integers(0, 3))):
        recipient, now = f"u{i}@{draw(st.sampled_from(domains))}", born
        for _ in range(draw(st.integers(0, 4))):
            start = now + draw(wait)
            result = draw(st.sampled_from(["deferral", "deferral", "lost", "mangled"]))
            done = None if result == "lost" else start + draw(wait)
            attempts.append(Attempt(recipient, start, done, result, draw(st.sampled_from(["network", "rate"]))))
            now = done or start
        start = now + draw(wait)
        if draw(st.integers(0, 3)):
            result = draw(st.sampled_from(["success", "success", "failure"]))
            attempts.append(Attempt(recipient, start, start + draw(wait), result, "mailbox"))
        else:
            settled = False
            if draw(st.booleans()):
                attempts.append(Attempt(recipient, start, None, None))
        ends += [a.done or a.start for a in attempts]
    flying = any(a.result is None for a in attempts)
    over = not flying and (settled or draw(st.booleans())) and draw(st.integers(0, 5)) > 0
    outcome = "delivered" if settled else draw(st.sampled_from(["deleted", "lost", "delivered"]))
    birth = born if draw(st.integers(0, 9)) else None
    return Life(host, f"{number}.{born}", birth, born, max(ends) + draw(wait) if over else None, outcome, attempts)


@st.composite
def worlds(draw: st.DrawFn, hosts: list[str], domains: list[str], most: int, step: int) -> list[Life]:
    """Draw lives on hosts."""
    count = draw(st.integers(most // 2, most))
    return [draw(lives(i, domains, draw(st.sampled_from(hosts)), step)) for i in range(count)]


def add_lives(rows: LakeRows, world: list[Life]) -> None:
    """Add lives and their deliveries to tables."""
    number = 0
    for life in world:
        results = Counter(attempt.result for attempt in life.attempts)
        counts = (results["success"], results["failure"], results["deferral"] + results["mangled"])
        rows.message(
            life.key, life.birth, life.done, first=life.first, counts=counts, recipients=len(life.recipients),
            outcome=life.outcome, host=life.host,
        )  # fmt: skip
        for attempt in life.attempts:
            number += 1
            rows.delivery(
                life.key, attempt.recipient, attempt.start, attempt.done, attempt.result, kind=attempt.kind,
                host=life.host, delivery=number,
            )  # fmt: skip


def bucket(age: float) -> int:
    """Return the number of qshape's column for an age in seconds: 0 for less than 5 minutes."""
    return sum(age >= limit for limit in LIMITS)
