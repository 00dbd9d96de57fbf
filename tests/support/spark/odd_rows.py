"""A lake of rows as they never come together: many at the same time, names with all that names may have, and nulls."""

import random
from collections.abc import Iterator
from decimal import Decimal

from queue_smtp.server_replies import BAD_CREDENTIALS, QUEUE_UNAVAILABLE, RELAYING_DENIED
from queue_smtpd.sessions import session_log as log
from queue_wire.ids import pack_long_id
from support.spark.lake_rows import LakeRows, Seconds, day, ns

# 2026-11-20 09:00:00 UTC.
T = 1_795_165_200

HOSTS = ("mx1", "it's", "a[1]*", "b%20=c")
RECIPIENTS = (
    "a@x.example", "B@X.example", "a@y.example", "joe", "", "o'hara@x.example", "b\\n@x.example", "$1@y.example",
    "ä@ü.example", "日本@例.example", "two@at@x.example", "%x@y.example", '"q"@x.example',
)  # fmt: skip
SENDERS = ("ann@here.example", "Bob@Here.example", "", "#@[]", "postmaster", "c\\d'e@f.example", "ß@ö.example", None)
REASONS = (
    ("", "", ""),
    ("No._(#5.1.1)/", "5.1.1", "mailbox"),
    ("Sorry,_I_wasn't_able_to_connect._(#4.4.1)/", "4.4.1", "network"),
    ("192.0.2.1_said:_450_4.7.1_<a@b>:_'grey'_\\1_$1/", "4.7.1", "rate"),
    ("ünïcode_日本_4.2.2", "4.2.2", "full"),
)
TAKEN = "192.0.2.{0}_accepted_message./Remote_host_said:_250_2.0.0_Ok:_queued_as_4Gk2Xn3T4M{0}/did_{0}+0+1/5kB_'x'[y]"
RESULTS = ("success", "success", "success", "deferral", "deferral", "failure", "mangled", "lost")


