"""What a simulated queue is made of: hosts, messages, their recipients, and destinations that are dead."""

from dataclasses import dataclass, field

from queue_report.demo.destinations import DAY, HOUR, Destination


@dataclass(frozen=True)
class Host:
    """daily: messages a day. away: the share of their recipients that is remote. newsletter: recipients of one.

    limits: of local and remote deliveries at once. crash: when the power goes, in seconds from the start.
    """

    name: str
    domain: str
    daily: float
    away: float
    limits: tuple[int, int] = (10, 40)
    newsletter: int = 0
    crash: float | None = None


HOSTS = (
    Host("mx1", "firma.example", 420, 0.12, limits=(10, 20), crash=19 * DAY + 10.72 * HOUR),
    Host("out1", "kunden.example", 380, 0.92, limits=(10, 12)),
    Host("lists", "verein.example", 90, 0.85, limits=(5, 16), newsletter=450),
)


@dataclass(eq=False)
class Mail:
    """A message in the queue. open: recipients that are neither delivered to nor failed."""

    id: int
    sender: str
    birth: float
    open: int
    failed: bool = False


@dataclass(eq=False)
class Job:
    """A recipient of a message. destination: None for a local one."""

    mail: Mail
    recipient: str
    destination: Destination | None
    tries: int = 0

    @property
    def channel(self) -> int:
        return 0 if self.destination is None else 1


@dataclass
class Dead:
    """A destination that nobody answers at: seconds to the next probe, and what waits for it."""

    pause: float
    parked: list[Job] = field(default_factory=list)
