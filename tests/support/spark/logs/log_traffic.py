"""Mail of every fate for a suite whose log is to be read, and what those who received it have seen."""

import random
import socket
from collections import Counter
from pathlib import Path

from support.queues.letters import Letter, delivered_to, token_of
from support.servers.smtp.sink import Sink
from support.site import LOCAL, Site

BOUNCES = "bounces-"
# Fates of letters, and how many in a hundred have each. `never` and `dead` are left in the queue; the names of
# recipients are what makes the sink, and the .qmail files below, do what they do.
FATES = {
    "local": 24, "remote": 26, "both": 10, "refused": 12, "failing": 6, "soon": 8, "slow": 4, "double": 4, "null": 1,
    "triple": 1, "never": 2, "dead": 2,
}  # fmt: skip
STAY = ("never", "dead")


def make_letters(count: int, chance: random.Random) -> list[Letter]:
    """Return letters of all fates, in random order. Each recipient is named after its letter: `t7-soon`, `t7-2`."""
    fates = [fate for fate, part in FATES.items() for _ in range(-(-count * part // 100))]
    chance.shuffle(fates)
    return [_letter(f"t{number}-{fate}", fate, chance) for number, fate in enumerate(fates)]


def _letter(token: str, fate: str, chance: random.Random) -> Letter:
    taken = [f"{token}.{each}@host{chance.randrange(3)}.example" for each in range(chance.randint(1, 4))]
    refused = [f"refused-{token}.{each}@host{chance.randrange(3)}.example" for each in range(chance.randint(1, 2))]
    bounces = f"{BOUNCES}{token}@{LOCAL}"
    here = f"{token}@{LOCAL}"
    sender, recipients = {
        "local": (bounces, [here]),
        "remote": (bounces, taken),
        "both": (bounces, [here, *taken]),
        "refused": (bounces, refused + taken[1:]),
        "failing": (bounces, [f"fail-{here}"]),
        "soon": (bounces, [f"soon-{taken[0]}", *taken[1:]]),
        "slow": (bounces, [f"slow-{here}"]),
        "double": (refused[0], [f"fail-{here}"]),
        "null": ("", refused),
        "triple": ("#@[]", refused),
        "never": (bounces, [f"never-{taken[0]}", *taken[1:]]),
        "dead": (bounces, [f"{token}@dead.example"]),
    }[fate]
    return Letter(token, sender, recipients)


def prepare(site: Site, sink: Sink, closed: socket.socket) -> None:
    """Make the site treat such letters as their fates say; `closed` is bound to a port where nobody listens."""
    site.route(sink.port, dead=closed.getsockname()[1])
    site.control("retryschedule", "1s\n")
    site.control("retryjitter", "0\n")
    site.control("concurrencyremote", "20\n")
    site.mail.qmail(".qmail-fail-default", b"|echo no such thing; exit 100\n")
    # Deferred at the first attempt, delivered at the second.
    site.mail.qmail(".qmail-slow-default", b'|[ -e "seen-$DEFAULT" ] || { >"seen-$DEFAULT"; exit 111; }\n./Maildir/\n')


class Seen:
    """What receivers have seen: `times` each recipient got something, `sizes` of the messages in the queue, by token.

    `asked`: how often a server was asked for each remote recipient. `reports`: for each mailbox that bounces go to,
    the texts of those that came.
    """

    def __init__(self, site: Site, sink: Sink) -> None:
        self.times: Counter[str] = Counter()
        self.sizes: dict[str, int] = {}
        self.reports: dict[str, list[bytes]] = {}
        self.asked = Counter({address.decode(): times for address, times in sink.asked.items()})
        for message in site.delivered():
            recipient = delivered_to(message)
            self.times[recipient] += 1
            # Two lines were put on top of what the queue held.
            head, inner = message.split(b"\n", 2)[:2], message.split(b"\n", 2)[2]
            assert head[0].startswith(b"Return-Path: "), message[:200]
            if recipient.startswith((BOUNCES, "postmaster@")):
                self.reports.setdefault(recipient, []).append(inner)
            else:
                self.sizes[token_of(inner)] = len(inner)
        for taken in sink.taken:
            self.times.update(address.decode() for address in taken.recipients)
            self.sizes[token_of(taken.content)] = len(taken.content)


def left(site: Site) -> set[int]:
    """Return the numbers of the messages that are in the queue."""
    return {int(Path(name).name) for name in site.files() if name.split("/")[0] in ("todo", "info")}
