"""What came and went by time, and by domain (pflogsumm's traffic summaries): what the registry says of these reports.

A message counts where it was received (its birth), a delivery where it ended; so messages that wait count as well.
"""

from queue_report.reports.report import Report

_COUNTS = {
    "received": "messages that came in",
    "bytes": "bytes of those messages",
    "delivered": "deliveries that succeeded; one a recipient",
    "deferred": "deliveries that failed for now, mangled reports included; a recipient counts each time",
    "bounced": "deliveries that failed for good; one a recipient",
}
_START = "An hour or day in which nothing happened has no row. In order of time."

HOURS = Report(
    name="hours",
    title="Traffic by hour",
    about=_START,
    columns={"start": "start of the hour, UTC", **_COUNTS},
    windowed=False,
)
DAYS = Report(
    name="days",
    title="Traffic by day",
    about=_START,
    columns={"start": "start of the day, UTC", **_COUNTS},
    windowed=False,
)
DAYTIME = Report(
    name="daytime",
    title="Traffic by hour of the day",
    about="pflogsumm's per-hour daily average: what an hour of the day saw, divided by the number of days that saw "
    "anything at all, to two digits. All 24 hours have a row.",
    columns={"hour": "hour of the day, 0 to 23, UTC", **{name: f"{text}, a day" for name, text in _COUNTS.items()}},
    windowed=False,
)
DOMAINS = Report(
    name="domains",
    title="Domains by mail delivered",
    about="One row a recipient domain, the one with the most deliveries first; '' is recipients without a domain. "
    "Deliveries count by their end. A delay goes from a message's birth to the end of the delivery that succeeded; "
    "messages older than the log have none.",
    columns={
        "domain": "domain of the recipients",
        "delivered": "deliveries that succeeded",
        "bytes": "bytes delivered: a message counts once a recipient",
        "deferred": "deliveries that failed for now, mangled reports included",
        "bounced": "deliveries that failed for good",
        "delay_avg": "average delay of a successful delivery, seconds",
        "delay_max": "longest delay of a successful delivery, seconds",
    },
)
SENDER_DOMAINS = Report(
    name="sender-domains",
    title="Domains by mail received from them",
    about="One row a sender domain, the one with the most messages first. MAILER-DAEMON is bounces, '' is senders "
    "without a domain, (unknown) messages whose `info` is not in the log. Messages count by their birth.",
    columns={
        "domain": "domain of the envelope sender",
        "received": "messages",
        "bytes": "bytes of those messages; a message counts once, however many its recipients",
    },
    windowed=False,
)

TRAFFIC: tuple[Report, ...] = (HOURS, DAYS, DAYTIME, DOMAINS, SENDER_DOMAINS)
