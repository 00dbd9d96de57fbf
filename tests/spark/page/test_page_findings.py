"""What the page says in words: what is wrong now, what has changed, and nothing where all is well."""

import html
import re
from dataclasses import replace

from queue_report.page.data import (
    Alert,
    Channel,
    Conserved,
    Day,
    Episode,
    Guesses,
    HandedIn,
    Origin,
    PageData,
    Received,
    Stop,
    Stream,
    Waiting,
)
from queue_report.page.findings import find
from queue_report.page.scales import make_bins, when

END = 1_790_000_000.0
DAY, HOUR = 86_400.0, 3600.0
OLD = END - 6 * HOUR
NO_AGES = (0,) * 10


def quiet(**changes: object) -> PageData:
    """Return the data of a page of three days on which nothing happened, with changes."""
    begin = END - 3 * DAY
    data = PageData(END + 60, "2026-09-21T14:13:20Z", 1, "", begin, END, END, make_bins(begin, END))
    return replace(data, **changes)  # type: ignore[arg-type]


def said(data: PageData) -> list[str]:
    """Return level and text of the findings."""
    return [f"{one.level}: {html.unescape(re.sub('<[^>]*>', '', one.text))}" for one in find(data)]


def part(name: str, **fields: object) -> Waiting:
    plain = Waiting(name, "", "", "", "", "", "", 0, "", 1, 1, 1, OLD, NO_AGES)
    return plain._replace(**fields)  # type: ignore[arg-type]


def episode(domain: str, kind: str, hours: float, ended: float | None = None) -> Episode:
    return Episode("mx1", "q", domain, kind, END - hours * HOUR, ended, hours * HOUR, 9, "timed_out/")


def origin(name: str, messages: int, recent: int, failed: int = 0, delivered: int = 1000) -> Origin:
    return Origin(name, messages, recent, 10**6, delivered, 0, failed, 9)


def test_all_is_well() -> None:
    assert said(quiet()) == [
        "good: No destination is dead or puts its mail off.",
        "good: Nothing waits in the queue at the end of the log.",
    ]


def test_who_guesses_passwords_is_named_and_a_success_is_broken() -> None:
    guesses = [
        Guesses("ann", "192.0.2.7", 900, 1, END), Guesses("joe", "192.0.2.8", 20, 0, END),
        Guesses("eve", "192.0.2.9", 19, 5, END),
    ]  # fmt: skip
    found = [one for one in said(quiet(guesses=guesses)) if "AUTH" in one]
    assert found == [
        "bad: 900 AUTH failures of ann from 192.0.2.7, which has authenticated too: the password may be known.",
        "note: 20 AUTH failures of joe from 192.0.2.8.",
    ]


def test_what_waits_is_said_with_its_age_and_its_most_frequent_reason_and_never_that_nothing_does() -> None:
    waiting = [
        part("all", messages=43), part("recipients", recipients=50, domains=2),
        part("reason", domain="d.example", state="deferred", reason="Timed_out._(#4.4.1)/", recipients=31, domains=1),
    ]  # fmt: skip
    assert said(quiet(waiting=waiting))[0] == (
        "warn: 43 messages wait, the oldest for 6 h; 31 of 50 recipients for d.example: Timed out. (#4.4.1)."
    )
    one = [part("all", oldest=END - 90), part("recipients"), part("reason", state="untried", domain="(not yet tried)")]
    assert "note: 1 message waits, for 1 min 30 s." in said(quiet(waiting=one))


def test_destinations_that_are_dead_at_the_end_are_named_those_with_most_mail_first() -> None:
    episodes = [episode(f"d{i}.example", "dead", 5 + i) for i in range(4)]
    episodes += [episode("old.example", "dead", 50, END - DAY), episode("slow.example", "slow", 1)]
    waiting = [part("all", messages=7), part("recipients"), part("domain", domain="d2.example", recipients=7)]
    found = said(quiet(episodes=episodes, waiting=waiting))
    assert found[0] == (
        "bad: 4 destinations are dead: d2.example (for 7 h, 7 wait), d3.example (for 8 h), d1.example (for 6 h)"
        " and 1 more."
    )
    assert "note: 1 destination is slow: slow.example (for 1 h)." in found
    assert not any("No destination" in text for text in found)
    # Nobody's mail waits for it: it is not as bad.
    assert said(quiet(episodes=episodes[:1]))[0] == "warn: 1 destination is dead: d0.example (for 5 h)."


def test_failures_that_doubled_are_said_and_those_of_a_busier_day_are_not() -> None:
    before = Day(1000, 1000, 20, 30)
    text = said(quiet(today=Day(1000, 1000, 44, 30), yesterday=before))[0]
    assert text == (
        "warn: Failures doubled since the day before: 44 in the last 24 hours (4.1 % of attempts), 20 (1.9 %) "
        "in the 24 hours before."
    )
    assert said(quiet(today=Day(2000, 2000, 44, 60), yesterday=before)) == said(quiet())
    assert "Failures are 10 times as many as the day before" in said(quiet(today=Day(9, 99, 200), yesterday=before))[0]
    assert "Failures are new" in said(quiet(today=Day(9, 99, 200), yesterday=Day(9, 99)))[0]
    assert "Little mail comes in: 100 " in said(quiet(today=Day(100, 100), yesterday=before))[0]


