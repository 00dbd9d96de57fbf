"""What became of the queue: its shape, delays, conservation, destinations, classes of trouble, concurrency.

What the registry says of the reports that neither qmailanalog nor pflogsumm has; their SQL is in sql/.
"""

from queue_report.reports.report import Report

# Minutes: the first bucket is [0, 5), the last has no end.
BUCKETS = ("5", "10", "20", "40", "80", "160", "320", "640", "1280", "1280+")
_BUCKETS = {
    **{name: f"of these, younger than {name} minutes, and in no column before" for name in BUCKETS[:-1]},
    BUCKETS[-1]: "of these, 1280 minutes old or older",
}
_MOMENT = "The moment is --at, or else the newest stamp of the lake. The row TOTAL comes first, then the largest. "

QSHAPE = Report(
    name="qshape",
    title="The queue by recipient domain and age",
    about=_MOMENT + "What waits is counted in recipients, by the age of their message, from its birth until they are "
    "delivered or have failed. The log names a recipient when it is first tried: one that was tried only after the "
    "moment is known too, and (not yet tried) counts messages of which no recipient was tried at all.",
    columns={"domain": "domain of the recipients", "T": "recipients that wait", **_BUCKETS},
    windowed=False,
    momentary=True,
)
QSHAPE_SENDERS = Report(
    name="qshape-senders",
    title="The queue by sender domain and age",
    about=_MOMENT + "What waits is counted in messages, as by qshape -s; MAILER-DAEMON is bounces.",
    columns={"domain": "domain of the envelope sender", "T": "messages that wait", **_BUCKETS},
    windowed=False,
    momentary=True,
)
ALERTS = Report(
    name="alerts",
    title="Alerts and warnings",
    about="One row a text, alerts first, then the most frequent. docs/logs.md says what each means and what to do. "
    "With --domain it is the same: they are about no domain.",
    columns={
        "kind": "alert (needs a person) or warning (is tried again)",
        "lines": "lines that say so",
        "queues": "queues that logged it",
        "first": "when it came first, UTC",
        "last": "when it came last, UTC",
        "text": "what it says, without what differs each time",
        "example": "one of the texts as logged",
    },
    spaced=frozenset({"text"}),
)
BACKLOG = Report(
    name="backlog",
    title="The queue by age, hour by hour",
    about="The messages that waited at each full hour, by their age, as qshape has it. An hour without a row was as "
    "the one before it. In order of time.",
    columns={"at": "the full hour, UTC", "T": "messages that waited", **_BUCKETS},
    windowed=False,
)

_WORDS = {"p50": "median", "p90": "90th percentile", "p99": "99th percentile", "max": "longest"}
_DELAYS = {
    "deliveries": "deliveries that succeeded",
    **{f"{time}_{p}": f"{time} time: {word}, seconds" for time in ("queue", "delivery") for p, word in _WORDS.items()},
}
_TIMES = (
    "Deliveries that succeeded, by their end. Queue time: from the message's birth to the start of the delivery that "
    "succeeded, with all attempts before it; messages older than the log have none. Delivery time: from that start to "
    "the end. pN is the smallest time that N % do not exceed (nearest rank). Negative: the clock was set back."
)

DELAYS = Report(
    name="delays",
    title="Queue time and delivery time",
    about="One row. " + _TIMES,
    columns=_DELAYS,
    single=True,
)
DELAYS_DOMAINS = Report(
    name="delays-domains",
    title="Queue time and delivery time by domain",
    about="One row a recipient domain, the one with the most deliveries first. " + _TIMES,
    columns={"domain": "domain of the recipients", **_DELAYS},
)
DELAYS_HOURS = Report(
    name="delays-hours",
    title="Queue time and delivery time by hour",
    about="One row an hour in which a delivery succeeded, in order of time; with --domain, those to one domain. "
    + _TIMES,
    columns={"start": "start of the hour, UTC", **_DELAYS},
)

CONSERVATION = Report(
    name="conservation",
    title="Conservation of recipients",
    about="One row a host and queue: recipients = delivered + stored + failed + pending + deleted, or difference says "
    "how many are missing; conservation-messages lists them. Messages are those received in the window (older than the "
    "log: seen first), followed to the end of the log. Two counts that were made apart are compared: what each message "
    "says of itself, counted while the log was read, and its deliveries.",
    columns={
        "host": "host",
        "queue": "queue",
        "messages": "messages",
        "ended": "of these, messages that have ended",
        "waiting": "of these, messages that have not",
        "untried": "of those, messages of which nothing was tried yet: the log does not name their recipients",
        "recipients": "recipients by the messages' own count; the same recipient of a message counts once",
        "delivered": "recipients with a success",
        "stored": "recipients that are stored for an on-demand domain; conservation-ondemand follows them",
        "failed": "recipients with a failure and no success",
        "pending": "recipients of waiting messages whose latest delivery was deferred, or is in flight",
        "deleted": "such recipients of messages that the administrator deleted",
        "difference": "recipients - delivered - stored - failed - pending - deleted; 0 where all adds up",
        "repeated": "deliveries beyond the first that settled a recipient: named twice, or a crash came between",
        "problems": "messages that conservation-messages lists",
    },
    windowed=False,
)
PROBLEMS = Report(
    name="conservation-messages",
    title="What does not add up",
    about="One row a message and problem, by host, queue and time. unsettled: it has ended, and count recipients were "
    "neither delivered nor failed. lost: its number was used again and no `end` was logged; count recipients are "
    "undecided. never tried: it has ended without any delivery. recipients differ, deliveries differ: its deliveries "
    "show count more (or fewer, negative) recipients, or successes and failures, than it counted; lines came after "
    "its end, or part of the lake is gone. unknown message: count recipients of a message that the lake does not have.",
    columns={
        "host": "host",
        "queue": "queue",
        "key": "key of the message: its number, a dot, the nanosecond of its first line",
        "sender": "envelope sender; null where it is not known",
        "born": "birth, or else first line, UTC",
        "ended": "end, UTC; null while it waits",
        "outcome": "delivered, bounced, partly, discarded, deleted, lost; null while it waits",
        "problem": "see above",
        "count": "how many recipients or deliveries",
    },
    windowed=False,
)

