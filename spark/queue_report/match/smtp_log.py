"""The lines of queue-smtpd, `smtp N: …` (queue_smtpd.sessions.session_log), as sessions, messages, refusals, verdicts.

A session begins with `connect` and ends with `end`. Its number is used again: a `connect` shows that the one before it
with that number has ended, and so does the start of process I of M for all numbers I, I + M, I + 2M …: their process
was killed. Under a super-server it is that one which says that the process has ended. Such a session's end is not
known, and its row says `killed`. A line about a number that is not open is of a session that began before the log.
These lines may be in the log of any queue.
"""

from typing import Any

from queue_report.match.found import Found, LineRow, Row
from queue_report.match.reasons import describe
from queue_report.match.rows import born_of
from queue_report.match.state import OpenSession, State

_MAX = 2**63 - 1
# What rows of accepted messages, refusals and verdicts have of their session.
_OF_SESSION = ("key", "client", "name", "server_port", "tls_version", "auth_user")


def _session(state: State, at: int, number: int) -> OpenSession:
    session = state.sessions.get(number)
    if session is None:
        session = state.sessions[number] = OpenSession.new(number, at)
    return session


def _lose(state: State, found: Found, number: int) -> None:
    """A session, if it is open, was killed."""
    session = state.sessions.pop(number, None)
    if session is not None:
        found.rows["sessions"].append({**session.row, "done_ns": None, "ended": "killed"})


def _add(found: Found, table: str, session: OpenSession, row: Row) -> None:
    """Add a row with what it has of its session."""
    found.rows[table].append({name: session.row.get(name) for name in _OF_SESSION} | {"sender": session.sender} | row)


def start(state: State, found: Found, at: int, place: int, count: int, pid: int) -> None:
    """A process has started: sessions that are open with its numbers were killed."""
    for number in [one for one in state.sessions if count and one % count == place % count]:
        _lose(state, found, number)


def gone(state: State, found: Found, at: int, number: int, how: bytes) -> None:
    """The process of a session, whose pid is its number, has ended, and the session with it."""
    _lose(state, found, number)


def connect(
    state: State, found: Found, at: int, number: int, client: bytes, port: int, name: bytes, server: bytes,
    server_port: int,
) -> None:  # fmt: skip
    _lose(state, found, number)
    row = _session(state, at, number).row
    row.update(client=client.strip(b"[]"), port=port, name=name, server=server.strip(b"[]"), server_port=server_port)


def tls(state: State, found: Found, at: int, number: int, version: bytes, cipher: bytes) -> None:
    _session(state, at, number).row.update(tls_version=version, tls_cipher=cipher)


def tls_failed(state: State, found: Found, at: int, number: int, why: bytes) -> None:
    _session(state, at, number).row["tls_failure"] = why


def auth(state: State, found: Found, at: int, number: int, user: bytes, mechanism: bytes) -> None:
    _session(state, at, number).row.update(auth_user=user, mechanism=mechanism)


def mail_from(state: State, found: Found, at: int, number: int, sender: bytes, size: int) -> None:
    session = _session(state, at, number)
    session.sender, session.recipients = sender, 0


def rcpt_to(state: State, found: Found, at: int, number: int, recipient: bytes) -> None:
    _session(state, at, number).recipients += 1


def refused(
    state: State, found: Found, at: int, number: int, verb: bytes, what: bytes, reason: bytes, client: bytes
) -> None:
    session = _session(state, at, number)
    if session.row["client"] is None and client:
        # The session began before the log.
        session.row["client"] = client.rpartition(b" ")[2]
    session.row["refused"] += 1
    if verb == b"AUTH" and reason[:1] == b"5":
        session.row["auth_failures"] += 1
    what = what[1:]
    address = what[1:-1] if what[:1] == b"<" and what[-1:] == b">" else what
    said = describe(reason)
    row: Row = {"time_ns": at, "verb": verb, "address": address, "reply": int(reason[:3]), "reason": reason}
    row |= {"template": said.template, "code": said.code, "class": said.kind}
    _add(found, "refusals", session, row | ({"sender": address} if verb == b"MAIL" else {}))


