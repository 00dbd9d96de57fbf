"""What a simulated queue holds: messages and deliveries in flight, what they are called, and their rows."""

import random
from dataclasses import dataclass, field, replace

from support.spark.logs.log_rows import DeliveryRow, MessageRow

SENDERS = (
    *("ann@example.org", "ann@example.org", "bob@Example.NET", "list-owner@lists.example-@[]", "", "#@[]"),
    *("a>_qp_7_uid_8", "a>", "<b@c>", "x>_qp_@h", ">", "no-at", "bytes_9_from_<q@r>_qp_1_uid_2"),
    "s" * 880 + "@long.example",
)
RECIPIENTS = (
    *("ann@example.org", "bob@EXAMPLE.net", "carl@d1.example", "dora@d2.example", "eve@d2.example", "", "no-at"),
    *("a@b@C.example", "trailing@", "@", "to_remote_x@d3.example", "msg:@d4.example", "r" * 900 + "@long.example"),
)
SUCCESSES = (
    *("", "did_1+0+0/", "success:_failure:"),
    "192.0.2.1_accepted_message./Remote_host_said:_250_2.0.0_Ok:_queued_as_5F/",
)
TROUBLES = (
    *("", "Connected_to_192.0.2.9_but_greeting_failed./", "Sorry,_I_couldn't_find_any_host_named_x.example._(#5.1.2)/"),
    *("192.0.2.7_does_not_like_recipient./Remote_host_said:_550_5.7.1_<a@b>:_no/", "delivery:_5:_x", "x" * 2600),
)
ODD = (
    *("dest d1.example dead: probe in 60 s, 4 recipients deferred", "dest d1.example alive: 9 recipients"),
    *("inflow slow: 900 messages wait in todo, the next one for 4 s", "inflow free: there is room on /var/queue again"),
    *("alert: unable to reread controls: control/me: no such file", "alert: ", "warning: a\rlone carriage return"),
    *("warning: unable to clean up msg 401; will try again later", "alert: end msg 401", "warning: delivery 1: x"),
)


def domain_of(recipient: str) -> str:
    """What follows the last @, in lower case."""
    return recipient[recipient.rindex("@") + 1 :].lower() if "@" in recipient else ""


@dataclass(eq=False)
class Mail:
    """A message in the queue. sender and so on are None where the log began after it was classified."""

    id: int
    qp: int | None = None
    uid: int | None = None
    sender: str | None = None
    bytes: int | None = None
    birth_ns: int | None = None
    info_ns: int | None = None
    first_ns: int = 0
    life: int = 1  # Of those with its number that began with that stamp.
    waiting: list[tuple[str, str]] = field(default_factory=list)
    tried: set[tuple[str, str]] = field(default_factory=set)
    flying: int = 0
    successes: int = 0
    failures: int = 0
    deferrals: int = 0
    bounce_qp: int | None = None
    bounce_of: str | None = None
    held: bool = False
    fate: str | None = None

    @property
    def key(self) -> str:
        """Its name, which no other message of the stream ever has."""
        return f"{self.id}.{self.first_ns}" + (f".{self.life}" if self.life > 1 else "")

    @property
    def settled(self) -> bool:
        """Nothing more is to be tried."""
        return not (self.waiting or self.flying or self.held)

    def outcome(self) -> str:
        """What became of it, once it has ended."""
        if self.fate:
            return self.fate
        if not self.failures and self.bounce_qp is None:  # Where a failure was lost, a bounce still tells of it.
            return "delivered"
        return "partly" if self.successes else "bounced"

    def row(self, host: str, queue: str, done_ns: int | None, outcome: str | None) -> MessageRow:
        """Return its row."""
        return MessageRow(
            *(host, queue, self.key, self.id, self.qp, self.uid, self.sender, self.bytes, self.birth_ns),
            *(self.info_ns, done_ns, self.first_ns, self.successes, self.failures, self.deferrals, len(self.tried)),
            *(self.bounce_qp, self.bounce_of, outcome),
        )


@dataclass(eq=False)
class Flight:
    """A delivery that has started. `known`: the message, as the log knew it by then."""

    mail: Mail
    number: int
    channel: str
    recipient: str
    start_ns: int

    def __post_init__(self) -> None:
        self.known = replace(self.mail)

    def row(self, host: str, queue: str, done_ns: int | None, result: str | None, reason: str | None) -> DeliveryRow:
        """Return its row."""
        then = self.known
        return DeliveryRow(
            *(host, queue, self.mail.key, self.mail.id, self.number, self.channel, self.recipient),
            *(domain_of(self.recipient), self.start_ns, done_ns, result, reason),
            qp=then.qp, uid=then.uid, sender=then.sender, bytes=then.bytes, birth_ns=then.birth_ns,
            info_ns=then.info_ns,
        )  # fmt: skip


def some_recipients(rng: random.Random) -> list[tuple[str, str]]:
    """Return channel and address of up to four recipients, one perhaps twice. An address has one channel."""
    chosen = [rng.choice(RECIPIENTS) for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4)))]
    return [("local" if address in ("", "no-at", "ann@example.org") else "remote", address) for address in chosen]
