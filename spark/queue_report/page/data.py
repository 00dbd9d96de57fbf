"""What the page shows, as plain typed rows. Times are Unix seconds (UTC), durations seconds, sizes bytes.

gather.py makes all of it of a lake; from here on there is no lake, no clock and no file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from queue_report.page.scales import Bins

# Kinds of lines among the counts of `streams`: the end of a run that lost a daemon; the first line of a run after one
# that logged no end.
DIED, CRASHED = "died", "crash"
# A line that needs a person.
ALERT = "alert"

# The domain of a waiting message of which no recipient is known to wait.
UNTRIED = "(not yet tried)"

# Minutes: qshape's columns, each up to its limit; the last has none.
AGE_LIMITS = (5, 10, 20, 40, 80, 160, 320, 640, 1280)


# The ages of the queue over time: from so many seconds on.
AGES = (0, 600, 4800, 19_200, 76_800)


class Stream(NamedTuple):
    """The log of one queue, from its first stamp to its last."""

    host: str
    queue: str
    first: float
    last: float


class Received(NamedTuple):
    """Messages that came in during a bin."""

    bin: int
    messages: int
    bytes: int | None


class Attempts(NamedTuple):
    """Deliveries that ended in a bin. result: success, failure or deferral. class_: of the trouble, '' for none."""

    bin: int
    result: str
    class_: str
    number: int


class Day(NamedTuple):
    """What happened in a day of the log."""

    received: int = 0
    success: int = 0
    failure: int = 0
    deferral: int = 0

    @property
    def attempts(self) -> int:
        return self.success + self.failure + self.deferral


class Delays(NamedTuple):
    """Times of deliveries that succeeded; those in the queue are None where no message's birth is known."""

    bin: int
    deliveries: int
    queue_p50: float | None
    queue_p90: float | None
    queue_p99: float | None
    queue_max: float | None
    delivery_p50: float
    delivery_p90: float
    delivery_p99: float
    delivery_max: float


class Domain(NamedTuple):
    """A recipient domain that had trouble. delays: deliveries that delay_sum is of."""

    domain: str
    delivered: int
    deferred: int
    failed: int
    bytes: int | None
    delays: int
    delay_sum: float | None
    delay_max: float | None


class Reason(NamedTuple):
    """Failures and deferrals of one class and RFC 3463 code ('' for none); example is one as logged."""

    class_: str
    code: str
    failures: int
    deferrals: int
    domains: int
    example: str | None


class Deferral(NamedTuple):
    """One of the most frequent reasons of a domain. deferrals, kinds: of the domain, all its reasons together."""

    domain: str
    deferrals: int
    kinds: int
    class_: str
    reason: str
    number: int
    last: float


class Origin(NamedTuple):
    """A sender or a uid. recent: its messages of the log's last day. origins: how many there are in all."""

    origin: str
    messages: int
    recent: int
    bytes: int
    delivered: int
    deferred: int
    failed: int
    origins: int

    @property
    def attempts(self) -> int:
        return self.delivered + self.deferred + self.failed


class Waiting(NamedTuple):
    """A part of what waits now.

    part: `all` and `recipients` (one row each), `domain`, `reason`, `oldest` (a message). state: of a recipient:
    deferred, flying (in flight), lost (at a crash), untried. recipients, messages, domains: how many it is of.
    oldest: birth of the oldest message. ages: how many recipients (for `all`: messages) are of each age, by AGE_LIMITS.
    """

    part: str
    domain: str
    state: str
    class_: str
    reason: str
    host: str
    queue: str
    id: int
    sender: str | None
    recipients: int
    messages: int
    domains: int
    oldest: float | None
    ages: tuple[int, ...]


class Channel(NamedTuple):
    """Deliveries in flight of a queue, `local` or `remote`, in a bin; bin is -1 for the whole time.

    seconds: time that was observed; average and peak: in flight; full: seconds at the limit (of the whole time only).
    """

    host: str
    queue: str
    channel: str
    bin: int
    seconds: float
    average: float
    peak: int
    limit: int
    full: float


class Episode(NamedTuple):
    """A time during which a destination was dead, deferring or slow; ended is None where it goes on at the end."""

    host: str
    queue: str
    domain: str
    kind: str
    began: float
    ended: float | None
    seconds: float
    attempts: int
    reason: str | None


