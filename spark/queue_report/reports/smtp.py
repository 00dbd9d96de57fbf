"""What came in by SMTP, and what was refused: queue-smtpd's sessions, from the client to the receiver of its mail.

What the registry says of these reports; their SQL is in sql/.
"""

from queue_report.reports.report import Report

_BY_TIME = " A refusal counts by its time. With --domain it is the same, since a session is about no domain."
_BY_END = " A session counts when it has ended, by its end."
_SEEN = {"first": "when it came first, UTC", "last": "when it came last, UTC"}
_REFUSAL = {
    "verb": "the command; connect, or message for one that was complete",
    "reply": "code of the reply",
    "code": "RFC 3463 code of the reply, '' for none",
}

REFUSALS = Report(
    name="refusals",
    title="What the SMTP server has refused, and why",
    about="One row a reason, the most frequent first." + _BY_TIME,
    columns={
        **_REFUSAL,
        "class": "whose trouble it is, as in classify",
        "refusals": "refusals",
        "clients": "addresses of clients that it was said to",
        "addresses": "mail addresses, or users of AUTH, that it was about",
        **_SEEN,
        "reason": "the reply without what differs each time",
        "example": "the alphabetically first of the replies, as logged",
    },
    spaced=frozenset({"reason", "example"}),
)
REFUSED_CLIENTS = Report(
    name="refused-clients",
    title="Who was refused, and why",
    about="One row a client and reason, the most frequent first." + _BY_TIME,
    columns={
        "client": "address of the client; (unknown) for sessions that began before the log",
        "name": "its name by DNS, or unknown",
        **_REFUSAL,
        "refusals": "refusals",
        "addresses": "mail addresses, or users of AUTH, that it was about",
        **_SEEN,
        "reason": "the reply without what differs each time",
    },
    spaced=frozenset({"reason"}),
)
FILTERS = Report(
    name="filters",
    title="What the filters of the SMTP server have said",
    about="One row a filter, verdict and reason, by filter, the most frequent first. What is refused or deferred is in "
    "refusals, too." + _BY_TIME.replace("refusal", "verdict"),
    columns={
        "filter": "a line of control/milters, the path of a program, header (control/headerfaults), or spool",
        "verdict": "accepts, refuses, defers (for now), discards, holds or copies; failed: it could not be asked",
        "stage": "the command that it is about, or message; '' where it failed",
        "verdicts": "how often it has said so",
        "verdicts_percent": "the same, in percent of the filter's verdicts",
        "senders": "senders that it was said about",
        "clients": "addresses of clients that it was said to",
        **_SEEN,
        "reason": "the reason without what differs each time; '' for none",
        "example": "the alphabetically first of the reasons, as logged",
    },
    spaced=frozenset({"reason", "example"}),
)
CLIENTS = Report(
    name="clients",
    title="Clients of the SMTP server",
    about="One row a client, the most messages first." + _BY_END,
    columns={
        "client": "address; (unknown) for sessions that began before the log",
        "name": "its name by DNS, or unknown",
        "sessions": "sessions",
        "tls": "of these, under TLS",
        "authenticated": "of these, with AUTH",
        "messages": "messages that were queued",
        "recipients": "recipients of those messages",
        "bytes": "bytes of those messages; a message counts once",
        "refused": "commands and messages that were refused",
        "auth_failures": "AUTH commands that were refused for good",
        "last": "end of its last session, UTC",
    },
)
TLS = Report(
    name="tls",
    title="Sessions of the SMTP server by TLS",
    about="One row a port, version and cipher; of a port, the most frequent first." + _BY_END,
    columns={
        "port": "port of the server; null for sessions that began before the log",
        "tls": "version of TLS; none, or failed: it was tried",
        "cipher": "cipher; '' for none",
        "sessions": "sessions",
        "sessions_percent": "the same, in percent of the port's",
        "messages": "messages that were queued",
        "messages_percent": "the same, in percent of the port's; null if it has none",
    },
)
AUTH_FAILURES = Report(
    name="auth-failures",
    title="AUTH failures by user and client",
    about="One row a user and client, the most failures first." + _BY_TIME,
    columns={
        "auth_user": "who the client said to be",
        "client": "address of the client; (unknown) for sessions that began before the log",
        "name": "its name by DNS, or unknown",
        "failures": "AUTH commands that were refused, for now too",
        "successes": "sessions in which that client did authenticate as that user",
        **_SEEN,
        "reason": "the alphabetically first of the replies, as logged",
    },
    spaced=frozenset({"reason"}),
)
JOURNEYS = Report(
    name="journeys",
    title="Messages from the client to the receiver",
    about="One row a message that came in by SMTP, and recipient that was tried, in order of time; messages count by "
    "the time at which they were accepted. The message's deliveries are found by its long id and sender, in the logs "
    "of all queues of the same host: both logs must be in the lake, under one host. With --domain, deliveries to it.",
    columns={
        "accepted": "when it was in the queue, UTC",
        "client": "address of the client",
        "name": "its name by DNS, or unknown",
        "auth_user": "user of AUTH; null without",
        "sender": "envelope sender",
        "long_id": "long id of the message, which queuectl takes",
        "recipient": "a recipient that was tried; null if there is none",
        "attempts": "deliveries to it that have ended",
        "result": "result of the last one",
        "done": "its end, UTC",
        "seconds": "from the acceptance to that end",
        "message": "outcome of the message; waiting, or (not in the log)",
        "reason": "reason of the last delivery",
        "host": "host",
        "session": "key of the session",
    },
    windowed=False,
    spaced=frozenset({"reason"}),
)
SESSION_BALANCE = Report(
    name="conservation-sessions",
    title="Conservation of sessions",
    about="One row a host and log of queue-smtpd. What the lines of each session say is compared with its `end` line, "
    "and what was accepted with the messages that the queue's log has. messages_differ, refusals_differ and not_in_log "
    "are 0 where no line is missing, and the queue's log goes as far.",
    columns={
        "host": "host",
        "queue": "name of the log",
        "sessions": "sessions that have ended in the window, and those that are open",
        "open": "of these, open at the end of the log",
        "killed": "of these, those whose process was killed",
        "messages_differ": "ended sessions whose `end` line has another number of messages than their lines",
        "refusals_differ": "the same of refusals",
        "accepted": "messages that were accepted",
        "in_queue": "of these, found in the log of a queue of this host",
        "not_in_log": "the others",
    },
    windowed=False,
)

SMTP: tuple[Report, ...] = (REFUSALS, REFUSED_CLIENTS, FILTERS, CLIENTS, TLS, AUTH_FAILURES, JOURNEYS, SESSION_BALANCE)
