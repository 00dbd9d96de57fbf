"""The lines that docs/logs.md lists, as templates, and how an event is read by them.

A template is text with fields: `{name}` is a number, `{name$}` text without a space, maybe empty, `{name$$}` text that
may have spaces, `{name=a|b}` one of some words. A number is below 2^63, those of LEVELS below 2^31.

Another program's lines are one more template here, and a rule of the same name in rules.py where they tell of
something that is kept; without a rule they are counted by kind, no more. Those of queue-ondemand are `ondemand_…`, and
its rules are in ondemand_log.py. Those of queue-smtpd are `smtp_…`; their rules are in smtp_log.py, and a line of a
session that is none of these is `smtp_other`. What has a first word that no template has is counted under that word
(see first_word).
"""

import re
from collections.abc import Callable
from typing import TypeAlias

from queue_report.match.stamps import STAMP, time_of

# An address and a port, in a line of queue-smtpd.
_PLACE = r"{address=[^ :\[]*|\[[^ \]]*\]}:{port}"
# What was refused, the reply, and in newer lines the client.
_REFUSED = r"{verb=early talker|[^ ]*}{what= [^ ]*|}: {reply=[2-5][0-9][0-9](?:_[^ ]*)?}{client= client [^ ]*|}"
# Kind of event and template. Of those that fit, the first counts.
TEMPLATES = (
    ("status", "status: local {local_now}/{local_limit} remote {remote_now}/{remote_limit}"),
    ("status", "status: local {local_now}/{local_limit} remote {remote_now}/{remote_limit} exitasap"),
    ("exiting", "status: exiting"),
    ("start", "starting delivery {delivery}: msg {message} to {address=(?:local|remote) [^ ]*}"),
    ("done", "delivery {delivery}: {result=success|failure|deferral}: {reason$}"),
    ("mangled", "delivery {delivery}: report mangled, will defer"),
    ("new", "new msg {message}"),
    ("info", "info msg {message}: bytes {bytes} from <{sender$$}> qp {qp} uid {uid}"),
    ("end", "end msg {message}"),
    ("bounce", "bounce msg {message} qp {qp}"),
    ("delay", "delay msg {message} qp {qp}"),
    ("triple", "triple bounce: discarding bounce/{message}"),
    ("triple", "double bounce: discarding bounce/{message}"),  # netqmail's, where doublebounceto is empty.
    ("corrupt", "corrupt msg {message}: {why$$}"),
    ("hold", "hold msg {message}: {why$$}"),
    ("delete", "delete msg {message}: {why$$}"),
    ("release", "release msg {message}"),
    ("requeue", "requeue msg {message}: {why$$}"),
    ("dest", "dest {nexthop$} dead: {text$$}"),
    ("dest", "dest {nexthop$} alive: {text$$}"),
    ("ondemand_stored", "ondemand {domain$} stored {id$}: bytes {bytes} from <{sender$}> to {recipient$}"),
    ("ondemand_done", "ondemand {domain$} done {id$}: to {recipient$} {result=success|failure}: {reason$}"),
    ("ondemand_stays", "ondemand {domain$} stays {id$}: to {recipient$} deferral: {reason$}"),
    ("ondemand_requeued", "ondemand {domain$} requeued {id$}: qp {qp} to {recipient$}"),
    ("ondemand_started", "ondemand {domain$} started: {cause$}"),
    ("ondemand_ended", "ondemand {domain$} ended: delivered {delivered} failed {failed} deferred {deferred}"),
    ("ondemand", "ondemand {domain$} {text$$}"),
    ("inflow", "inflow slow: {text$$}"),
    ("inflow", "inflow refused: {text$$}"),
    ("inflow", "inflow free: {text$$}"),
    ("config", "config {text$$}"),
    ("alert", "alert: {text$$}"),
    ("warning", "warning: {text$$}"),
    # Those of queue-smtpd.
    ("smtp_to", "smtp {session}: to <{recipient$}>"),
    ("smtp_from", "smtp {session}: from <{sender$}> bytes {bytes}"),
    ("smtp_connect", f"smtp {{session}}: connect {_PLACE} {{name$}} to {_PLACE}"),
    ("smtp_end", "smtp {session}: end {reason$}: messages {messages} errors {errors} seconds {seconds}"),
    ("smtp_queued", "smtp {session}: queued {id$} bytes {bytes} recipients {recipients}"),
    ("smtp_refused", f"smtp {{session}}: refused {_REFUSED}"),
    ("smtp_tls_failed", "smtp {session}: tls failed: {why$}"),
    ("smtp_tls", "smtp {session}: tls {version$} {cipher$}"),
    ("smtp_auth", "smtp {session}: auth {user$} {mechanism$}"),
    ("smtp_atrn", "smtp {session}: atrn {domains$}: {reply=2[0-9][0-9]}"),
    ("smtp_etrn", "smtp {session}: etrn {node$}: {reply=2[0-9][0-9]}"),
    ("smtp_dropped", "smtp {session}: dropped"),
    ("smtp_discarded", "smtp {session}: discarded bytes {bytes} recipients {recipients}"),
    ("smtp_filter", "smtp {session}: filter {name$} {what$$}"),
    ("smtp_start", "smtp start: process {place} of {count} pid {pid}"),
    ("smtp_other", "smtp {session}: {text$$}"),
    # Those of a super-server that runs it: a process, whose pid is the number of its session, has ended.
    ("smtp_gone", "tcpserver: end {session} {how=status [0-9]+}"),
    ("smtp_gone", "tcpsvd: info: end {session} {how=(?:exit|signal) [0-9]+}"),
    ("tcpserver", "tcpserver: {what=(?:status:|pid|ok|deny|end) .*}"),
    ("tcpserver", "tcpsvd: info: {text$$}"),
)
LEVELS = ("local_now", "local_limit", "remote_now", "remote_limit")

