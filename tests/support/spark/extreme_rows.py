"""Rows such as a damaged log or a wrong clock leaves: every report must answer, and each engine the same."""

from decimal import Decimal

from support.spark.lake_rows import LakeRows

# The earliest and the latest stamp that 64 bits of nanoseconds hold, nearly: 1677 and 2262.
EARLY, LATE = -9_223_372_035, 9_223_372_035
NOW = 1_700_000_000
LIMIT = 2**31 - 1


def extreme_rows() -> LakeRows:
    """Return rows with stamps from 1677 to 2262, all kinds of texts, nulls, numbers at their limits, equal times."""
    rows = LakeRows()
    times = (EARLY, -3600, -1, 0, NOW, NOW + Decimal("0.000000001"), LATE)
    number = 0
    for first in times:
        for last in times:
            number += 1
            key = f"{number}.{first}"
            result = ("success", "failure", "deferral", "mangled")[number % 4]
            rows.message(key, first if number % 5 else None, last, first=first, recipients=number % 3)
            rows.delivery(key, "a@x.example", first, last, result, kind="network", code="4.4.1", delivery=number)
            rows.delivery(key, "a@x.example", first, last, "success", delivery=2**62)
            rows.sample(first, last, (number % 4, 2), (LIMIT, LIMIT), "h")
    for first in times:
        rows.message(f"p.{first}", first, None, host="h")
        rows.message(f"q.{first}", first, None, host="h")
        rows.delivery(f"q.{first}", "b@x.example", first, None, None)
    texts = ("", "a'b", "a\\b", "Ä@Ö.example", "a b", "\N{SNOWMAN}", "%_", "x@@y", "@", "a@B.Example")
    for i, text in enumerate(texts):
        rows.message(f"t{i}.1", NOW, NOW + 7200, sender=text, host="text", queue=text.replace("/", "") or "q")
        for at, result in ((1, "deferral"), (1, "deferral"), (1, "deferral"), (2, "failure"), (3, "success")):
            rows.delivery(
                f"t{i}.1", f"r@{text}", NOW + at, NOW + at + 70, result, reason=text,
                kind=("", "network", "rate")[i % 3], host="text", queue=text.replace("/", "") or "q", delivery=i,
            )  # fmt: skip
    # What may be null is.
    rows.message("n.1", None, NOW, first=NOW - 1, sender=None, size=None, host="null")
    rows.delivery("n.1", "c@x", NOW - 1, NOW, "failure", host="null")
    rows.rows["deliveries"][-1].update(reason=None, template=None, code=None)
    rows.rows["deliveries"][-1]["class"] = None
    rows.sample(NOW, NOW + 1, (0, 0), (0, 0), "null")
    rows.rows["intervals"][-1].update(remote_now=None, remote_limit=None)
    return rows
