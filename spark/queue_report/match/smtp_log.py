"""The lines of queue-smtpd, `smtp N: …` (queue_smtpd.sessions.session_log), as sessions, messages, refusals, verdicts.

A session begins with `connect` and ends with `end`. Its number is used again: a `connect` shows that the one before it
with that number has ended, and so does the start of process I of M for all numbers I, I + M, I + 2M …: their process
was killed. Under a super-server it is that one which says that the process has ended. Such a session's end is not
known, and its row says `killed`. A line about a number that is not open is of a session that began before the log.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from queue_report.match.reasons import Describer
from queue_report.match.rows import Columns, Rows, fill
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_long_id

KILLED = "killed"
_MAX = 2**63 - 1
_DESCRIBER = Describer()

# A row by column name, but for host and queue; texts may be bytes.
Row: TypeAlias = dict[str, Any]
# What rows of accepted messages, refusals and verdicts have of their session.
_OF_SESSION = ("key", "client", "name", "server_port", "tls_version", "auth_user")
_COUNTS = ("messages", "recipients", "bytes", "refused", "dropped", "discarded", "auth_failures")
_TEXTS = ("client", "name", "server", "tls_version", "tls_cipher", "tls_failure", "auth_user", "mechanism")


class OpenSession:
    """A session that has not ended. `row` has what is known of it; sender, recipients: of the transaction."""

    __slots__ = ("recipients", "row", "sender")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.sender: bytes | None = None
        self.recipients = 0

    def pack(self) -> str:
        """Return it as JSON, for the table `pending`."""
        kept = {name: one.decode() if isinstance(one, bytes) else one for name, one in self.row.items()}
        sender = None if self.sender is None else self.sender.decode()
        return json.dumps({"row": kept, "sender": sender, "recipients": self.recipients})

    @classmethod
    def unpack(cls, text: str) -> "OpenSession":
        kept = json.loads(text)
        session = cls(kept["row"])
        session.sender = None if kept["sender"] is None else kept["sender"].encode()
        session.recipients = kept["recipients"]
        return session


class SessionRows:
    """Rows that are complete."""

    def __init__(self) -> None:
        self.sessions: list[Row] = []
        self.accepted: list[Row] = []
        self.refusals: list[Row] = []
        self.filters: list[Row] = []

    def clear(self) -> None:
        for rows in (self.sessions, self.accepted, self.refusals, self.filters):
            rows.clear()

    def add_to(self, rows: Rows, place: Mapping[str, str]) -> None:
        """Add them to the rows of the tables."""
        if self.sessions:
            rows["sessions"] = _batch("sessions", self.sessions, place)
        if self.accepted:
            rows["accepted"] = _batch("accepted", self.accepted, place)
        if self.refusals:
            said = [_DESCRIBER.describe(row["reason"]) for row in self.refusals]
            for row, about in zip(self.refusals, said, strict=True):
                row.update({"template": about.template, "code": about.code, "class": about.kind})
            rows["refusals"] = _batch("refusals", self.refusals, place)
        if self.filters:
            for row in self.filters:
                row["template"] = _DESCRIBER.describe(row["reason"]).template if row["reason"] else ""
            rows["filters"] = _batch("filters", self.filters, place)


def _batch(table: str, rows: list[Row], place: Mapping[str, str]) -> pa.RecordBatch:
    names = {name for row in rows for name in row}
    columns: Columns = {name: [row.get(name) for row in rows] for name in names}
    return fill(table, columns, place, len(rows))


OpenSessions: TypeAlias = dict[int, OpenSession]


def apply_line(
    kind: str, sessions: OpenSessions, found: SessionRows, at: int, number: int, values: tuple[Any, ...]
) -> None:
    """Take a line of a session. kind: that of the grammar; values: its fields behind the number."""
    if kind == "smtp_connect":
        lose_session(sessions, found, number)
        session = sessions[number] = OpenSession(_new_row(number, at))
        client, port, name, server, server_port = values
        client, server = client.strip(b"[]"), server.strip(b"[]")
        session.row.update(client=client, port=port, name=name, server=server, server_port=server_port)
        return
    open_one = sessions.get(number)
    if open_one is None:
        open_one = sessions[number] = OpenSession(_new_row(number, at))
    _RULES[kind](sessions, found, open_one, at, values)


def lose_session(sessions: OpenSessions, found: SessionRows, number: int) -> None:
    """A session, if it is open, was killed."""
    session = sessions.pop(number, None)
    if session is not None:
        found.sessions.append({**session.row, "done_ns": None, "ended": KILLED})


def lose_process(sessions: OpenSessions, found: SessionRows, place: int, count: int) -> None:
    """A process has started: sessions that are open with its numbers were killed."""
    if count:
        for number in [one for one in sessions if one % count == place % count]:
            lose_session(sessions, found, number)


def _new_row(number: int, at: int) -> Row:
    row: Row = {"key": f"{number}.{at}", "number": number, "start_ns": at}
    row.update(dict.fromkeys(_TEXTS))
    row.update(dict.fromkeys(_COUNTS, 0))
    return row


def _tls(_: OpenSessions, __: SessionRows, session: OpenSession, at: int, values: tuple[Any, ...]) -> None:
    session.row["tls_version"], session.row["tls_cipher"] = values


def _tls_failed(_: OpenSessions, __: SessionRows, session: OpenSession, at: int, values: tuple[Any, ...]) -> None:
    session.row["tls_failure"] = values[0]


def _auth(_: OpenSessions, __: SessionRows, session: OpenSession, at: int, values: tuple[Any, ...]) -> None:
    session.row["auth_user"], session.row["mechanism"] = values


def _from(_: OpenSessions, __: SessionRows, session: OpenSession, at: int, values: tuple[Any, ...]) -> None:
    session.sender, session.recipients = values[0], 0


def _to(_: OpenSessions, __: SessionRows, session: OpenSession, at: int, values: tuple[Any, ...]) -> None:
    session.recipients += 1


def _refused(_: OpenSessions, found: SessionRows, session: OpenSession, at: int, values: tuple[Any, ...]) -> None:
    verb, what, reason, client = values
    what = what[1:]
    row = session.row
    if row["client"] is None and client:
        # The session began before the log.
        row["client"] = client.rpartition(b" ")[2]
    row["refused"] += 1
    if verb == b"AUTH" and reason[:1] == b"5":
        row["auth_failures"] += 1
    address = what[1:-1] if what[:1] == b"<" and what[-1:] == b">" else what
    sender = address if verb == b"MAIL" else session.sender
    found.refusals.append(
        {name: row.get(name) for name in _OF_SESSION}
        | {"time_ns": at, "verb": verb, "address": address, "sender": sender}
        | {"reply": int(reason[:3]), "reason": reason}
    )


def _filter(_: OpenSessions, found: SessionRows, session: OpenSession, at: int, values: tuple[Any, ...]) -> None:
    asked, what = values
    said, colon, reason = what.partition(b": ")
    if not colon:
        said = said.removesuffix(b":")
    verdict, _, stage = said.partition(b" ")
    found.filters.append(
        {name: session.row.get(name) for name in _OF_SESSION}
        | {"time_ns": at, "filter": asked, "verdict": verdict, "stage": stage, "sender": session.sender}
        | {"reason": reason}
    )


def _queued(_: OpenSessions, found: SessionRows, session: OpenSession, at: int, values: tuple[Any, ...]) -> None:
    long_id, size, recipients = values
    row = session.row
    row["messages"] += 1
    # Garbage may have numbers whose sum no column holds.
    row["recipients"] = min(row["recipients"] + recipients, _MAX)
    row["bytes"] = min(row["bytes"] + size, _MAX)
    number, birth_ns = born_of(long_id)
    found.accepted.append(
        {name: row.get(name) for name in _OF_SESSION}
        | {"time_ns": at, "long_id": long_id, "id": number, "birth_ns": birth_ns, "sender": session.sender}
        | {"recipients": recipients, "bytes": size}
    )
    session.sender, session.recipients = None, 0


def _dropped(_: OpenSessions, __: SessionRows, session: OpenSession, at: int, values: tuple[Any, ...]) -> None:
    session.row["dropped"] += 1
    session.sender, session.recipients = None, 0


def _discarded(_: OpenSessions, __: SessionRows, session: OpenSession, at: int, values: tuple[Any, ...]) -> None:
    session.row["discarded"] += 1
    session.sender, session.recipients = None, 0


def _end(sessions: OpenSessions, found: SessionRows, session: OpenSession, at: int, values: tuple[Any, ...]) -> None:
    ended, messages, errors = values[:3]
    del sessions[session.row["number"]]
    found.sessions.append(
        {**session.row, "done_ns": at, "ended": ended, "end_messages": messages, "end_errors": errors}
    )


_RULES = {
    "smtp_tls": _tls, "smtp_tls_failed": _tls_failed, "smtp_auth": _auth, "smtp_from": _from, "smtp_to": _to,
    "smtp_refused": _refused, "smtp_queued": _queued, "smtp_dropped": _dropped, "smtp_discarded": _discarded,
    "smtp_end": _end, "smtp_filter": _filter,
}  # fmt: skip
# The kinds of a session's lines that apply_line takes, and those that are counted by kind, no more.
RULED = frozenset((*_RULES, "smtp_connect"))
COUNTED = frozenset(("smtp_atrn", "smtp_etrn", "smtp_other"))


def born_of(long_id: bytes) -> tuple[int | None, int | None]:
    """Return the message number and the birth in nanoseconds of a long id; None for both if it is none.

    Where a host has several queues, the name of its queue and a slash are before it.
    """
    try:
        number, birth = unpack_long_id(long_id.rpartition(b"/")[2].decode())
    except (FormatError, UnicodeDecodeError):
        return None, None
    return (None, None) if birth is None or max(number, birth * 1000) > _MAX else (number, birth * 1000)