def test_a_spammer_stands_out_and_a_sender_who_always_sends_most_does_not() -> None:
    day = Day(24_000, 20_000, 100, 100)
    spam = origin("bulk@shop.example", 20_400, 20_000, failed=5000, delivered=15_000)
    found = said(quiet(today=day, senders=[origin("a@here.example", 9000, 3000), spam]))
    assert found[0] == (
        "bad: <bulk@shop.example> sent 20,000 messages, 83.3 % of all of the last day; 25.0 % of the deliveries failed."
    )
    list_ = origin("list@here.example", 60_000, 20_000)
    assert said(quiet(today=day, senders=[list_])) == said(quiet())
    users = [origin("33", 20_000, 20_000), origin("1000", 9000, 3000)]
    assert said(quiet(today=day, users=users))[0].startswith("warn: uid 33 put in 20,000 messages, 83.3 % of all")


def test_who_sends_nearly_all_mail_of_a_log_of_hours_stands_out() -> None:
    """Nobody knows what was before, so only who sends two thirds, and not where he is alone."""
    begin = END - 5 * HOUR
    hours = quiet(begin=begin, bins=make_bins(begin, END), received=[Received(0, 1249, None)])
    loud = origin("bulk@shop.example", 1150, 1150)
    assert said(replace(hours, senders=[loud, origin("a@here.example", 99, 99)]))[0] == (
        "warn: <bulk@shop.example> sent 1,150 messages, 92.1 % of all."
    )
    assert said(replace(hours, senders=[loud], received=[Received(0, 1160, None)])) == said(hours)
    assert said(replace(hours, senders=[origin("a@here.example", 800, 800)])) == said(hours)


def test_messages_from_smtp_that_no_queue_has_are_said() -> None:
    found = find(quiet(handed_in=[HandedIn("mx1", "smtpd", 637, 637), HandedIn("mx2", "smtpd", 10, 0)]))
    (one,) = (one for one in found if one.section == "smtp")
    assert one.level == "warn" and "637 of 647 messages that came in by SMTP" in one.text
    assert "logs of all queues of the host" in one.to_do


def test_what_is_broken_says_what_to_do() -> None:
    episodes = [episode("dead.example", "dead", 5), episode("slow.example", "slow", 5)]
    found = [(one.level, bool(one.to_do)) for one in find(quiet(episodes=episodes))]
    assert found == [("warn", True), ("good", False), ("note", False)]


def test_limits_runs_alerts_and_unread_lines_are_said() -> None:
    channel = Channel("mx1", "main", "remote", -1, 86_400.0, 15.0, 20, 20, 43_200.0)
    lines = {"mx1/main": {"status": 5000, "crash": 2, "died": 1, "alert": 1, "quarantine": 3}, "mx2/main": {"crash": 1}}
    stops = [Stop("mx1", "main", "crash", END - HOUR), Stop("mx1", "main", "died", END - 2 * DAY)]
    found = said(quiet(channels=[channel], lines=lines, stops=stops))
    assert [text for text in found if not text.startswith("good: ")][:3] == [
        "warn: queue-send or its machine was stopped without notice 3 times: mx1/main (twice, last "
        f"{when(END - HOUR)} UTC) and mx2/main (once).",
        "warn: Concurrency limits hold mail back: mx1/main, remote (50.0 % of the time at 20).",
        f"note: queue-send lost a daemon and ended once: mx1/main (last {when(END - 2 * DAY)} UTC).",
    ]
    assert said(quiet(lines=lines))[-1] == "note: 3 lines were not understood of 5,008."


def test_alerts_are_quoted_with_their_count_and_last_time_and_those_of_the_last_day_need_a_person() -> None:
    old = Alert("alert", 3, 1, "mx1/main", END - 2 * DAY, "unable to watch <todo>", 3)
    at = when(old.last)
    assert said(quiet(alerts=[old]))[-1] == f"note: 3 alerts: unable to watch <todo> (3 times, last {at} UTC)."
    recent = [old._replace(last=END - 60, lines=n, text=f"text {n}", total=6) for n in (3, 2, 1)]
    warning = recent[0]._replace(kind="warning", text="trouble")
    at = when(END - 60)
    assert said(quiet(alerts=[*recent, warning]))[0] == (
        f"warn: 6 alerts: text 3 (3 times, last {at} UTC), text 2 (twice, last {at} UTC) and 1 more."
    )


def test_what_does_not_add_up_is_the_worst() -> None:
    row = Conserved("mx1", "main", 9, 9, 8, 0, 0, 0, 0, 1, 0, 0, 1)
    assert said(quiet(conserved=[row]))[0] == "bad: 1 recipient is not accounted for."


def test_how_old_the_end_of_the_log_is_is_said_where_it_is_not_the_present() -> None:
    text = (
        "warn: The log ends 5 h 1 min before this page was made, at 2026-09-21 14:13 UTC: "
        "what has happened since was not read."
    )
    assert said(quiet(made=END + 5 * HOUR + 60))[0] == text
    assert said(quiet(made=END + 1800)) == said(quiet())
    streams = [Stream("mx1", "main", END - 3 * DAY, END), Stream("mx2", "main", END - 3 * DAY, END - 2 * DAY)]
    assert said(quiet(streams=streams))[0] == "warn: 1 queue is silent for a day or more: mx2/main (2 d)."
