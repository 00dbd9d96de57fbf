"""What the page says first, in words: what is wrong now, what has changed, and how much waits. Pure.

A finding is a sentence about numbers that stand further down. Each function below answers one question, and returns the
sentences that a person would want to read; none where all is as always.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from queue_report.page.data import ALERT, CRASHED, DIED, Day, Origin, PageData
from queue_report.page.markup import log_text, name_text, queue_text, reply_text, time_text
from queue_report.page.scales import DAY, HOUR, MINUTE, duration, number, plural, share
from queue_report.schema.columns import UNREADABLE
from queue_wire.html import Child, Markup, join, tag

# How bad it is: something is broken; somebody should look; all is well; for information.
BAD, WARN, GOOD, NOTE = "bad", "warn", "good", "note"

# So many names stand in a sentence, and so many texts.
NAMED, QUOTED = 3, 2
# So many AUTH failures of one client and user are no mistake of that user.
GUESSES = 20


class Finding(NamedTuple):
    """A sentence, how bad it is, the section of the page that tells more, and what to do; '' for nothing."""

    level: str
    text: Markup
    section: str
    to_do: str = ""


def find(data: PageData) -> list[Finding]:
    """Return the findings, the worst first."""
    if data.last is None:
        return [_finding(NOTE, "reading", "There is nothing in the lake", f" {data.only}".rstrip(), ".")]
    questions = (
        _destinations, _waiting, _accounting, _origins, _alerts, _runs, _changes, _limits, _guesses, _age, _silent,
        _unreadable,
    )  # fmt: skip
    found = [finding for question in questions for finding in question(data)]
    order = (BAD, WARN, GOOD, NOTE)
    return sorted(found, key=lambda finding: order.index(finding.level))


def _finding(level: str, section: str, *parts: Child, to_do: str = "") -> Finding:
    return Finding(level, join(*parts), section, to_do)


def _destinations(data: PageData) -> Iterator[Finding]:
    """Which destinations are in trouble at the end of the log?"""
    waits = {row.domain: row.recipients for row in data.part("domain")}
    for kind, level, one, many in (
        ("dead", BAD, "destination is dead", "destinations are dead"),
        ("deferring", WARN, "destination puts all mail off", "destinations put all mail off"),
        ("slow", NOTE, "destination is slow", "destinations are slow"),
    ):
        since: dict[str, float] = {}
        for row in data.episodes:
            # Three deferrals within minutes are greylisting, or a limit.
            brief = kind == "deferring" and row.seconds < 10 * MINUTE
            if row.kind == kind and row.ended is None and not brief:
                since[row.domain] = min(row.began, since.get(row.domain, row.began))
        if not since:
            continue
        first = sorted(since, key=lambda name: (-waits.get(name, 0), since[name], name))
        names = [
            join(name_text(name or "(none)"), f" (for {duration(data.end - since[name])}", _waits(waits.get(name)), ")")
            for name in first[:NAMED]
        ]
        text = f"{len(since):,} {one if len(since) == 1 else many}"
        if level == BAD and not any(name in waits for name in since):
            level = WARN
        to_do = "queuectl destinations shows the last error; queuectl flush --domain tries it." if level != NOTE else ""
        yield _finding(level, "destinations", tag("b", text), ": ", *_listed(names, len(since)), ".", to_do=to_do)
    if not any(row.ended is None and row.kind != "slow" for row in data.episodes):
        yield _finding(GOOD, "destinations", "No destination is dead or puts its mail off.")


def _waits(recipients: int | None) -> str:
    return f", {recipients:,} wait" if recipients else ""


def _listed(names: Sequence[Child], total: int) -> Iterator[Child]:
    """Yield names as a sentence has them."""
    for i, name in enumerate(names):
        if i:
            yield " and " if i + 1 == total else ", "
        yield name
    if total > len(names):
        yield f" and {total - len(names):,} more"


def _waiting(data: PageData) -> Iterator[Finding]:
    """How much waits, since when, and mostly why?"""
    whole = data.part("all")
    if not whole or not whole[0].messages or whole[0].oldest is None:
        yield _finding(GOOD, "queue", "Nothing waits in the queue", " at the end of the log.")
        return
    messages, age = whole[0].messages, data.end - whole[0].oldest
    text = f"{plural(messages, 'message')} wait{'' if messages > 1 else 's'}"
    oldest = f"the oldest for {duration(age)}" if messages > 1 else f"for {duration(age)}"
    why = next((row for row in data.part("reason") if row.reason), None)
    recipients = sum(row.recipients for row in data.part("recipients"))
    most: list[Child] = []
    if why is not None and recipients and why.recipients * 3 >= recipients:
        where: Child = name_text(why.domain or "(none)") if why.domains == 1 else f"{why.domains:,} domains"
        part = "all" if why.recipients == recipients else f"{why.recipients:,} of {recipients:,} recipients"
        most = [f"; {part} for ", where, ": ", reply_text(why.reason, 80)]
    level = WARN if age >= 4 * HOUR or messages >= 1000 else NOTE
    to_do = "queuectl show ID says what a message waits for." if level == WARN else ""
    yield _finding(level, "queue", tag("b", text), ", ", oldest, *most, "" if _ends(most) else ".", to_do=to_do)


def _ends(parts: Sequence[Child]) -> bool:
    """Return whether a sentence that ends with a log's text has its full stop."""
    return bool(parts) and str(parts[-1]).endswith((".</bdi>", "…</bdi>"))


