"""Lakes to look at on a page: a quiet hour, and a disaster. Made-up rows; one seed makes the same, always."""

import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from support.spark.lake_rows import NANO, LakeRows, Row

HOUR, DAY = 3600.0, 86400.0

# 2026-11-20 16:40 UTC, a Friday: the end of the logs.
END = datetime(2026, 11, 20, 16, 40, tzinfo=UTC).timestamp()

OK = "192.0.2.7_accepted_message./Remote_host_said:_250_2.0.0_Ok:_queued_as_4F1A2/"
UNKNOWN = "192.0.2.9_does_not_like_recipient./Remote_host_said:_550_5.1.1_ADDRESS:_User_unknown/Giving_up_on_IP./"
GREYLISTED = "IP_does_not_like_recipient./Remote_host_said:_450_4.7.1_ADDRESS:_Greylisted,_try_again_in_N_seconds/"
SPAM = "IP_failed_after_I_sent_the_message./Remote_host_said:_554_5.7.1_Message_refused:_it_looks_like_spam_(score_N)/"
THROTTLED = (
    "IP_does_not_like_recipient./Remote_host_said:_451_4.7.650_The_mail_server_HOST_has_been_temporarily_rate_limited/"
)
REFUSED = "Sorry,_I_wasn't_able_to_establish_an_SMTP_connection._(#4.4.1)/"
NAMESERVER = "CNAME_lookup_failed_temporarily._(#4.4.3)/"


@dataclass(frozen=True)
class Verdict:
    """What a delivery reports."""

    result: str
    reason: str
    code: str = ""
    class_: str = ""


ACCEPTED = Verdict("success", OK)
NOBODY = Verdict("failure", UNKNOWN, "5.1.1", "mailbox")
LATER = Verdict("deferral", GREYLISTED, "4.7.1", "rate")
SPAMMY = Verdict("failure", SPAM, "5.7.1", "spam")
SLOWER = Verdict("deferral", THROTTLED, "4.7.650", "rate")
AWAY = Verdict("deferral", REFUSED, "4.4.1", "network")
NAMELESS = Verdict("deferral", NAMESERVER, "4.4.3", "network")


class Scene:
    """A lake's rows, message by message."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lake = LakeRows()
        self._number = 0

    def mail(
        self, born: float, sender: str, tries: dict[str, list[tuple[float, Verdict]]], *, uid: int = 1000,
        size: int | None = None, host: str = "mx1", end: float = END,
    ) -> None:  # fmt: skip
        """Add a message with the attempts (start, verdict) of each recipient; those after the end do not count."""
        self._number += 1
        number = 262_144 + self._number % 90_000
        key = f"{number}.{_ns(born)}"
        known: Row = {
            "host": host, "queue": "main", "key": key, "id": number, "sender": sender, "uid": uid,
            "qp": 4000 + self._number, "bytes": size or int(self.rng.lognormvariate(8.5, 1.2)),
            "birth_ns": _ns(born), "info_ns": _ns(born + 0.01),
        }  # fmt: skip
        counts = {"successes": 0, "failures": 0, "deferrals": 0}
        last, settled, tried = born, 0, 0
        for recipient, attempts in tries.items():
            done = False
            tried += bool(attempts) and attempts[0][0] < end
            for start, verdict in attempts:
                took = self.rng.lognormvariate(-1, 0.8) + (20 if verdict is AWAY else 0)
                if start >= end:
                    break
                self._deliver(known, recipient, start, took, verdict, start + took >= end)
                if start + took >= end:
                    break
                counts[{"success": "successes", "failure": "failures"}.get(verdict.result, "deferrals")] += 1
                last = max(last, start + took)
                done = done or verdict.result != "deferral"
            settled += done
        row: Row = {**known, **counts, "first_ns": _ns(born), "recipients": tried}
        if settled == len(tries):
            outcome = "delivered" if not counts["failures"] else "partly" if counts["successes"] else "bounced"
            date = datetime.fromtimestamp(last, UTC).date()
            self.lake.rows["messages"].append({**row, "done_ns": _ns(last), "outcome": outcome, "date": date})
        else:
            self.lake.rows["pending"].append({**row, "what": "message"})

    def _deliver(self, known: Row, recipient: str, start: float, took: float, verdict: Verdict, flies: bool) -> None:
        row: Row = {
            **known, "delivery": self.rng.randrange(1, 60_000), "recipient": recipient, "start_ns": _ns(start),
            "domain": recipient.rpartition("@")[2].lower() if "@" in recipient else "",
            "channel": "remote" if "@" in recipient else "local",
        }  # fmt: skip
        if flies:
            self.lake.rows["pending"].append({**row, "what": "delivery", "open": True})
            return
        end: Row = {
            "done_ns": _ns(start + took), "result": verdict.result, "reason": verdict.reason, "code": verdict.code,
            "template": verdict.reason if verdict.result != "success" else None, "class": verdict.class_ or None,
            "date": datetime.fromtimestamp(start + took, UTC).date(),
        }  # fmt: skip
        self.lake.rows["deliveries"].append({**row, **end})

    def samples(self, host: str, begin: float, end: float, local: int, remote: float, limits: tuple[int, int]) -> None:
        """Add intervals of some seconds with about so many deliveries in flight."""
        at = begin
        while at < end:
            until = min(at + self.rng.uniform(5, 40), end)
            self.lake.rows["intervals"].append(
                {
                    "host": host, "queue": "main", "at_ns": _ns(at), "until_ns": _ns(until),
                    "local_now": min(self.rng.randrange(local + 1), limits[0]), "local_limit": limits[0],
                    "remote_now": min(int(self.rng.gauss(remote, remote / 5)), limits[1]) if remote else 0,
                    "remote_limit": limits[1], "date": datetime.fromtimestamp(at, UTC).date(),
                }
            )  # fmt: skip
            at = until

    def retries(
        self, born: float, verdict: Verdict, until: float, then: Verdict | None = None
    ) -> list[tuple[float, Verdict]]:
        """Return attempts by qmail's schedule that get a verdict until a time, and another one after it."""
        found, at, skip = [], born + 0.1, 20
        while at < until:
            found.append((at, verdict))
            at = born + (math.floor(math.sqrt(max(at - born, 0))) + skip) ** 2
        return [*found, (at, then)] if then is not None else found