def odd_rows(seed: int = 1, messages: int = 200) -> LakeRows:
    """Return the same rows for the same seed."""
    chance = random.Random(seed)
    rows = LakeRows()
    for number in range(messages):
        host, queue = chance.choice(HOSTS), chance.choice("qr")
        key = f"{number % 40 + 1}.{number}"
        birth = T + chance.choice((0, 0, 1, 3600, 86400, chance.randrange(200_000)))
        took = chance.choice((0, 1, 100, Decimal("0.000000001"), Decimal("-0.5"), chance.randrange(100_000)))
        waits, known = chance.random() < 0.2, chance.random() < 0.9
        counts = (chance.randrange(3), chance.randrange(2), chance.randrange(3))
        rows.message(
            key, birth if known else None, None if waits else birth + took, first=birth,
            sender=chance.choice(SENDERS) if known else None, host=host, queue=queue, counts=counts,
            size=chance.choice((0, 100, 2**40, 2**61)) if known else None, recipients=chance.randrange(3),
            outcome=chance.choice(("delivered", "bounced", "partly", "lost", "deleted")),
        )  # fmt: skip
        last = rows.rows["pending" if waits else "messages"][-1]
        last["info_ns"] = last["birth_ns"]
        if known:
            last.update(uid=chance.choice((0, 1000, 1001)), qp=chance.randrange(30_000))
            last["sender"] = last["sender"] or ""
        for delivery in range(chance.randrange(5)):
            _add_delivery(rows, chance, key, birth, delivery, host, queue)
    for number in range(messages):
        at = T + 60 * number
        until = at + chance.choice((0, 1, 60, 10_000, -5))
        now = (chance.randrange(6), 5), (chance.randrange(21), 20)
        rows.sample(at, until, *now, HOSTS[number % 4])
    for number in range(8):
        time_ns = None if number % 2 else ns(T + 1800 * number)
        rows.rows["quarantine"].append({
            "host": HOSTS[number % 4], "queue": "q", "file": f"{number}/current", "line": number or None,
            "time_ns": time_ns, "reason": "no event", "text": "\ufffd'\\", "date": time_ns and day(T + 1800 * number),
        })  # fmt: skip
        rows.rows["alerts"].append({
            "host": HOSTS[number % 4], "queue": f"q{number % 3}", "time_ns": ns(T + 1800 * number),
            "kind": ("alert", "warning")[number % 2], "text": f"unable to open \u00e9'\\{number}: no space",
            "template": ("unable_to_open_\u00e9'\\N:_no_space", "")[number // 6], "date": day(T + 1800 * number),
        })  # fmt: skip
    for number, host in enumerate(HOSTS):
        rows.server_log(_server_log(chance, rows, number), host=host, queue=f"s'{number}")
    return rows


def _server_log(chance: random.Random, rows: LakeRows, process: int) -> Iterator[tuple[Seconds, bytes]]:
    """Yield lines of queue-smtpd, of which some are missing."""
    born = [row for row in rows.rows["messages"] if row["host"] == HOSTS[process]]
    for number in range(1, 30):
        at = T + 3600 * chance.randrange(20)
        client = chance.choice(("192.0.2.1", "2001:db8::1", "", "198.51.100.9"))
        said = [log.connect(number % 7, client, number, b"n'\xff", "192.0.2.9", chance.choice((25, 587)))]
        said += [log.tls_started(number % 7, b"TLSv1.3", b"AES"), log.tls_failed(number % 7, "\xfcml"), b"smtp 3: x"]
        said += [log.authenticated(number % 7, chance.choice((b"ann", b"jo'e")), b"PLAIN")]
        for user in (b"ann", b"jo'e", b""):
            said.append(
                log.refused(
                    number % 7, b"AUTH " + user, chance.choice((BAD_CREDENTIALS, QUEUE_UNAVAILABLE)), "192.0.2.1"
                )
            )
        row = chance.choice(born)
        sender = (row["sender"] or "").encode()
        long_id = pack_long_id(row["id"], row["first_ns"] // 1000 - chance.randrange(2) if row["first_ns"] > 0 else 0)
        said += [
            log.sender_accepted(number % 7, sender, 7),
            log.refused(number % 7, b"RCPT <\\>", RELAYING_DENIED, "192.0.2.1"),
        ]
        said += [log.queued(number % 7, chance.choice((long_id.encode(), b"none")), 2**62, number)]
        for what in (b"accepts message", b"refuses RCPT: 550 \xff no %d" % number, b"failed: ", b"", b"odd: x: y"):
            said.append(log.filtered(number % 7, chance.choice((b"inet:[::1]:9", b"/bin/x'y", b"")), what))
        said += [log.ended(number % 7, chance.choice(("QUIT", "stop")), chance.randrange(2), 4, 1)]
        yield from ((at + place, line) for place, line in enumerate(said) if chance.random() < 0.8)


def _add_delivery(
    rows: LakeRows, chance: random.Random, key: str, birth: Seconds, delivery: int, host: str, queue: str
) -> None:
    start = birth + chance.choice((0, 0, 1, chance.randrange(50_000)))
    done = start + chance.choice((0, 1, 70, Decimal("1.5"), Decimal("-0.000000007")))
    result = None if chance.random() < 0.05 else chance.choice(RESULTS)
    reason, code, kind = chance.choice(REASONS)
    if result == "success":
        reason, code, kind = TAKEN.format(chance.randrange(5)), "", ""
    rows.delivery(
        key, chance.choice(RECIPIENTS), start, None if result == "lost" else done, result, delivery=delivery,
        reason=reason, code=code, kind=kind, channel=chance.choice(("local", "remote")), host=host, queue=queue,
    )  # fmt: skip
    if result in ("success", "lost", "mangled"):
        row = rows.rows["deliveries"][-1]
        row["template"] = "report_mangled" if result == "mangled" else None
        if result != "success":
            row["reason"] = None