_WHOLE_LOG = "See that no part of the log is missing; queue-report show conservation-messages names them."


def _accounting(data: PageData) -> Iterator[Finding]:
    """Is every recipient accounted for?"""
    missing = sum(abs(row.difference) for row in data.conserved)
    problems = sum(row.problems for row in data.conserved)
    if missing:
        text = f"{missing:,} recipient{' is' if missing == 1 else 's are'} not accounted for"
        yield _finding(BAD, "conservation", tag("b", text), ".", to_do=_WHOLE_LOG)
    elif problems:
        text = f"{problems:,} messages do not add up"
        yield _finding(WARN, "conservation", tag("b", text), ".", to_do=_WHOLE_LOG)
    accepted, lost = (sum(getattr(row, name) for row in data.handed_in) for name in ("accepted", "not_in_log"))
    if lost:
        text = f"{lost:,} of {accepted:,} messages that came in by SMTP are not in the log of a queue"
        to_do = "Give queue-report build the logs of all queues of the host, under the same host."
        yield _finding(WARN if lost * 1000 >= accepted else NOTE, "smtp", tag("b", text), ".", to_do=to_do)


def _origins(data: PageData) -> Iterator[Finding]:
    """Does one sender, or one user, send what nobody else does?"""
    loud = _loudest(data, data.senders)
    if loud is not None:
        yield _loud(data, loud, name_text(f"<{loud.origin}>"), " sent ")
        return
    loud = _loudest(data, data.users)
    if loud is not None and len(data.users) > 1:
        yield _loud(data, loud, name_text(f"uid {loud.origin}"), " put in ")


def _loudest(data: PageData, rows: Sequence[Origin]) -> Origin | None:
    """Return who sent a third of the last day's mail, at least 100, and far more than on the days before or far too
    much that failed; None for nobody. In a log of less than two days, who sent two thirds, and others send too."""
    total = _last_day(data)
    days = max((data.end - data.begin) / DAY, 1.0)
    for row in sorted(rows, key=lambda row: -row.recent):
        before = (row.messages - row.recent) / max(days - 1, 1.0)
        burst = days >= 2 and row.recent >= 5 * before
        failing = row.failed >= 20 and row.failed * 20 >= row.attempts
        alone = days < 2 and row.recent * 3 >= total * 2 and total - row.recent >= 20
        if row.recent >= 100 and row.recent * 3 >= total and (burst or failing or alone):
            return row
    return None


def _last_day(data: PageData) -> int:
    return data.today.received if data.today else sum(row.messages for row in data.received)


