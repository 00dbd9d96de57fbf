"""A page's data without a lake: a month of made-up rows, and texts that would like to be markup."""

import math
import random

from queue_report.page.data import (
    AGES,
    UNTRIED,
    Alert,
    Attempts,
    Channel,
    Conserved,
    Day,
    Deferral,
    Delays,
    Domain,
    Episode,
    Guesses,
    Origin,
    PageData,
    Problem,
    Quarantined,
    Reason,
    Received,
    Refusal,
    SmtpClient,
    Stream,
    Waiting,
)
from queue_report.page.scales import make_bins

START = 1_772_323_200.0  # 2026-03-01
DAY = 86_400.0
END = START + 31 * DAY
HOSTILE = "<script>document.title='taken'</script><img src=http://192.0.2.1/x onerror=alert(1)>\"'&\u202e\x00\x1b[31m"
CLASSES = ("network", "mailbox", "rate", "spam", "policy", "full", "system", "other", "tls")
NO_AGES = (0,) * 10


def month(hostile: str = HOSTILE, seed: int = 1) -> PageData:
    """Return the data of a page of all sections, with a hostile text wherever a log's text is shown."""
    rng = random.Random(seed)
    bins = make_bins(START, END)
    received: list[Received] = []
    attempts: list[Attempts] = []
    delays: list[Delays] = []
    flights: list[Channel] = []
    backlog: list[list[int]] = [[] for _ in AGES]
    for i in range(bins.number):
        hour = i * bins.length / 3600
        busy = 1.2 + math.sin((hour % 24 - 8) / 24 * 2 * math.pi) - 0.6 * (hour // 24 % 7 > 4)
        messages = int(80 * max(busy, 0.1) * rng.uniform(0.8, 1.3))
        received.append(Received(i, messages, messages * 40_000))
        attempts.append(Attempts(i, "success", "", int(messages * 1.3)))
        attempts += [Attempts(i, "deferral", name, rng.randrange(30 - 3 * j)) for j, name in enumerate(CLASSES)]
        attempts += [Attempts(i, "failure", name, rng.randrange(4)) for name in CLASSES]
        slow = rng.lognormvariate(0, 0.7)
        delays.append(_delays(i, slow))
        for j, age in enumerate(backlog):
            age.append(max(int(rng.uniform(0, 40) * busy / (j + 1)), 0))
        if not 100 < i < 104:
            flights += [_flight("mx1", i, channel, limit, busy) for channel, limit in (("local", 10), ("remote", 60))]
    names = [hostile, "", *(f"d{i}.example" for i in range(34)), "x" * 300 + ".example"]
    channels = [_flight(host, -1, "remote", 60, 1.0) for host in ("mx1", hostile)]
    return PageData(
        made=END + 600, built="2026-04-01T00:00:05Z", build=3, only=hostile, begin=START, end=END, last=END, bins=bins,
        streams=[Stream("mx1", "main", START, END), Stream(hostile, "main", START, END - 3 * DAY)],
        lines={"mx1/main": {"new": 9000, "info": 9000, "end": 8990, "done": 12_000, "exiting": 3, "quarantine": 4},
               f"{hostile}/main": {"alert": 1, "crash": 2, "died": 1}},
        received=received, attempts=attempts, today=Day(100, 200, 80, 30), yesterday=Day(110, 240, 30, 30),
        delays=delays, all_delays=_delays(0, 1.0),
        domains=[Domain(name, 1000 - 20 * i, 300 // (i + 1), 40 // (i + 1), 10**7, 100, 3050.0, 90_000.0 if i else None)
                 for i, name in enumerate(names[:20])],
        reasons=[Reason(name, "4.4.1" if i else "", 300 // (i + 1), 4000 // (i + 1), 30,
                        f"Connected_to_192.0.2.{i}_but_{hostile}/") for i, name in enumerate(CLASSES)],
        deferrals=[Deferral(name, 300, 2, "network", f"timed_out_{hostile}", number, END - 60)
                   for name in names[:12] for number in (200, 100)],
        senders=[Origin(hostile, 20_000, 18_000, 10**9, 100, 10, 50, 40), Origin("b@c.d", 10, 1, 100, 9, 1, 0, 40)],
        users=[Origin("33", 20_000, 18_000, 10**9, 100, 10, 50, 2), Origin("1000", 10, 1, 100, 9, 1, 0, 2)],
        waiting=_queue(hostile), backlog=backlog, channels=channels, flights=flights,
        episodes=[_episode(rng, name, hostile) for name in names for _ in range(rng.randrange(1, 5))], all_episodes=100,
        conserved=[_conserved("mx1", 0), _conserved(hostile, 2)],
        problems=[Problem("mx1", "main", "401.1772323200000000000", hostile, START, None, "unsettled", 2)],
        alerts=[Alert("alert", 2, 1, f"{hostile}/main", END - 3600, hostile, 2),
                Alert("warning", 40_000, 9, "mx1/main", END - 60, f"unable to open {hostile}", 40_000)],
        clients=[SmtpClient(hostile, hostile, 9, 1, 10**6, 10**12, 3, END - 60),
                 SmtpClient("(unknown)", None, 1, 0, 0, 0, 0, END)],
        refusals=[Refusal(hostile, 40_000, 9, 300, END - 60, f"550_5.1.1_{hostile}")],
        guesses=[Guesses(hostile, hostile, 900, 1, END - 60)],
        quarantined=[Quarantined("mx1", "main", hostile, 7, "cut short", hostile)],
    )  # fmt: skip


def _delays(i: int, slow: float) -> Delays:
    queue = (0.05 * slow, 2 * slow, 250 * slow, 5000 * slow)
    return Delays(i, 70, *queue, *(0.2 * slow * 4**j for j in range(4)))


def _flight(host: str, i: int, channel: str, limit: int, busy: float) -> Channel:
    average = max(busy * limit / 4, 0.1)
    return Channel(host, "main", channel, i, 3600.0, average, max(min(limit, int(busy * limit)), 1), limit, 900.0)


def _episode(rng: random.Random, domain: str, hostile: str) -> Episode:
    began = START + rng.uniform(0, 28 * DAY)
    lasted = rng.lognormvariate(9, 1.5)
    kind = rng.choice(("dead", "dead", "deferring", "slow"))
    ended = None if rng.random() < 0.05 else began + lasted
    return Episode("mx1", "main", domain, kind, began, ended, lasted, 12,
                   None if kind == "slow" else f"timed_out_{hostile}")  # fmt: skip


def _queue(hostile: str) -> list[Waiting]:
    ages = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    old = END - 6 * 3600
    return [
        Waiting("all", "", "", "", "", "", "", 0, "", 55, 55, 0, old, ages),
        Waiting("recipients", "", "", "", "", "", "", 0, "", 60, 0, 4, None, NO_AGES),
        *(Waiting("domain", name, "", "", "", "", "", 0, "", 15, 14, 1, old, ages)
          for name in (hostile, "d1.example", "", UNTRIED)),
        Waiting("reason", hostile, "deferred", "network", f"late_{hostile}", "", "", 0, "", 45, 40, 3, old, NO_AGES),
        Waiting("reason", UNTRIED, "untried", "", "", "", "", 0, "", 15, 15, 1, old, NO_AGES),
        Waiting("oldest", hostile, "deferred", "network", hostile, "mx1", "main", 401, hostile, 2, 1, 2, old, NO_AGES),
        Waiting("oldest", UNTRIED, "untried", "", "", "mx1", "main", 402, None, 1, 1, 1, old, NO_AGES),
    ]  # fmt: skip


def _conserved(host: str, difference: int) -> Conserved:
    left = 78_000 - difference
    return Conserved(host, "main", 60_000, 80_000, left, 0, 1_900, 100, 0, difference, 3, 0, difference)
