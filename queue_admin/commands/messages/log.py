"""queuectl log: the lines of the logs about one message; with --follow new ones, too, as they come. Reads only."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator

import click

from queue_admin.home.chosen import find_queue, home_of
from queue_admin.logs.find_log import find_log, find_smtpd_log
from queue_admin.logs.log_files import LogDirectory, LogSource, SystemdJournal
from queue_admin.logs.message_log import MadeMessage, MessageLog
from queue_admin.logs.smtp_session import session_lines
from queue_admin.messages.named_message import read_id
from queue_admin.messages.survey import look
from queue_admin.printable import precise, visible
from queue_admin.system_accounts import account_uid
from queue_base.accounts import SMTPD_ACCOUNT
from queue_base.errors import TEMPORARY, Failure, NotFound, Permanent, Usage
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.shell_completion import complete_file
from queue_wire.ids import pack_long_id, pack_queue_id

KINDS = {"bounce": "bounced as", "delay": "delay notice sent as"}
SETTLE = 2.0  # Seconds in which the last lines of a message that has left the queue come.


@click.command("log")
@click.argument("name", metavar="[ID]", required=False)
@click.option(
    "--logs", metavar="DIR", shell_complete=complete_file,
    help="The logger's directory, or a file of the log; default: it is looked for.",
)  # fmt: skip
@click.option("--journal", metavar="UNIT", help="The unit whose journal has the log.")
@click.option(
    "--smtpd-log", metavar="DIR", shell_complete=complete_file,
    help="The same of queue-smtpd; default: it is looked for.",
)  # fmt: skip
@click.option("-f", "--follow", "following", is_flag=True, help="Print new lines, too, as they come.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def command(
    context: click.Context,
    name: str | None,
    logs: str | None,
    journal: str | None,
    smtpd_log: str | None,
    following: bool,
    form: str,
) -> None:
    """Print all lines of the log about one message, and about nothing else.

    That is from its arrival to its end, with the results of its deliveries, also of a message that has left the queue
    long ago, if the log still has it. The end of what was stored for an on-demand domain is its delivery. ID is a long
    id; a bare number is the message that is in the queue now. The last line names the messages in which its sender was
    told that it bounced, or is delayed.

    If it came by SMTP, the first lines are those of queue-smtpd's log: the begin of the session, and the transaction
    up to `queued ID`.

    The log may be that of multilog, svlogd, s6-log (with time stamps; compressed files too) or the journal.
    Exit 1: the log has no line about it.

    With --follow each new line is printed as it comes, until the message has left the queue (exit 0) or ^C
    (exit 111). Without ID these are all new lines of the log, until ^C (exit 0).

    With --format json each line is an object: time and line; the last ones have bounce or delay, a long id.

    \b
    Examples:
      queuectl log 457-h5x3k2j1z9
      queuectl log 457-h5x3k2j1z9 --logs /etc/queue-suite/log/main
      queuectl log --follow 457-h5x3k2j1z9
      queuectl log --follow
    """
    home = home_of(context)
    if logs is not None and journal is not None:
        raise Usage("give --logs or --journal, not both")
    if name is None and not following:
        raise Usage("give the ID of a message, or --follow")
    if name is not None:
        home, name = find_queue(home, name)
    elif logs is None and journal is None and not home.is_chosen:
        raise Usage(f"each queue has a log of its own: --queue names one of {', '.join(home.queues)}")
    identity = None if name is None else _read_id(home, name)
    source = _source(home, logs, journal)
    if identity is None:
        with contextlib.suppress(KeyboardInterrupt):
            for when, text in _all_new_lines(source):
                _show(when, text, form, flush=True)
        return
    message, birth = identity
    session, trouble = _session_of(home, source, smtpd_log, message, birth)
    for when, text in session:
        _show(when, text, form, flush=following)
    by_smtp = b" uid %d" % (account_uid(SMTPD_ACCOUNT) or -1)
    found = MessageLog(message, birth)
    lines = follow_lines(home, source, found, message, birth) if following else choose_lines(source, found, birth)
    try:
        for when, text in lines:
            _show(when, text, form, flush=following)
            if not session and not trouble and text.startswith(b"info ") and text.endswith(by_smtp):
                trouble = "it came by SMTP, and its session was not found: --smtpd-log names queue-smtpd's log"
    except KeyboardInterrupt:
        if following:
            context.exit(TEMPORARY)
        raise
    for made in found.made:
        identity_of_made = _made_id(home, made)
        print(json.dumps({made.kind: identity_of_made}) if form == "json" else f"{KINDS[made.kind]} {identity_of_made}")
    if not found.began:
        why = f"no line about it in {source.name}{_begins_late(source, birth)}"
        raise NotFound(f"unable to find message {name}: {why}")
    note = _doubt(home, source, found, message, birth)
    if following and not found.ended:
        note = "it is not in the queue any more, and the log does not tell how it ended"
    for one in filter(None, (note, trouble)):
        print(f"queuectl: {one}", file=sys.stderr)


def _session_of(
    home: Home, source: LogSource, smtpd_log: str | None, message: int, birth: int
) -> tuple[list[tuple[int, bytes]], str]:
    """Return the lines of the SMTP session of a message, and why they cannot be read.

    Where no log of queue-smtpd is found, it may share that of queue-send.
    """
    queue_id = pack_queue_id(home.name, pack_long_id(message, birth))
    if smtpd_log is not None:
        return session_lines(_directory(smtpd_log).lines, queue_id, birth), ""
    try:
        return session_lines((find_smtpd_log(home) or source).lines, queue_id, birth), ""
    except Failure as error:
        return [], str(error)


def _source(home: Home, logs: str | None, journal: str | None) -> LogSource:
    if journal is not None:
        return SystemdJournal(journal)
    if logs is None:
        return find_log(home)
    return _directory(logs)


def _directory(path: str) -> LogSource:
    if not os.path.exists(path):
        raise Permanent(f"unable to read {path}: no such file or directory")
    return LogDirectory(path.rstrip("/") or "/")


def _show(when: int, text: bytes, form: str, flush: bool) -> None:
    shown, line = precise(when // 1000), visible(text)
    print(json.dumps({"time": shown, "line": line}) if form == "json" else f"{shown} {line}", flush=flush)


def follow_lines(
    home: Home, source: LogSource, found: MessageLog, message: int, birth: int
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines about the message of `found`, also new ones, until its end and that of what is stored of it.

    A message that is not in the queue any more, or whose end has been logged, has SETTLE seconds for its last lines:
    those of its bounce come after its end.
    """
    # Imported here, because pyinotify takes long to load.
    from queue_admin.logs.log_follower import follow

    with contextlib.closing(follow(source, birth * 1000)) as follower:
        gone, look_at = not _is_here(home, message, birth), time.monotonic() + SETTLE
        while True:
            for when, text in follower.lines(found.may_concern):
                yield from found.take(when, text)
                if found.over:
                    return
            if (left := look_at - time.monotonic()) > 0:
                follower.wait(left)
            elif gone and not found.stored:
                return
            else:
                gone, look_at = found.ended or not _is_here(home, message, birth), time.monotonic() + SETTLE


