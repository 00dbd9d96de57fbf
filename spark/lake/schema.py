"""The tables and their columns. docs/logs.md says what each means to a reader; here are types, and what may be null.

Times stand twice: `x` is a UTC timestamp (microseconds), `x_ns` a long (Unix time in nanoseconds, exact). `host` and
`queue` name a stream and are never null. A table is stored by `date` (of the row's done or at, UTC) and `host`.
"""

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

STRING, LONG, INT, BOOLEAN = StringType(), LongType(), IntegerType(), BooleanType()
TIME, DATE = TimestampType(), DateType()


def _struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


# What parse makes of lines: one row a line that counts. Null is whatever the line does not have.
# stream: the number of host and queue in this batch (spark.logs.streams).
# kind: new info start done bounce delay triple end status exiting corrupt hold release dest inflow alert warning.
# seq orders the lines of a stream within a batch, and is negative for what an earlier batch carried over.
# result: success failure deferral mangled; channel: local remote; text: what follows the first word (ours, alert,
# warning). time_ns is the line's stamp. marks: how many zero statuses and exits are before it in its Spark partition.
EVENTS = _struct(
    stream=INT, seq=LONG, marks=LONG, time_ns=LONG, kind=STRING, message=LONG, delivery=LONG, bytes=LONG,
    sender=STRING, qp=LONG, uid=LONG, channel=STRING, recipient=STRING, result=STRING, reason=STRING,
    local_now=INT, local_limit=INT, remote_now=INT, remote_limit=INT, text=STRING,
)  # fmt: skip

# Messages that have ended. key: "<id>.<first_ns>", one life of an inode number within its stream. id: that number.
# qp, uid, sender, bytes: from `info`; null where the log begins after it. birth: of `new` (of `info` where garbage
# took `new`); null where the log begins later. info_ns: of the last `info`; first_ns: of the first line about it. done:
# of `end`; for a lost message, of the line that shows that its number is used again. recipients: distinct ones that
# were tried. successes, failures, deferrals: deliveries that ended before it did (a mangled report counts as a
# deferral). bounce_qp: qp of its first bounce; null for none. bounce_of: key of the message that it reports, null for
# others. outcome: delivered, bounced (nobody got it), partly (some failed), discarded (triple bounce), deleted (by the
# administrator), lost (its number was used again, and no `end` was seen).
MESSAGES = _struct(
    host=STRING, queue=STRING, key=STRING, id=LONG, qp=LONG, uid=LONG, sender=STRING, bytes=LONG,
    birth=TIME, birth_ns=LONG, info_ns=LONG, done=TIME, done_ns=LONG, first=TIME, first_ns=LONG,
    successes=LONG, failures=LONG, deferrals=LONG, recipients=LONG, bounce_qp=LONG, bounce_of=STRING,
    outcome=STRING, date=DATE,
)  # fmt: skip

# Deliveries that have ended. key, id: of the message. delivery: its number in that run of queue-send. recipient may
# be ''; domain: lower case, what follows the last @, '' for none. result: as in EVENTS, or lost: it was in flight at
# a crash; then done is null and date is that of start. reason: as logged, '' for none (null for lost and mangled).
# template, code, class: made of reason by windows.reasons: the reason without what differs each time, the RFC 3463
# code such as 4.4.1 ('' for none), and the class of the trouble. qp, uid, sender, bytes, birth_ns, info_ns: what the
# log had said of the message when the delivery started, so that a report need not look for the messages.
DELIVERIES = _struct(
    host=STRING, queue=STRING, key=STRING, id=LONG, delivery=LONG, channel=STRING, recipient=STRING, domain=STRING,
    start=TIME, start_ns=LONG, done=TIME, done_ns=LONG, result=STRING, reason=STRING,
    template=STRING, code=STRING, qp=LONG, uid=LONG, sender=STRING, bytes=LONG, birth_ns=LONG, info_ns=LONG, date=DATE,
).add("class", STRING)  # fmt: skip

# What a delivery's row has of its message.
OF_MESSAGE = ("qp", "uid", "sender", "bytes", "birth_ns", "info_ns")

# Deliveries in flight and their limits from `at` until `until`: equal samples that follow each other are one row, and
# only rows with an end are here (the open one is pending). None covers the time between two runs of queue-send.
INTERVALS = _struct(
    host=STRING, queue=STRING, at=TIME, at_ns=LONG, until=TIME, until_ns=LONG,
    local_now=INT, local_limit=INT, remote_now=INT, remote_limit=INT, date=DATE,
)  # fmt: skip

# What is open at the end of a batch, all of it; the next batch starts from it. `what` is
# - message: the columns of messages, done and outcome null. seen: hashes of its recipients. again_ns: time of a last
#   `new`, of which the next `info` will tell whether it is another message. fate: discarded or deleted, so far.
# - delivery: in flight; the columns of deliveries that are known by then. key is that of its message, also if that
#   has ended; open says whether it has not.
# - status: the sample that counts now; first_ns is when it began. None once queue-send has ended.
# - bounce: a `bounce msg` (qp in bounce_qp, key of what it reports, first_ns) whose own message has not been seen.
PENDING = _struct(
    what=STRING, host=STRING, queue=STRING, key=STRING, id=LONG, qp=LONG, uid=LONG, sender=STRING, bytes=LONG,
    birth=TIME, birth_ns=LONG, info_ns=LONG, first=TIME, first_ns=LONG,
    successes=LONG, failures=LONG, deferrals=LONG, recipients=LONG, bounce_qp=LONG, bounce_of=STRING,
    again_ns=LONG, fate=STRING, seen=ArrayType(LONG),
    delivery=LONG, channel=STRING, recipient=STRING, domain=STRING, start=TIME, start_ns=LONG, open=BOOLEAN,
    local_now=INT, local_limit=INT, remote_now=INT, remote_limit=INT,
)  # fmt: skip

# Lines that could not be read. file: path below LOGS. line: number in the file from 1; null where the line was put
# together of pieces of two files or batches. time_ns: of its stamp, null for none. text: at most 1,000 characters.
# date is null where time_ns is.
QUARANTINE = _struct(
    host=STRING, queue=STRING, file=STRING, line=LONG, time_ns=LONG, reason=STRING, text=STRING, date=DATE,
)  # fmt: skip

# Each stamped line that was read, as a stamp and a hash of 32 bits: what tells that one comes a second time, in a later
# batch. Only looked at where a batch's stamps are not all later than what was read before.
LINES = _struct(host=STRING, queue=STRING, time_ns=LONG, print=INT, date=DATE)

TABLES = {
    "messages": MESSAGES,
    "deliveries": DELIVERIES,
    "intervals": INTERVALS,
    "pending": PENDING,
    "quarantine": QUARANTINE,
    "lines": LINES,
}


class Tables(NamedTuple):
    """A lake's tables as they are stored."""

    messages: DataFrame
    deliveries: DataFrame
    intervals: DataFrame
    pending: DataFrame
    quarantine: DataFrame
    lines: DataFrame