def _ns(seconds: float) -> int:
    return round(seconds * 1e6) * (NANO // 10**6)


def quiet_hour() -> LakeRows:
    """Return the lake of a small host whose log is one hour long: a few messages, all delivered."""
    scene = Scene(1)
    begin = END - HOUR
    for i in range(23):
        born = begin + scene.rng.uniform(0, 3400)
        sender = scene.rng.choice(("ann@here.example", "bob@here.example", "root@here.example"))
        if i == 5:
            tries = {"carl@there.example": [(born + 0.1, LATER), (END - 300, ACCEPTED)]}
        elif i % 4 == 0:
            tries = {"ann": [(born + 0.05, ACCEPTED)]}
        else:
            tries = {f"u{i}@{scene.rng.choice(('there.example', 'far.example'))}": [(born + 0.1, ACCEPTED)]}
        scene.mail(born, sender, tries, host="mx1")
    scene.samples("mx1", begin, END, 1, 0, (10, 20))
    for row in scene.lake.rows["intervals"][::7]:
        row["remote_now"] = scene.rng.randrange(4)
    scene.lake.counts = {"mx1/main": {"status": 52, "new": 23, "info": 23, "start": 24, "done": 24, "end": 23}}
    return scene.lake


def _traffic(scene: Scene, begin: float, hourly: float) -> Iterator[float]:
    at = begin
    while at < END:
        hour = at % DAY / HOUR
        busy = 0.25 + max(0.0, math.sin((hour - 6) / 15 * math.pi)) if 6 < hour < 21 else 0.25
        at += scene.rng.expovariate(hourly * busy / HOUR)
        yield min(at, END - 1)


def disaster(spam: int = 20_000, hourly: float = 160) -> LakeRows:
    """Return the lake of three days on two hosts that end badly: three dead destinations, a user whose web form sends
    `spam` messages, a crash, a daemon that was lost, and a queue full of mail."""
    scene = Scene(2)
    rng = scene.rng
    begin = END - 3 * DAY
    names = [f"{name}@here.example" for name in
             ("ann", "bob", "carl", "dora", "eve", "office", "billing", "no-reply", "root")]  # fmt: skip
    domains = [*(f"{name}.example" for name in ("there", "far", "bigmail", "webmail", "post")),
               *(f"d{i}.example" for i in range(40))]  # fmt: skip
    dead = {"partner-logistics.example": END - 31 * HOUR, "mail.university-of-somewhere.example": END - 9.5 * HOUR,
            "kiosk.example": END - 2.2 * HOUR}  # fmt: skip
    for born in _traffic(scene, begin, hourly):
        host = "mx1" if rng.random() < 0.7 else "mx2"
        sender = names[min(int(rng.expovariate(0.5)), len(names) - 1)]
        tries: dict[str, list[tuple[float, Verdict]]] = {}
        for _ in range(1 + (rng.random() < 0.2) * rng.randrange(1, 4)):
            which = rng.random()
            domain = domains[min(int(rng.expovariate(0.25)), len(domains) - 1)]
            if which < 0.15:
                tries[rng.choice(("ann", "bob", "carl"))] = [(born + 0.05, ACCEPTED)]
            elif which < 0.18:
                domain = rng.choice(list(dead))
                since = dead[domain]
                tries[f"u{rng.randrange(30)}@{domain}"] = (
                    [(born + 0.1, ACCEPTED)]
                    if born < since
                    else scene.retries(born, NAMELESS if domain == "kiosk.example" else AWAY, END)
                )
            elif which < 0.21:
                tries[f"x{rng.randrange(999)}@{domain}"] = [(born + 0.1, NOBODY)]
            elif which < 0.25:
                tries[f"u{rng.randrange(300)}@{domain}"] = scene.retries(born, LATER, born + 300, ACCEPTED)
            else:
                tries[f"u{rng.randrange(300)}@{domain}"] = [(born + 0.1, ACCEPTED)]
        scene.mail(born, sender, tries, host=host)
    for domain, since in dead.items():
        away = NAMELESS if domain == "kiosk.example" else AWAY
        for i in range(4):
            born = since + (END - since) * i / 5
            scene.mail(born, "office@here.example", {f"u{i}@{domain}": scene.retries(born, away, END)})
    # An outage two days ago that is over.
    for _ in range(60):
        born = END - 2 * DAY + rng.uniform(0, 4 * HOUR)
        attempts = scene.retries(born, AWAY, END - 2 * DAY + 5 * HOUR, ACCEPTED)
        scene.mail(born, "billing@here.example", {f"u{rng.randrange(99)}@bigmail.example": attempts})
    for i in range(spam):
        born = END - 7 * HOUR + 6.8 * HOUR * i / spam
        domain = rng.choice(("bigmail.example", "webmail.example", "post.example"))
        which = rng.random()
        attempts = (
            [(born + 5, ACCEPTED)] if which < 0.5
            else [(born + 5, NOBODY)] if which < 0.7 else [(born + 5, SPAMMY)] if which < 0.78
            else scene.retries(born, SLOWER, END)[:4] if which < 0.95
            else []
        )  # fmt: skip
        scene.mail(born, "newsletter@shop.here.example", {f"{rng.randrange(10**7)}@{domain}": attempts},
                   uid=33, size=41_000)  # fmt: skip
    crash = END - 26 * HOUR
    scene.samples("mx1", begin, crash, 2, 4, (10, 20))
    scene.samples("mx1", crash + 40 * 60, END - 7 * HOUR, 2, 4, (10, 20))
    scene.samples("mx1", END - 7 * HOUR, END, 2, 30, (10, 20))
    scene.samples("mx2", begin, END - 50 * HOUR, 2, 2, (10, 20))
    scene.samples("mx2", END - 49.9 * HOUR, END, 2, 2, (10, 20))
    lost = "oh no! lost queue-remote connection! dying..."
    full = "queue-todo: unable to take mail: 81920 bytes free on /var/queue, control/queueminfree wants 1048576"
    refuse = f"{full}; injectors refuse it until then"
    overdue = "has been past its lifetime since 2026-11-19T02:11:09Z: destination partner-logistics.example is dead"
    scene.lake.rows["alerts"] = [
        {"host": host, "queue": "main", "time_ns": _ns(END - ago), "kind": kind, "text": text,
         "template": re.sub(r"[0-9]+", "N", text).replace(" ", "_"),
         "date": datetime.fromtimestamp(END - ago, UTC).date()}
        for host, ago, kind, text in (
            ("mx1", 25.3 * HOUR, "alert", lost), ("mx1", 3 * HOUR, "alert", refuse), ("mx1", 2 * HOUR, "alert", refuse),
            *(("mx1", 600 * i, "warning", f"unable to open mess/{i}/26214{i}: input/output error; will try again later")
              for i in range(11)),
            ("mx2", 1 * HOUR, "warning", "queue-remote: unable to verify mx.there.example by MTA-STS: no certificate"),
            ("mx1", 0.5 * HOUR, "alert", f"msg 262150 (262150-kx09qwfz2) {overdue}"),
        )
    ]  # fmt: skip
    deliveries = scene.lake.rows["deliveries"]
    again = next(row for row in deliveries if row["host"] == "mx1" and row["birth_ns"] < _ns(crash) < row["start_ns"])
    flying: Row = {"start_ns": _ns(crash), "delivery": 60_001, "date": datetime.fromtimestamp(crash, UTC).date()}
    nothing: Row = {"done_ns": None, "result": "lost", "reason": None, "template": None, "code": "", "class": None}
    deliveries.append({**again, **flying, **nothing})
    scene.lake.rows["quarantine"] = [
        {"host": "mx1", "queue": "main", "file": "mx1/main/@400000006920.s", "line": 4411, "reason": "no stamp",
         "text": "panic: out of memory", "date": datetime.fromtimestamp(END, UTC).date()},
        {"host": "mx2", "queue": "main", "file": "mx2/main/current", "line": 17, "time_ns": _ns(END - 9000),
         "reason": "cut short", "text": "delivery 31: succ", "date": datetime.fromtimestamp(END, UTC).date()},
    ]  # fmt: skip
    scene.lake.counts = {
        "mx1/main": {"status": 90_120, "new": 29_000, "info": 29_000, "start": 44_100, "done": 44_080, "end": 26_000,
                     "exiting": 2, "crash": 1, "alert": 4, "warning": 11, "quarantine": 1, "died": 1},
        "mx2/main": {"status": 9_010, "new": 4_000, "info": 4_000, "start": 5_100, "done": 5_100, "end": 4_000,
                     "exiting": 1, "warning": 1, "quarantine": 1},
    }  # fmt: skip
    return scene.lake