Value: TypeAlias = int | bytes
Event: TypeAlias = tuple[str, tuple[Value, ...]]
Fits: TypeAlias = Callable[[bytes], "re.Match[bytes] | None"]

_FIELD = re.compile(r"\{(\w+)(\$*)(?:=([^}]*))?\}")
_FORMS = {"": "([0-9]+)", "$": "([^ ]*)", "$$": "(.*)"}
# PROGRAM: alert: …, from another program's stderr; and PROGRAM: config …, of a daemon that has reread its files.
_FOREIGN = re.compile(rb"([!-9;-~]+: )(?:(alert|warning|fatal): |config )(.*)", re.DOTALL)
_WORD = re.compile(rb"[a-z][a-z0-9_-]{0,30}:?(?= |\Z)")


def _compile(template: str) -> tuple[Fits, tuple[int, ...]]:
    """Return what fits a template, and for each field what its number must be below; 0 for text."""
    pattern, bounds, at = "", [], 0
    for field in _FIELD.finditer(template):
        pattern += re.escape(template[at : field.start()])
        pattern += f"({field[3]})" if field[3] else _FORMS[field[2]]
        bounds.append(0 if field[2] or field[3] else 2**31 if field[1] in LEVELS else 2**63)
        at = field.end()
    return re.compile((pattern + re.escape(template[at:])).encode(), re.DOTALL).fullmatch, tuple(bounds)


_KINDS: dict[bytes, list[tuple[str, Fits, tuple[int, ...]]]] = {}
for _kind, _template in TEMPLATES:
    _KINDS.setdefault(_template.split(" ")[0].encode(), []).append((_kind, *_compile(_template)))

# Those of `smtp` by the third word, as there are many; behind them the one that fits any third word.
_SMTP: dict[bytes, list[tuple[str, Fits, tuple[int, ...]]]] = {}
for _kind, _template in TEMPLATES:
    if _template.startswith("smtp "):
        _SMTP.setdefault(_template.split(" ")[2].encode(), []).append((_kind, *_compile(_template)))
_ANY_SMTP = _SMTP.pop(b"{text$$}")
_SMTP = {word: kinds + _ANY_SMTP for word, kinds in _SMTP.items()}

# Of the kinds that most lines are, for those who read them line by line: what fits (no check of the bounds), and so
# many digits at most that any number is below 2^63.
FITS = {kind: kinds[0][1] for kinds in _KINDS.values() for kind in [kinds[0][0]]}
SAFE_DIGITS = 18


def parse_event(text: bytes) -> Event | None:
    """Return the kind of an event and the values of its fields, in order; None for what is no event.

    Another program's alert is a `foreign alert`; its text begins with the program's name, as in ours of a daemon. A
    daemon's `config` is a `foreign config`.
    """
    if text.startswith(b"smtp "):
        third = text.find(b" ", 5) + 1
        end = text.find(b" ", third)
        kinds = _SMTP.get(text[third : end if end >= 0 else None], _ANY_SMTP)
    else:
        kinds = _KINDS.get(text[: text.find(b" ")], [])
    for kind, fits, bounds in kinds:
        match = fits(text)
        if match is not None:
            return _read(kind, match.groups(), bounds)
    foreign = _FOREIGN.fullmatch(text)
    if foreign is None:
        return None
    if foreign[2] is None:
        return "foreign config", (foreign[1] + foreign[3],)
    return "foreign " + ("warning" if foreign[2] == b"warning" else "alert"), (foreign[1] + foreign[3],)


def counted_as(kind: str) -> str:
    """Return under which kind the lines of an event's kind are counted (docs/logs.md)."""
    kind = kind.removeprefix("foreign ")
    return "done" if kind == "mangled" else "ondemand" if kind.startswith("ondemand") else kind


def is_line(line: bytes) -> bool:
    """Return whether a line is one of the log, whole: a stamp whose time can be told, and an event."""
    return time_of(line) is not None and parse_event(line[STAMP:]) is not None


def _read(kind: str, groups: tuple[bytes, ...], bounds: tuple[int, ...]) -> Event | None:
    values: list[Value] = []
    for group, bound in zip(groups, bounds, strict=True):
        if not bound:
            values.append(group)
            continue
        # Python refuses to read thousands of digits.
        digits = group.lstrip(b"0")
        number = int(digits or b"0") if len(digits) < 20 else bound
        if number >= bound:
            return None
        values.append(number)
    return kind, tuple(values)


def first_word(text: bytes) -> str | None:
    """Return the first word of an event that no template fits, None where it is no word or some template has it."""
    word = _WORD.match(text)
    return None if word is None or word[0] in _KINDS else word[0].decode()