def _loud(data: PageData, row: Origin, name: Markup, verb: str) -> Finding:
    total = _last_day(data)
    failing = row.failed * 20 >= row.attempts and row.failed > 0
    end = f"; {share(row.failed, row.attempts)} of the deliveries failed." if failing else "."
    days = " of the last day" if data.end - data.begin > DAY else ""
    return _finding(
        BAD if failing else WARN, "senders", tag("b", name, verb, number(row.recent), " messages"),
        f", {share(row.recent, total)} of all{days}{end}",
        to_do="queuectl hold --sender ADDRESS --standing (or --uid UID) holds such mail until it is looked at.",
    )  # fmt: skip


# By how much a number is another than the day before: from this factor on, in words.
_TIMES = ((1.8, "doubled"), (2.6, "tripled"), (3.6, "quadrupled"))


def _changes(data: PageData) -> Iterator[Finding]:
    """What is not as it was the day before?"""
    today, before = data.today, data.yesterday
    if today is None or before is None:
        return
    for result, name in (("failure", "Failures"), ("deferral", "Deferrals")):
        now, then = getattr(today, result), getattr(before, result)
        # A busier day has more of all.
        denser = now * max(before.attempts, 1) >= 1.5 * then * max(today.attempts, 1)
        if now >= 20 and now >= 1.8 * then and denser:
            yield _finding(
                WARN, "classes", tag("b", f"{name} {_times(now, then)}"),
                f": {now:,} in the last 24 hours ({share(now, today.attempts)} of attempts), {then:,} "
                f"({share(then, before.attempts)}) in the 24 hours before.",
            )  # fmt: skip
    yield from _traffic(today, before)


def _times(now: int, then: int) -> str:
    if not then or now >= 5 * then:
        return "are new since the day before" if not then else f"are {now / then:,.0f} times as many as the day before"
    return next(word for factor, word in reversed(_TIMES) if now >= factor * then) + " since the day before"


def _traffic(today: Day, before: Day) -> Iterator[Finding]:
    if before.received >= 100 and today.received * 3 < before.received:
        yield _finding(
            WARN, "volume", tag("b", "Little mail comes in"),
            f": {today.received:,} messages in the last 24 hours, {before.received:,} in the 24 hours before.",
        )  # fmt: skip
    elif today.received >= 300 and today.received >= 3 * before.received:
        yield _finding(
            WARN, "volume", tag("b", "Much mail comes in"),
            f": {today.received:,} messages in the last 24 hours, {before.received:,} in the 24 hours before.",
        )  # fmt: skip


def _limits(data: PageData) -> Iterator[Finding]:
    """Which queues have as many deliveries as they may for a good part of the time?"""
    full = [row for row in data.channels if row.full * 5 >= row.seconds and row.full >= 10 * MINUTE]
    full.sort(key=lambda row: (-row.full / row.seconds, row.host, row.queue, row.channel))
    if full:
        names = [
            join(
                queue_text(row.host, row.queue),
                f", {row.channel} ({share(row.full, row.seconds)} of the time at {row.limit:,})",
            )
            for row in full[:NAMED]
        ]
        yield _finding(
            WARN, "concurrency", tag("b", "Concurrency limits hold mail back"), ": ", *_listed(names, len(full)), ".",
            to_do="Where CPU and memory permit, raise control/concurrencylocal or control/concurrencyremote.",
        )  # fmt: skip


def _runs(data: PageData) -> Iterator[Finding]:
    """Did queue-send end as it should?"""
    for kind, what in (
        (CRASHED, "queue-send or its machine was stopped without notice"),
        (DIED, "queue-send lost a daemon and ended"),
    ):
        found = {name: kinds[kind] for name, kinds in data.lines.items() if kinds.get(kind)}
        if found:
            lasts = {f"{row.host}/{row.queue}": row.last for row in data.stops if row.kind == kind}
            first = sorted(found, key=lambda name: (-lasts.get(name, 0), -found[name], name))
            names = [
                join(name_text(name), _how_often(_often(found[name]) if len(found) > 1 else "", lasts.get(name)))
                for name in first[:NAMED]
            ]
            level = WARN if any(data.end - last < DAY for last in lasts.values()) else NOTE
            text = f"{what} {_often(sum(found.values()))}"
            to_do = "The lines of the log before it say why; queuectl check looks at the queue."
            yield _finding(level, "reading", tag("b", text), ": ", *_listed(names, len(found)), ".", to_do=to_do)


