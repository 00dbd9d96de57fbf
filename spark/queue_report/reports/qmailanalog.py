"""qmailanalog's reports, in its order: what the registry says of them. Their rules are in views/ended_*.sql."""

from queue_report.reports.report import Report

OVERALL = Report(
    "overall",
    "Basic statistics",
    "One row. A message counts when it has ended, and its `info` line was seen; a delivery when it has ended. "
    "The concurrency is how many deliveries were running on average: how busy the mailer is.",
    {
        "messages": "messages that ended",
        "recips": "their recipients: successes and failures",
        "tries": "their deliveries: successes, failures and deferrals",
        "tries_average": "tries a message",
        "bytes": "bytes in these messages",
        "sbytes": "bytes, each message counted once for each success",
        "qtime": "time from `info` to `end`, of all these messages, s",
        "qtime_average": "the same a message, s",
        "attempts": "deliveries that ended, of any message",
        "successes": "of these, successes",
        "failures": "failures",
        "deferrals": "deferrals, mangled reports included",
        "ddelay": "time from a message's `info` to the end of a successful delivery of it, of all successes, s",
        "ddelay_average": "the same a success, s",
        "xdelay": "time from start to end of a delivery, of all deliveries, s",
        "xdelay_average": "the same a delivery, s",
        "first": "when the first of these messages was queued",
        "last": "when the last message or delivery ended",
        "span": "time from first to last, s",
        "concurrency": "xdelay / span: deliveries in flight on average",
    },
    single=True,
)

_OF_SENDER = {
    "mess": "messages that ended",
    "bytes": "bytes in them",
    "sbytes": "bytes, each message counted once for each success",
    "rbytes": "bytes, each message counted once for each recipient (success or failure)",
    "recips": "recipients: successes and failures",
    "tries": "deliveries: successes, failures and deferrals",
    "xdelay": "time from start to end of all deliveries of this origin, those of messages still queued too, s",
}

SENDERS = Report(
    "senders",
    "Senders",
    "A row a sender of messages that ended, the most messages first. Bounces are the sender `<>`.",
    {**_OF_SENDER, "sender": "in lower case, in angle brackets"},
)
SUIDS = Report(
    "suids",
    "Users that sent mail",
    "A row a Unix user, by the uid of the process that put the message into the queue; the most messages first.",
    {**_OF_SENDER, "uid": "user id"},
)

_OF_RECIPIENT = {
    "sbytes": "bytes of messages delivered there, each counted once for each success",
    "mess": "recipients of messages: successes and failures",
    "tries": "deliveries: successes, failures and deferrals",
    "xdelay": "time from start to end of all deliveries there, s",
}

RECIPIENTS = Report(
    "recipients",
    "Recipients",
    "A row a recipient, the most messages first.",
    {**_OF_RECIPIENT, "recipient": "local. or remote. and the address in lower case"},
)
RHOSTS = Report(
    "rhosts",
    "Recipients' hosts",
    "A row a domain of recipients, local ones too; the most messages first.",
    {
        **_OF_RECIPIENT,
        "host": "what follows the last @ of the recipient; without one, the recipient as in `recipients`",
    },
)
RXDELAY = Report(
    "rxdelay",
    "Recipients in the best order for mailing lists",
    "A row a recipient, the quickest first: who sends to all of them does well to send in this order.",
    {
        "avg": "average time from start to end of a delivery, s",
        "tries": "deliveries that avg is made of",
        "recipient": "local. or remote. and the address in lower case",
    },
)

DDIST = Report(
    "ddist",
    "Distribution of ddelays for successful deliveries",
    "The first pct% of successful deliveries all happened within doneby seconds of the message's `info`; their average "
    "was avg. From 10 to 100; a percentage that no delivery falls on has no row.",
    {
        "doneby": "ddelay, s",
        "avg": "average ddelay of all deliveries of this percentage and of those before it, s",
        "pct": "percentage",
    },
)

_COUNTS = {
    "del": "deliveries that ended for this reason",
    "xdelay": "time from start to end of these deliveries, s",
}
_REASON = {
    "reason": "what was reported, with queue ids as ID, addresses as ADDRESS and IP, host names as HOST, numbers as N",
    "example": "the alphabetically first of the reasons, as logged; report_mangled if there is none",
}
_CODE = {"code": "RFC 3463 code in the text, if any", "class": "whose trouble it is"}
_ORDER = "A row a reason, the most deliveries first."
_SPACED = frozenset({"reason", "example"})

DEFERRALS = Report(
    "deferrals",
    "Reasons for deferral",
    _ORDER,
    {**_COUNTS, **_CODE, **_REASON},
    spaced=_SPACED,
)
FAILURES = Report(
    "failures",
    "Reasons for failure",
    _ORDER,
    {**_COUNTS, **_CODE, **_REASON},
    spaced=_SPACED,
)
SUCCESSES = Report(
    "successes",
    "Reasons for success",
    _ORDER,
    {**_COUNTS, **_REASON},
    spaced=_SPACED,
)

SENDMAIL = Report(
    "sendmail",
    "Log in sendmail's style",
    "A row a delivery and a message that ended, in order of time: what one looks for with grep. "
    "ddelay is the time since the message's `info`, xdelay the time since the start of the delivery, qtime the time of "
    "the message in the queue, all in s; nrcpts counts successes and failures.",
    {
        "at": "when it ended",
        "host": "host",
        "queue": "queue",
        "line": "`qp Q: to=…` for a delivery, `qp Q: from=…` for a message; Q is the process that queued the message",
    },
)

QMAILANALOG: tuple[Report, ...] = (
    OVERALL,
    SENDERS,
    SUIDS,
    RECIPIENTS,
    RHOSTS,
    DDIST,
    DEFERRALS,
    FAILURES,
    SUCCESSES,
    RXDELAY,
    SENDMAIL,
)
