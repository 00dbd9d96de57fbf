"""The columns of the lake's tables, for every engine. docs/logs.md says what each means to a reader.

Times stand twice: `x` is a UTC timestamp (microseconds), `x_ns` a long (Unix time in nanoseconds, exact). `host` and
`queue` name a stream and are never null. A table is stored by `date` (of the row's done or at, UTC); all but `pending`
and `streams`, whose rows are replaced by each build that has something new of their stream. A column that several
tables have is of the same kind in all of them: they are one Delta table.

A kind is string, long (64 bits), int (32 bits), boolean, time, date or longs (an array).
"""

_OF_MESSAGE = {"qp": "long", "uid": "long", "sender": "string", "bytes": "long", "birth_ns": "long", "info_ns": "long"}
_LIMITS = {"local_now": "int", "local_limit": "int", "remote_now": "int", "remote_limit": "int"}
_PLACE = {"host": "string", "queue": "string"}
_LIFE = {**_PLACE, "key": "string", "id": "long"}

# What a delivery's row has of its message, and deliveries in flight and their limits.
OF_MESSAGE, LEVEL = tuple(_OF_MESSAGE), tuple(_LIMITS)
# The kind that lines of `quarantine` are counted under.
UNREADABLE = "quarantine"

# Messages that have ended. key: "<id>.<first_ns>", one life of an inode number within its stream; the
# second that begins with that stamp has ".2" behind it, and so on. id: that number.
# qp, uid, sender, bytes: from `info`; null where the log begins after it. birth: of `new` (of `info` where garbage
# took `new`); null where the log begins later. info_ns: of the last `info`; first_ns: of the first line about it. done:
# of `end`; for a lost message, of the line that shows that its number is used again. recipients: distinct ones that
# were tried. successes, failures, deferrals: deliveries that ended before it did (a mangled report counts as a
# deferral). bounce_qp: qp of its first bounce; null for none. bounce_of: key of the message that it reports, null for
# others. outcome: delivered, bounced (nobody got it), partly (some failed), discarded (triple bounce), deleted (by the
# administrator), lost (its number was used again, and no `end` was seen).
MESSAGES = {
    **_LIFE, "qp": "long", "uid": "long", "sender": "string", "bytes": "long",
    "birth": "time", "birth_ns": "long", "info_ns": "long", "done": "time", "done_ns": "long", "first": "time",
    "first_ns": "long", "successes": "long", "failures": "long", "deferrals": "long", "recipients": "long",
    "bounce_qp": "long", "bounce_of": "string", "outcome": "string", "date": "date",
}  # fmt: skip

# Deliveries that have ended. key, id: of the message. delivery: its number in that run of queue-send. recipient may
# be ''; domain: lower case, what follows the last @, '' for none. result: success, failure, deferral, mangled, or lost:
# it was in flight at a crash; then done is null and date is that of start. reason: as logged, '' for none (null for
# lost and mangled). template, code, class: made of reason: the reason without what differs each time, the RFC 3463
# code such as 4.4.1 ('' for none), and the class of the trouble. qp, uid, sender, bytes, birth_ns, info_ns: what the
# log had said of the message when the delivery started, so that a report need not look for the messages.
DELIVERIES = {
    **_LIFE, "delivery": "long", "channel": "string", "recipient": "string", "domain": "string",
    "start": "time", "start_ns": "long", "done": "time", "done_ns": "long", "result": "string", "reason": "string",
    "template": "string", "code": "string", **_OF_MESSAGE, "date": "date", "class": "string",
}  # fmt: skip

# Deliveries in flight and their limits from `at` until `until`: equal samples that follow each other are one row, and
# only rows with an end are here (the open one is pending). None covers the time between two runs of queue-send.
INTERVALS = {
    **_PLACE, "at": "time", "at_ns": "long", "until": "time", "until_ns": "long", **_LIMITS, "date": "date",
}  # fmt: skip

