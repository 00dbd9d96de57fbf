"""queuectl smtpd: the processes and sessions of queue-smtpd, and what they have counted. Reads only."""

import json
from collections import Counter
from collections.abc import Iterator

import click

from queue_admin.home.chosen import home_of
from queue_admin.metrics.smtpd_client import SmtpdReading, ask_processes
from queue_admin.printable import align, span, visible
from queue_admin.system_accounts import be_owner
from queue_base.errors import Temporary, complain
from queue_base.queue.layout import open_layout
from queue_wire.admin.smtpd_status import ENDS, STATES, VERBS, VERDICTS, ProcessStatus, SessionStatus
from queue_wire.logline import moment

CLIENTS = 10
HEAD = ("number", "client", "name", "port", "state", "age", "messages", "tls", "user")
NUMBERS = tuple(map(HEAD.index, ("number", "port", "age", "messages")))


@click.command("smtpd")
@click.option("--sessions", "listed", is_flag=True, help="Also list the sessions.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def command(context: click.Context, listed: bool, form: str) -> None:
    """Show what queue-smtpd is doing now, and what it has counted since its start.

    All of its processes are asked. `now` are connections by what they do: the `tls` handshake, the pause before the
    `greeting`, waiting for a `command`, a `transaction`, a `message` that is being sent, `queueing` (queue-intake has
    not answered), the `lookup` of a recipient or password, `closing`. Counters are those of its log. `clients` are the
    addresses with the most connections now. json has an object a process, with all of its counters, and then one a
    session.

    Exit 111 if no queue-smtpd runs, or a process does not answer. One that a super-server has started (tcpserver)
    serves one connection, and is not shown.

    \b
    Examples:
      queuectl smtpd
      queuectl smtpd --sessions
      queuectl smtpd --format json
    """
    home = home_of(context)
    be_owner(home)
    if home.is_chosen:
        open_layout(home.queue)
    reading = ask_processes(home, True)
    if not reading.processes and not reading.troubles:
        raise Temporary("unable to show queue-smtpd: it does not run for this queue; its service starts it")
    for line in _objects(reading) if form == "json" else _text(reading, listed):
        print(line)
    for trouble in reading.troubles:
        complain("queuectl", f"warning: {visible(trouble.encode('utf-8', 'surrogateescape'))}")
    if reading.troubles:
        raise click.exceptions.Exit(111)


def _objects(reading: SmtpdReading) -> Iterator[str]:
    for each in reading.processes:
        facts = {"process": each.pid, "place": each.place, "of": each.of, "started": moment(each.started)}
        yield json.dumps(facts | {"connections": each.sessions, "limit": each.limit} | _counts(each))
    for pid, session in reading.sessions:
        yield json.dumps({"session": session.number, "process": pid} | _shown(session))


def _counts(process: ProcessStatus) -> dict[str, object]:
    """Return the numbers of a process, all of them, by names as JSON has them."""
    counted = process.counters.get
    refused = {verb: {d: counted(f"refused-{verb}-{d[0]}", 0) for d in ("4xx", "5xx")} for verb in VERBS}
    return {
        "states": {state: process.states.get(state, 0) for state in STATES},
        "accepted": {name: counted(name, 0) for name in ("connections", "messages", "recipients", "bytes")},
        "refused": refused,
        "dropped": counted("dropped", 0),
        "discarded": counted("discarded", 0),
        "filters": {verdict: counted(f"filter-{verdict}", 0) for verdict in VERDICTS},
        "tls": {"ok": counted("tls", 0), "failed": counted("tls-failed", 0)},
        "auth": {"ok": counted("auth", 0), "failed": counted("auth-failed", 0)},
        "ended": {end: counted(f"end-{end}", 0) for end in ENDS},
    }


def _shown(session: SessionStatus) -> dict[str, object]:
    facts = session._asdict()
    del facts["number"]
    return facts | {"name": session.name or None, "tls": session.tls or None, "user": session.user or None}


def _text(reading: SmtpdReading, listed: bool) -> Iterator[str]:
    for each in reading.processes:
        yield f"process {each.pid}: {each.place} of {each.of}, since {moment(each.started)}"
        yield from (f"  {line}" for line in _summary([each]))
    if len(reading.processes) > 1:
        yield "all processes:"
        yield from (f"  {line}" for line in _summary(reading.processes))
    clients = Counter(session.client for _, session in reading.sessions)
    if clients:
        yield "clients: " + ", ".join(f"{_word(client)} {number}" for client, number in clients.most_common(CLIENTS))
    if listed and reading.sessions:
        yield from align([HEAD, *(_row(session) for _, session in reading.sessions)], NUMBERS)


def _summary(processes: list[ProcessStatus]) -> Iterator[str]:
    """Yield the lines about some processes together."""
    counts: Counter[str] = Counter()
    states: Counter[str] = Counter()
    for each in processes:
        counts.update(each.counters)
        states.update(each.states)
    now, limit = sum(each.sessions for each in processes), sum(each.limit for each in processes)
    by_state = ", ".join(f"{state} {states[state]}" for state in STATES if states[state])
    yield f"now: {now}/{limit} connections" + (f": {by_state}" if by_state else "")
    yield (
        f"accepted: {counts['connections']} connections, {counts['messages']} messages, "
        f"{counts['recipients']} recipients, {counts['bytes']} bytes"
    )
    refused = {verb: counts[f"refused-{verb}-4"] + counts[f"refused-{verb}-5"] for verb in VERBS}
    by_verb = ", ".join(f"{verb} {number}" for verb, number in refused.items() if number)
    yield f"refused: {sum(refused.values())}" + (f": {by_verb}" if by_verb else "")
    said = {verdict: counts[f"filter-{verdict}"] for verdict in VERDICTS}
    if any(said.values()):
        yield "filters: " + ", ".join(f"{verdict} {number}" for verdict, number in said.items() if number)
    yield f"tls: {counts['tls']} ok, {counts['tls-failed']} failed"
    yield f"auth: {counts['auth']} ok, {counts['auth-failed']} failed"


def _row(session: SessionStatus) -> tuple[str, ...]:
    return (
        str(session.number), _word(session.client), _word(session.name), str(session.port), _word(session.state),
        span(session.seconds), str(session.messages), _word(session.tls), _word(session.user),
    )  # fmt: skip


def _word(text: str) -> str:
    return visible(text.encode("utf-8", "surrogateescape")) or "-"