def _all_new_lines(source: LogSource) -> Iterator[tuple[int, bytes]]:
    from queue_admin.logs.log_follower import follow

    with contextlib.closing(follow(source, time.time_ns())) as follower:
        while True:
            yield from follower.lines(lambda line: True)
            follower.wait(60.0)


def choose_lines(source: LogSource, found: MessageLog, birth: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines about the message of `found`, up to its end."""
    for when, text in source.lines(birth * 1000, found.may_concern):
        yield from found.take(when, text)
        if found.over:
            return


def _read_id(home: Home, name: str) -> tuple[int, int]:
    """Return the number and the birth of a message. Raises Usage, NotFound."""
    message, birth = read_id(name)
    if birth is None:
        snapshot = look(open_layout(home.queue), message)
        if snapshot is None or snapshot.birth is None:
            raise NotFound(f"unable to find message {name}: it is not in the queue; name its long id")
        birth = snapshot.birth
    return message, birth


def _made_id(home: Home, made: MadeMessage) -> str:
    """Return the long id of a message; once it has left the queue, one with the time of its `new msg` line.

    Its real birth is not known any more then. `queuectl log` finds it by that one too: its `new msg` line is the first
    one after both.
    """
    logged = made.when // 1000
    try:
        snapshot = look(open_layout(home.queue), made.message)
    except Failure:
        snapshot = None
    if snapshot is not None and snapshot.birth is not None and logged - 60_000_000 <= snapshot.birth <= logged:
        return pack_queue_id(home.name, snapshot.long_id)
    return pack_queue_id(home.name, pack_long_id(made.message, logged))


def _begins_late(source: LogSource, birth: int) -> str:
    begin = source.begin()
    if begin is None:
        return "; no line of it has a time stamp"
    if begin // 1000 <= birth:
        return ""
    return f"; the log begins at {precise(begin // 1000)}"


def _doubt(home: Home, source: LogSource, found: MessageLog, message: int, birth: int) -> str:
    """Return what is not certain about the lines; empty if nothing is."""
    late = _begins_late(source, birth)
    if not found.begins_new:
        return f"its arrival is not among them: it was requeued later, or the log does not reach back to it{late}"
    if late and not _is_queued(home, message, birth):
        return f"the lines may be those of a later message with its number: it came before{late}"
    return ""


def _is_queued(home: Home, message: int, birth: int) -> bool:
    return _birth(home, message) == birth


def _is_here(home: Home, message: int, birth: int) -> bool:
    """Return whether a message is in the queue, be it requeued, which gives it a later birth."""
    now = _birth(home, message)
    return now is not None and now >= birth


def _birth(home: Home, message: int) -> int | None:
    try:
        snapshot = look(open_layout(home.queue), message)
    except Failure:
        return None
    return None if snapshot is None else snapshot.birth
