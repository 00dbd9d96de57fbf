"""A page's data without Spark: a month of made-up rows, and texts that would like to be markup."""

import math
import random
from typing import Any

from spark.page.data import Moment, PageData

START = 1_772_323_200.0  # 2026-03-01
HOURS = 31 * 24
HOSTILE = "<script>document.title='taken'</script><img src=http://192.0.2.1/x onerror=alert(1)>\"'&\u202e\x00\x1b[31m"
CLASSES = ("network", "mailbox", "rate", "spam", "policy", "full", "system", "other", "tls")
BUCKETS = ("5", "10", "20", "40", "80", "160", "320", "640", "1280", "1280+")


def month(hostile: str = HOSTILE, seed: int = 1) -> PageData:
    """Return a page of all sections, with a hostile text wherever a log's text is shown."""
    rng = random.Random(seed)
    rows: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("hours", "days", "delays-hours", "classify-hours", "backlog", "concurrency-hours")
    }
    for hour in range(HOURS):
        at = START + 3600 * hour
        busy = 1.2 + math.sin((hour % 24 - 8) / 24 * 2 * math.pi) - 0.6 * (hour // 24 % 7 > 4)
        received = int(80 * max(busy, 0.1) * rng.uniform(0.8, 1.3))
        counts = {"received": received, "bytes": received * 40_000, "delivered": int(received * 1.3),
                  "deferred": int(received * rng.uniform(0, 0.5)), "bounced": received // 20}  # fmt: skip
        rows["hours"].append({"start": at, **counts})
        if hour % 24 == 0:
            rows["days"].append({"start": at, **{key: value * 24 for key, value in counts.items()}})
        slow = rng.lognormvariate(0, 0.7)
        rows["delays-hours"].append({"start": at, **_spread(0.05 * slow, 500 * slow), **_delivery(slow)})
        rows["classify-hours"] += [
            {"start": at, "class": name, "failures": rng.randrange(4), "deferrals": rng.randrange(30 - 3 * i)}
            for i, name in enumerate(CLASSES)
        ]
        ages = {bucket: int(rng.uniform(0, 40) * busy / (i + 1)) for i, bucket in enumerate(BUCKETS)}
        rows["backlog"].append({"at": at, "T": sum(ages.values()), **ages})
        for channel, limit in (("local", 10), ("remote", 60)):
            if not 300 < hour < 310:
                rows["concurrency-hours"].append(
                    {"start": at, **_flights("mx1", channel, limit, busy * limit / 4, min(limit, int(busy * limit)))}
                )
    rows["concurrency"] = [
        _flights("mx1", "local", 10, 2.5, 10),
        _flights("mx1", "remote", 60, 15.0, 60),
        _flights(hostile, "local", 5, 1.0, 2),
    ]
    rows["delays"] = [{"deliveries": 70_000, **_spread(0.05, 500), **_delivery(1.0)}]
    rows["classify"] = [
        {"class": name, "code": "4.4.1" if i else "", "failures": 300 // (i + 1), "deferrals": 4000 // (i + 1),
         "domains": 30, "example": f"Connected_to_192.0.2.{i}_but_{hostile}/"}
        for i, name in enumerate(CLASSES)
    ]  # fmt: skip
    names = [hostile, "", *(f"d{i}.example" for i in range(34)), "x" * 300 + ".example"]
    rows["domains"] = [
        {"domain": name, "delivered": 1000 - 20 * i, "bytes": 10**7, "deferred": 300 // (i + 1),
         "bounced": 40 // (i + 1), "delay_avg": 30.5, "delay_max": 90_000.0 if i else None}
        for i, name in enumerate(names[:20])
    ]  # fmt: skip
    rows["destinations"] = [_episode(rng, name, hostile) for name in names for _ in range(rng.randrange(1, 5))]
    rows["conservation"] = [_conserved("mx1", 0), _conserved(hostile, 2)]
    rows["conservation-messages"] = [
        {"host": "mx1", "queue": "main", "key": "401.1772323200000000000", "sender": hostile, "born": START,
         "ended": None, "problem": "unsettled", "count": 2}
    ]  # fmt: skip
    rows["quarantine"] = [
        {"host": "mx1", "queue": "main", "file": hostile, "line": 7, "reason": "cut short", "text": hostile}
    ]
    shape = [{"domain": name, "T": sum(range(10)), **{bucket: i for i, bucket in enumerate(BUCKETS)}}
             for name in ("TOTAL", hostile, "d1.example", "(unknown)")]  # fmt: skip
    lines = {"mx1/main": {"new": 9000, "info": 9000, "end": 8990, "done": 12_000, "exiting": 3, "quarantine": 4},
             f"{hostile}/main": {"alert": 1}}  # fmt: skip
    meanings = {"domains": {"delivered": "deliveries that succeeded"}}
    moments = [Moment("When it was longest", START + 7 * 86400, shape), Moment("At the end", START + 31 * 86400, shape)]
    return PageData("2026-04-01T00:00:05Z", 3, hostile, START, START + 3600 * HOURS, rows, meanings, lines, moments)


def _spread(median: float, longest: float) -> dict[str, float]:
    return {"queue_p50": median, "queue_p90": median * 40, "queue_p99": longest / 2, "queue_max": longest * 10}


def _delivery(slow: float) -> dict[str, float]:
    return {f"delivery_{name}": 0.2 * slow * 4**i for i, name in enumerate(("p50", "p90", "p99", "max"))}


def _flights(host: str, channel: str, limit: int, average: float, peak: int) -> dict[str, Any]:
    return {"host": host, "queue": "main", "channel": channel, "seconds": 3600.0, "average": max(average, 0.1),
            "peak": max(peak, 1), "limit": limit, "at_limit": 36.0, "at_limit_percent": 1.0}  # fmt: skip


def _episode(rng: random.Random, domain: str, hostile: str) -> dict[str, Any]:
    began = START + rng.uniform(0, 28 * 86400)
    lasted = rng.lognormvariate(9, 1.5)
    kind = rng.choice(("dead", "dead", "deferring", "slow"))
    ended = None if rng.random() < 0.05 else began + lasted
    return {"host": "mx1", "queue": "main", "domain": domain, "kind": kind, "began": began, "ended": ended,
            "seconds": lasted, "attempts": 12, "messages": 9, "held": 40,
            "reason": None if kind == "slow" else f"timed_out_{hostile}"}  # fmt: skip


def _conserved(host: str, difference: int) -> dict[str, Any]:
    return {"host": host, "queue": "main", "messages": 60_000, "recipients": 80_000, "delivered": 78_000 - difference,
            "failed": 1_900, "pending": 100, "deleted": 0, "difference": difference, "repeated": 3, "untried": 0,
            "problems": difference}  # fmt: skip