class Conserved(NamedTuple):
    """The recipients of a queue, and what became of them."""

    host: str
    queue: str
    messages: int
    recipients: int
    delivered: int
    stored: int
    failed: int
    pending: int
    deleted: int
    difference: int
    repeated: int
    untried: int
    problems: int


class Problem(NamedTuple):
    """A message that does not add up."""

    host: str
    queue: str
    key: str
    sender: str | None
    born: float | None
    ended: float | None
    problem: str
    count_: int


class Alert(NamedTuple):
    """Lines of a kind (alert or warning) that say the same. queues: how many logged it, of which queue is one.

    total: lines of the kind in all.
    """

    kind: str
    lines: int
    queues: int
    queue: str
    last: float
    text: str
    total: int


class SmtpClient(NamedTuple):
    """Sessions of queue-smtpd with one client: see the report clients."""

    client: str
    name: str | None
    sessions: int
    tls: int
    messages: int
    bytes: int
    refused: int
    last: float | None


class Refusal(NamedTuple):
    """What queue-smtpd has refused for one reason: see the report refusals."""

    verb: str
    refusals: int
    clients: int
    addresses: int
    last: float | None
    example: str


class Guesses(NamedTuple):
    """AUTH failures of one user and client: see the report auth-failures."""

    auth_user: str
    client: str
    failures: int
    successes: int
    last: float | None


class HandedIn(NamedTuple):
    """Messages that a log of queue-smtpd has as accepted: see the report conservation-sessions."""

    host: str
    queue: str
    accepted: int
    not_in_log: int


class OnDemand(NamedTuple):
    """What is stored for a domain that fetches its mail: see the report ondemand."""

    domain: str
    stored: int
    delivered: int
    failed: int
    expired: int
    waiting: int
    p50: float | None
    runs: int
    last_run: float | None


class Stop(NamedTuple):
    """When a queue's queue-send last crashed (at the earliest), or lost a daemon; kind: CRASHED or DIED."""

    host: str
    queue: str
    kind: str
    last: float


class Quarantined(NamedTuple):
    """A line that could not be read."""

    host: str
    queue: str
    file: str
    line: int | None
    reason: str
    text: str | None


@dataclass(frozen=True)
class PageData:
    """All that is on a page.

    made: when it is made. built, build: when the lake's last build ended (ISO 8601), and its number. only: what the
    page is restricted to, in words. begin, end: the time that it covers; last: the end of the log, None where there is
    none. bins: of begin to end. today, yesterday: the last day of the log and the one before, None where it is shorter.
    backlog: by age (of AGES) the messages that wait at the end of each bin. lines: by
    "host/queue" the lines read, by kind. all_episodes: how many there are, of which episodes are the worst.
    """

    made: float
    built: str
    build: int
    only: str
    begin: float
    end: float
    last: float | None
    bins: Bins
    streams: Sequence[Stream] = ()
    lines: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    received: Sequence[Received] = ()
    attempts: Sequence[Attempts] = ()
    today: Day | None = None
    yesterday: Day | None = None
    delays: Sequence[Delays] = ()
    all_delays: Delays | None = None
    domains: Sequence[Domain] = ()
    reasons: Sequence[Reason] = ()
    deferrals: Sequence[Deferral] = ()
    senders: Sequence[Origin] = ()
    users: Sequence[Origin] = ()
    waiting: Sequence[Waiting] = ()
    backlog: Sequence[Sequence[int]] = ()
    channels: Sequence[Channel] = ()
    flights: Sequence[Channel] = ()
    episodes: Sequence[Episode] = ()
    all_episodes: int = 0
    conserved: Sequence[Conserved] = ()
    problems: Sequence[Problem] = ()
    alerts: Sequence[Alert] = ()
    stops: Sequence[Stop] = ()
    quarantined: Sequence[Quarantined] = ()
    clients: Sequence[SmtpClient] = ()
    refusals: Sequence[Refusal] = ()
    guesses: Sequence[Guesses] = ()
    handed_in: Sequence[HandedIn] = ()
    on_demand: Sequence[OnDemand] = ()

    def part(self, name: str) -> list[Waiting]:
        """Return the rows of a part of what waits now."""
        return [row for row in self.waiting if row.part == name]

    def sum_attempts(self, result: str) -> int:
        return sum(row.number for row in self.attempts if row.result == result)