def said_by_filter(state: State, found: Found, at: int, number: int, asked: bytes, what: bytes) -> None:
    said, colon, reason = what.partition(b": ")
    verdict, _, stage = (said if colon else said.removesuffix(b":")).partition(b" ")
    row: Row = {"time_ns": at, "filter": asked, "verdict": verdict, "stage": stage, "reason": reason}
    _add(found, "filters", _session(state, at, number), row | {"template": describe(reason).template if reason else ""})


def queued(state: State, found: Found, at: int, number: int, long_id: bytes, size: int, recipients: int) -> None:
    session = _session(state, at, number)
    row = session.row
    row["messages"] += 1
    # Garbage may have numbers whose sum no column holds.
    row["recipients"] = min(row["recipients"] + recipients, _MAX)
    row["bytes"] = min(row["bytes"] + size, _MAX)
    message, birth_ns = born_of(long_id)
    accepted: Row = {"time_ns": at, "long_id": long_id, "id": message, "birth_ns": birth_ns}
    _add(found, "accepted", session, accepted | {"recipients": recipients, "bytes": size})
    session.sender, session.recipients = None, 0


def dropped(state: State, found: Found, at: int, number: int) -> None:
    _end_transaction(state, at, number, "dropped")


def discarded(state: State, found: Found, at: int, number: int, size: int, recipients: int) -> None:
    _end_transaction(state, at, number, "discarded")


def _end_transaction(state: State, at: int, number: int, counted: str) -> None:
    session = _session(state, at, number)
    session.row[counted] += 1
    session.sender, session.recipients = None, 0


def end(
    state: State, found: Found, at: int, number: int, reason: bytes, messages: int, errors: int, seconds: int
) -> None:
    row: dict[str, Any] = _session(state, at, number).row
    del state.sessions[number]
    ending = {"done_ns": at, "ended": reason, "end_messages": messages, "end_errors": errors}
    found.rows["sessions"].append(row | ending)


# An address and a port.
_PLACE = r"{address=[^ :\[]*|\[[^ \]]*\]}:{port}"
# What was refused, the reply, and in newer lines the client.
_REFUSED = r"{verb=early talker|[^ ]*}{what= [^ ]*|}: {reply=[2-5][0-9][0-9](?:_[^ ]*)?}{client= client [^ ]*|}"
LINES: tuple[LineRow, ...] = (
    ("smtp_start", "smtp start: process {place} of {count} pid {pid}", start),
    ("smtp_connect", f"smtp {{session}}: connect {_PLACE} {{name$}} to {_PLACE}", connect),
    ("smtp_tls_failed", "smtp {session}: tls failed: {why$}", tls_failed),
    ("smtp_tls", "smtp {session}: tls {version$} {cipher$}", tls),
    ("smtp_auth", "smtp {session}: auth {user$} {mechanism$}", auth),
    ("smtp_from", "smtp {session}: from <{sender$}> bytes {bytes}", mail_from),
    ("smtp_to", "smtp {session}: to <{recipient$}>", rcpt_to),
    ("smtp_refused", f"smtp {{session}}: refused {_REFUSED}", refused),
    ("smtp_filter", "smtp {session}: filter {name$} {what$$}", said_by_filter),
    ("smtp_queued", "smtp {session}: queued {id$} bytes {bytes} recipients {recipients}", queued),
    ("smtp_dropped", "smtp {session}: dropped", dropped),
    ("smtp_discarded", "smtp {session}: discarded bytes {bytes} recipients {recipients}", discarded),
    ("smtp_end", "smtp {session}: end {reason$}: messages {messages} errors {errors} seconds {seconds}", end),
    ("smtp_atrn", "smtp {session}: atrn {domains$}: {reply=2[0-9][0-9]}", None),
    ("smtp_etrn", "smtp {session}: etrn {node$}: {reply=2[0-9][0-9]}", None),
    ("smtp_other", "smtp {session}: {text$$}", None),
    # Those of a super-server that runs it.
    ("smtp_gone", "tcpserver: end {session} {how=status [0-9]+}", gone),
    ("smtp_gone", "tcpsvd: info: end {session} {how=(?:exit|signal) [0-9]+}", gone),
    ("tcpserver", "tcpserver: {what=(?:status:|pid|ok|deny|end) .*}", None),
    ("tcpserver", "tcpsvd: info: {text$$}", None),
)