DESTINATIONS = Report(
    name="destinations",
    title="Destinations in trouble",
    about="One row an episode that reaches into the window, in order of its beginning. An episode is 3 or more bad "
    "deliveries to a domain, in order of their end, without a good one between them and without a day between two. "
    "Bad is a deferral, or a failure with a temporary code (given up after waiting too long) or of class network; good "
    "is a success or any other failure. For kind slow, bad is a success or such a failure that took 60 s or more, good "
    "one that took less, and deferrals do not count. It begins at the end of the first bad delivery, and ends at the "
    "end of the next good one; where none comes within a day of the last bad one, at the end of that. What queue-send "
    "defers without an attempt has no delivery, and shows in held only.",
    columns={
        "host": "host",
        "queue": "queue",
        "domain": "domain of the recipients",
        "kind": "dead: every bad delivery was of class network; deferring: some host answered; slow",
        "began": "beginning, UTC",
        "ended": "end, UTC; null where it goes on at the end of the log",
        "seconds": "how long it took, up to the end of the log where it goes on",
        "attempts": "bad deliveries",
        "messages": "messages that had one",
        "held": "messages that waited for the domain at some time of it, whether tried then or not",
        "reason": "template of the first bad delivery's reason; null for slow where it was a success",
    },
    windowed=False,
    spaced=frozenset({"reason"}),
)

_TROUBLES = {
    "failures": "deliveries that failed for good",
    "deferrals": "deliveries that failed for now, mangled reports included; a recipient counts each time",
}

CLASSIFY = Report(
    name="classify",
    title="Failures and deferrals by class and code",
    about="One row a class and code, the most frequent first. Deliveries count by their end.",
    columns={
        "class": "whose trouble it is: mailbox, full, size, domain, sender, rate, spam, tls, policy, network, system, "
        "protocol, content, local, other",
        "code": "RFC 3463 code that the reason gives, such as 4.4.1; '' for none",
        **_TROUBLES,
        "domains": "recipient domains that had it",
        "example": "the alphabetically first of the reasons, as logged; report_mangled if there is none",
    },
    spaced=frozenset({"example"}),
)
CLASSIFY_HOURS = Report(
    name="classify-hours",
    title="Failures and deferrals by hour and class",
    about="One row an hour and class of which there was anything, in order of time.",
    columns={"start": "start of the hour, UTC", "class": "as in classify", **_TROUBLES},
)

_OBSERVED = (
    " The time between the status lines of a run of queue-send counts. A run that crashed counts until its last line; "
    "the time until the next run has none, and nothing counts after the log's last status line."
)
_CONCURRENCY = {
    "host": "host",
    "queue": "queue",
    "channel": "local or remote",
    "seconds": "time that was observed",
    "average": "deliveries in flight, averaged over that time",
    "peak": "the most at any time",
    "limit": "the highest limit of that time",
    "at_limit": "seconds during which as many were in flight as were allowed",
    "at_limit_percent": "the same, in percent of the time observed",
}

CONCURRENCY = Report(
    name="concurrency",
    title="Deliveries in flight and limits",
    about="One row a host, queue and channel." + _OBSERVED,
    columns=_CONCURRENCY,
)
LEVELS = Report(
    name="concurrency-levels",
    title="Time at each level of concurrency",
    about="One row a host, queue, channel and level that occurred, from the lowest." + _OBSERVED,
    columns={
        "host": "host",
        "queue": "queue",
        "channel": "local or remote",
        "level": "deliveries in flight as a share of the limit then; 76-99 % is all above 75 % that is below the limit",
        "seconds": "time at that level",
    },
)
CONCURRENCY_HOURS = Report(
    name="concurrency-hours",
    title="Deliveries in flight and limits by hour",
    about="One row an hour, host, queue and channel, in order of time." + _OBSERVED,
    columns={"start": "start of the hour, UTC", **_CONCURRENCY},
)

QUEUES: tuple[Report, ...] = (
    QSHAPE,
    QSHAPE_SENDERS,
    BACKLOG,
    ALERTS,
    DELAYS,
    DELAYS_DOMAINS,
    DELAYS_HOURS,
    CONSERVATION,
    PROBLEMS,
    DESTINATIONS,
    CLASSIFY,
    CLASSIFY_HOURS,
    CONCURRENCY,
    LEVELS,
    CONCURRENCY_HOURS,
)