# What is open at the end of a batch, all of it; the next batch starts from it. `what` is
# - message: the columns of messages, done and outcome null. seen: hashes of its recipients. again_ns: time of a last
#   `new`, of which the next `info` will tell whether it is another message. fate: discarded or deleted, so far.
# - delivery: in flight; the columns of deliveries that are known by then. key is that of its message, also if that
#   has ended; open says whether it has not.
# - status: the sample that counts now; first_ns is when it began. None once queue-send has ended.
# - bounce: a `bounce msg` (qp in bounce_qp, key of what it reports, first_ns) whose own message has not been seen.
# - stored: a recipient that is stored for an on-demand domain; key is the long id of its message, first_ns when it was
#   stored. One that is there twice was stored twice, in this order.
# - run: over what is stored for a domain; fate is its cause, successes, failures and deferrals count its lines.
# - session: of SMTP; id is its number, first_ns when it began, session what else is known of it, as JSON.
PENDING = {
    "what": "string", **_LIFE, "qp": "long", "uid": "long", "sender": "string", "bytes": "long",
    "birth": "time", "birth_ns": "long", "info_ns": "long", "first": "time", "first_ns": "long",
    "successes": "long", "failures": "long", "deferrals": "long", "recipients": "long", "bounce_qp": "long",
    "bounce_of": "string", "again_ns": "long", "fate": "string", "seen": "longs",
    "delivery": "long", "channel": "string", "recipient": "string", "domain": "string", "start": "time",
    "start_ns": "long", "open": "boolean", **_LIMITS, "session": "string",
}  # fmt: skip

# Alerts and warnings. kind: alert or warning; what another program in the same log calls fatal is an alert. text: what
# follows that word, behind the program's name if one stands before it; at most 1,000 characters. template: text without
# what differs each time, with `_` for a space.
ALERTS = {
    **_PLACE, "time": "time", "time_ns": "long", "kind": "string", "text": "string", "template": "string",
    "date": "date",
}  # fmt: skip

_OF_CLIENT = {
    "client": "string", "name": "string", "server_port": "long", "tls_version": "string", "auth_user": "string",
}  # fmt: skip

# Sessions of SMTP that have ended. key: "<number>.<start_ns>", of one session within its stream. number: that of its
# lines. start: of `connect`; of its first line if the log begins later, and then client is null. client, port, name:
# the client's address, port, and name by DNS or `unknown`; server, server_port: this side. tls_version, tls_cipher:
# null without TLS; tls_failure: why it failed. auth_user, mechanism: of AUTH. messages, recipients, bytes: that were
# queued. refused: `refused` lines; auth_failures: those of AUTH that were for good. dropped: transactions without a
# message; discarded: messages that filters threw away. ended: QUIT or what else ended it; killed: its process died,
# and done is null. end_messages, end_errors: messages and errors by its `end` line, which equal messages and refused
# if no line is missing.
SESSIONS = {
    **_PLACE, "key": "string", "number": "long", "start": "time", "start_ns": "long", "done": "time",
    "done_ns": "long", "client": "string", "port": "long", "name": "string", "server": "string",
    "server_port": "long", "tls_version": "string", "tls_cipher": "string", "tls_failure": "string",
    "auth_user": "string", "mechanism": "string", "messages": "long", "recipients": "long", "bytes": "long",
    "refused": "long", "dropped": "long", "discarded": "long", "auth_failures": "long", "ended": "string",
    "end_messages": "long", "end_errors": "long", "date": "date",
}  # fmt: skip

# Messages that queue-smtpd has handed to the queue. key, client, name, server_port, tls_version, auth_user: of the
# session. long_id: as logged; id, birth: what it says, null if it is none. sender: null if the log begins later.
# bytes: as received, without fields that the queue adds.
ACCEPTED = {
    **_PLACE, "key": "string", "time": "time", "time_ns": "long", **_OF_CLIENT, "long_id": "string", "id": "long",
    "birth": "time", "birth_ns": "long", "sender": "string", "recipients": "long", "bytes": "long", "date": "date",
}  # fmt: skip

