"""Where the demo's mail goes: domains, when they are in trouble, and what they answer."""

import random
from dataclasses import dataclass, field

HOUR, DAY = 3600.0, 86400.0
DAYS = 31

_FIRST = ("nord", "ost", "west", "alt", "neu", "stadt", "berg", "see", "hafen", "wald", "markt", "licht", "feld")
_SECOND = ("post", "mail", "werk", "druck", "bank", "verein", "schule", "klinik", "reisen", "garten", "bau", "netz")
_PEOPLE = ("anna", "ben", "carla", "david", "elif", "felix", "greta", "hanna", "ivan", "jana", "karl", "lena")
LARGE = ("bigmail.example", "postbox.example", "freemail.example")


@dataclass(frozen=True)
class Trouble:
    """From begin to end (seconds from the start) a domain is dead, deferring or slow."""

    kind: str
    begin: float
    end: float


@dataclass
class Destination:
    """A domain. weight: its share of the mail. pace: what a delivery takes, s. The others are probabilities."""

    name: str
    address: str
    weight: float
    pace: float
    unknown: float = 0.01
    grey: float = 0.0
    picky: float = 0.004
    troubles: list[Trouble] = field(default_factory=list)

    def trouble(self, at: float) -> str | None:
        """Return the kind of trouble at a time, None for none."""
        return next((one.kind for one in self.troubles if one.begin <= at < one.end), None)


def make_destinations(seed: int, number: int = 64) -> list[Destination]:
    """Return domains: few large ones, many small ones, one that no longer exists, and one mistyped."""
    rng = random.Random(f"places {seed}")
    names = [f"{first}{second}.example" for first in _FIRST for second in _SECOND]
    rng.shuffle(names)
    destinations = []
    for i, name in enumerate([*LARGE, *names[: number - len(LARGE)]]):
        address = f"{rng.choice(('192.0.2', '198.51.100', '203.0.113'))}.{rng.randrange(1, 250)}"
        destination = Destination(name, address, 1 / (i + 2) ** 0.9, rng.lognormvariate(-0.2, 0.6))
        if i >= len(LARGE):
            destination.grey = rng.choice((0, 0, 0, 0, 0.2, 0.5))
            destination.unknown = rng.choice((0.005, 0.01, 0.04))
        destinations.append(destination)
    _add_troubles(rng, destinations)
    always = [Trouble("dead", 0, DAYS * DAY)]
    destinations.append(Destination("gone.example", "192.0.2.251", 0.004, 30.0, troubles=always))
    destinations.append(Destination("bigmial.example", "", 0.006, 0.1))
    return destinations


def _add_troubles(rng: random.Random, destinations: list[Destination]) -> None:
    # The one that everybody remembers: a large domain is away for more than a day.
    destinations[1].troubles.append(Trouble("dead", 9 * DAY + 7.4 * HOUR, 10 * DAY + 10 * HOUR))
    destinations[0].troubles.append(Trouble("deferring", 17 * DAY + 8 * HOUR, 17 * DAY + 15.5 * HOUR))
    destinations[2].troubles.append(Trouble("slow", 23 * DAY + 9 * HOUR, 23 * DAY + 13 * HOUR))
    for destination in rng.sample(destinations[3:40], 22):
        for _ in range(rng.choice((1, 1, 2))):
            kind = rng.choice(("dead", "dead", "dead", "deferring", "slow"))
            begin = rng.uniform(0.2, DAYS - 1) * DAY
            length = min(rng.lognormvariate(9.4, 1.0), 2 * DAY)
            destination.troubles.append(Trouble(kind, begin, begin + length))


def person(rng: random.Random) -> str:
    return rng.choice(_PEOPLE) + rng.choice(("", "", f".{rng.choice(_PEOPLE)}", str(rng.randrange(1, 99))))


def answer(rng: random.Random, to: Destination, recipient: str, at: float, tries: int) -> tuple[str, str, float]:
    """Return the result of a delivery, its reason as the log has it, and how long it takes (s)."""
    said = f"{to.address}_does_not_like_recipient./Remote_host_said:_"
    quick = to.pace * rng.lognormvariate(0, 0.5)
    if not to.address:
        return "failure", f"Sorry,_I_couldn't_find_any_host_named_{to.name}._(#5.1.2)/", 0.2
    trouble = to.trouble(at)
    if trouble == "dead":
        return "deferral", "Sorry,_I_wasn't_able_to_establish_an_SMTP_connection._(#4.4.1)/", 30 + rng.random()
    if trouble == "deferring":
        return "deferral", f"{said}451_4.3.0_Temporary_system_problem,_try_again_later/", quick
    if trouble == "slow":
        quick = rng.uniform(70, 280)
    elif tries == 0 and rng.random() < to.grey:
        return "deferral", f"{said}450_4.2.0_<{recipient}>:_Recipient_address_rejected:_Greylisted/", quick
    results, texts, chances = zip(*_answers(to, recipient), strict=True)
    chosen = rng.choices(range(len(results)), chances)[0]
    if results[chosen] == "success":
        said = f"{to.address}_accepted_message./Remote_host_said:_250_2.0.0_Ok:_queued_as_"
        return "success", f"{said}{rng.getrandbits(40):010X}/", quick
    return results[chosen], texts[chosen], quick


def _answers(to: Destination, recipient: str) -> list[tuple[str, str, float]]:
    """Return results, reasons and how often each comes."""
    refused = f"{to.address}_does_not_like_recipient./Remote_host_said:_"
    given_up = f"/Giving_up_on_{to.address}./"
    failed = f"{to.address}_failed_after_I_sent_the_message./Remote_host_said:_"
    return [
        ("success", "", 0.982),
        ("failure", f"{refused}550_5.1.1_<{recipient}>:_User_unknown{given_up}", to.unknown),
        ("failure", f"{failed}554_5.7.1_Message_rejected_as_spam_by_content_scanner/", to.picky),
        ("failure", f"{failed}550_5.7.26_Unauthenticated_mail_is_not_accepted_due_to_DMARC_policy/", 0.001),
        ("failure", f"{refused}552_5.3.4_Message_size_exceeds_fixed_limit{given_up}", 0.001),
        ("deferral", f"{refused}452_4.2.2_<{recipient}>:_Mailbox_is_over_quota/", 0.004),
        ("deferral", f"Connected_to_{to.address}_but_connection_died._(#4.4.2)/", 0.003),
        ("deferral", f"Connected_to_{to.address}_but_TLS_handshake_failed:_certificate_expired._(#4.7.5)/", 0.001),
    ]