def _how_often(times: str, last: float | None) -> Markup | None:
    """Return in brackets how often something was, '' for what is not said, and when at last."""
    parts: list[Child] = [times] if times else []
    if last is not None:
        parts += [*([", "] if times else []), "last ", time_text(last), " UTC"]
    return join(" (", *parts, ")") if parts else None


def _often(times: int) -> str:
    return {1: "once", 2: "twice"}.get(times, f"{times:,} times")


def _age(data: PageData) -> Iterator[Finding]:
    """Is the log's end the present?"""
    age = data.made - (data.last or 0)
    if data.last is not None and age >= HOUR and not data.only:
        yield _finding(
            WARN, "reading", tag("b", f"The log ends {duration(age)} before this page was made"),
            ", at ", time_text(data.last), " UTC: what has happened since was not read.",
            to_do="See that queue-report watch, or the job that builds, runs, and that queue-send does.",
        )  # fmt: skip


def _silent(data: PageData) -> Iterator[Finding]:
    """Which queues' logs end a day before the others'?"""
    silent = sorted(
        (stream for stream in data.streams if data.end - stream.last >= DAY and stream.last >= data.begin),
        key=lambda stream: (stream.last, stream.host, stream.queue),
    )
    if silent:
        names = [
            join(queue_text(stream.host, stream.queue), f" ({duration(data.end - stream.last)})")
            for stream in silent[:NAMED]
        ]
        text = f"{len(silent):,} queue{' is' if len(silent) == 1 else 's are'} silent for a day or more"
        to_do = "See that it runs, and that its log comes here."
        yield _finding(WARN, "reading", tag("b", text), ": ", *_listed(names, len(silent)), ".", to_do=to_do)


def _guesses(data: PageData) -> Iterator[Finding]:
    """Does somebody guess passwords, and has one been found?"""
    many = [row for row in data.guesses if row.failures >= GUESSES]
    for row in many[:NAMED]:
        found = row.successes > 0
        yield _finding(
            BAD if found else NOTE,
            "smtp",
            tag("b", f"{row.failures:,} AUTH failures"),
            " of ",
            log_text(row.auth_user, 60),
            " from ",
            log_text(row.client, 60),
            ", which has authenticated too: the password may be known." if found else ".",
            to_do="queuectl passwd sets another password." if found else "",
        )


def _alerts(data: PageData) -> Iterator[Finding]:
    """Did the suite ask for a person?"""
    found = [row for row in data.alerts if row.kind == ALERT]
    if not found:
        return
    recent = [row for row in found if data.end - row.last < DAY]
    first = (recent or found)[:QUOTED]
    quoted = [join(log_text(row.text, 120), _how_often(_often(row.lines), row.last)) for row in first]
    yield _finding(
        WARN if recent else NOTE,
        "reading",
        tag("b", plural(found[0].total, "alert")),
        ": ",
        *_listed(quoted, len(recent or found)),
        ".",
        to_do="docs/operating.md has what to do for each." if recent else "",
    )


def _unreadable(data: PageData) -> Iterator[Finding]:
    """Could all lines be read?"""
    bad = _sum(data.lines.values(), UNREADABLE)
    total = sum(sum(kinds.values()) for kinds in data.lines.values())
    if bad:
        text = f"{bad:,} line{' was' if bad == 1 else 's were'} not understood"
        to_do = "The table quarantine has the reason of each."
        yield _finding(WARN if bad * 1000 >= total else NOTE, "reading", tag("b", text), f" of {total:,}.", to_do=to_do)


def _sum(lines: Iterable[object], kind: str) -> int:
    return sum(kinds.get(kind, 0) for kinds in lines if isinstance(kinds, dict))