# What queue-smtpd has refused. key, client, name, server_port, tls_version, auth_user: of the session. verb: the
# command; `connect`, or `message` for a message that was complete. address: what followed the verb, without angle
# brackets. sender: of the transaction, null outside of one. reply: the code of SMTP. reason: reply and text, as
# logged. template, code, class: as of deliveries.
REFUSALS = {
    **_PLACE, "key": "string", "time": "time", "time_ns": "long", **_OF_CLIENT, "verb": "string",
    "address": "string", "sender": "string", "reply": "long", "reason": "string", "template": "string",
    "code": "string", "class": "string", "date": "date",
}  # fmt: skip

# What the filters of queue-smtpd have said. key, client, name, server_port, tls_version, auth_user: of the session.
# filter: its place as control/milters has it, the path of a program, or `header`. verdict: accepts, refuses, defers,
# discards, holds, copies or failed. stage: the command that it is about, or `message`; empty where it failed. sender:
# of the transaction, null outside of one. reason: as logged, empty for none; template: as of deliveries.
FILTERS = {
    **_PLACE, "key": "string", "time": "time", "time_ns": "long", **_OF_CLIENT, "filter": "string",
    "verdict": "string", "stage": "string", "sender": "string", "reason": "string", "template": "string",
    "date": "date",
}  # fmt: skip

# Recipients that were stored for an on-demand domain, and are not any more. long_id: that of their message; id: the
# number in it, null if it is none. start: when it was stored; null if that was before the log, or it has ended before:
# then so are sender and bytes. deferrals: runs in which it was deferred. result: success, failure (it failed for good,
# expired, was returned or deleted: reason tells), or requeued. reason: as logged; of one that is requeued, the qp.
STORED = {
    **_PLACE, "domain": "string", "long_id": "string", "id": "long", "recipient": "string", "sender": "string",
    "bytes": "long", "start": "time", "start_ns": "long", "done": "time", "done_ns": "long", "deferrals": "long",
    "result": "string", "reason": "string", "date": "date",
}  # fmt: skip

# Runs over what is stored for a domain that have ended. cause: who asked for it; null, like start, for one that only
# carries out an order or looks for expired mail. successes, failures, deferrals: lines of its recipients. delivered,
# failed, deferred: what its end says; null for one that was killed, like done, and date is that of start then.
RUNS = {
    **_PLACE, "domain": "string", "cause": "string", "start": "time", "start_ns": "long", "done": "time",
    "done_ns": "long", "successes": "long", "failures": "long", "deferrals": "long", "delivered": "long",
    "failed": "long", "deferred": "long", "date": "date",
}  # fmt: skip

# Lines that could not be read. file: path below LOGS. line: number in the file from 1; null where the line was put
# together of pieces of two files or batches. time_ns: of its stamp, null for none. text: at most 1,000 characters.
# date is null where time_ns is.
QUARANTINE = {
    **_PLACE, "file": "string", "line": "long", "time_ns": "long", "reason": "string", "text": "string",
    "date": "date",
}  # fmt: skip

# Each stamped line that was read, as a stamp and a hash of 32 bits: what tells that one comes a second time, in a later
# batch. Only looked at where a batch's stamps are not all later than what was read before.
LINES = {**_PLACE, "time_ns": "long", "print": "int", "date": "date"}

# What is known of each stream, as JSON: which files were read and how far (logs/reading.py), what the matcher keeps
# beside `pending` (State.mark), and `counts`, the lines read so far by kind.
STREAMS = {**_PLACE, "state": "string"}

COLUMNS: dict[str, dict[str, str]] = {
    "messages": MESSAGES,
    "deliveries": DELIVERIES,
    "intervals": INTERVALS,
    "alerts": ALERTS,
    "sessions": SESSIONS,
    "accepted": ACCEPTED,
    "refusals": REFUSALS,
    "filters": FILTERS,
    "stored": STORED,
    "runs": RUNS,
    "pending": PENDING,
    "quarantine": QUARANTINE,
    "lines": LINES,
    "streams": STREAMS,
}
# All but those whose rows are replaced.
PARTITIONED = tuple(table for table, columns in COLUMNS.items() if "date" in columns)
