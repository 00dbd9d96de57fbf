"""The table of all lines (LINES of send_log.py, ondemand_log.py, smtp_log.py), and how an event is read by it.

A row is a kind, a template and a rule. A template is text with fields: `{name}` is a number, `{name$}` text without a
space, maybe empty, `{name$$}` text that may have spaces, `{name=REGEX}` what fits that. A number is below 2^63, those
of LEVEL below 2^31. Of the templates that fit, the first counts; one whose third word has no field comes before those
of the same first word whose third word has. What no template fits is no line of the log; if no template has its first
word, it is counted under that (see first_word).
"""

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from queue_report.match import ondemand_log, send_log, smtp_log
from queue_report.match.found import LineRow, Rule
from queue_report.match.stamps import STAMP, time_of
from queue_report.schema.columns import LEVEL

Value: TypeAlias = int | bytes
Fits: TypeAlias = Callable[[bytes], "re.Match[bytes] | None"]

_FIELD = re.compile(r"\{(\w+)(\$*)(?:=([^}]*))?\}")
_TEXTS = {"$": "([^ ]*)", "$$": "(.*)"}
_WORD = re.compile(rb"[a-z][a-z0-9_-]{0,30}:?(?= |\Z)")

HEAD = 5
# The lines of the queue's own programs, and those of others in the same log, such as queue-smtpd.
OWN: tuple[LineRow, ...] = (*send_log.LINES, *ondemand_log.LINES)
OTHERS: tuple[LineRow, ...] = (*send_log.LINES_OF_OTHERS, *smtp_log.LINES)


class Kind(NamedTuple):
    """A row of the table, compiled: what fits its template, and for each field what its number must be below, 0 for
    text. own: it is of the queue's own programs."""

    name: str
    template: str
    rule: Rule | None
    fits: Fits
    bounds: tuple[int, ...]
    own: bool


Event: TypeAlias = tuple[Kind, tuple[Value, ...]]


def _compile(template: str, number: str = "([0-9]+)") -> Fits:
    pattern, at = "", 0
    for field in _FIELD.finditer(template):
        pattern += re.escape(template[at : field.start()])
        pattern += f"({field[3]})" if field[3] else _TEXTS.get(field[2], number)
        at = field.end()
    return re.compile((pattern + re.escape(template[at:])).encode(), re.DOTALL).fullmatch


def _bounds(template: str) -> tuple[int, ...]:
    fields = _FIELD.finditer(template)
    return tuple(0 if field[2] or field[3] else 2**31 if field[1] in LEVEL else 2**63 for field in fields)


def _words(template: str) -> tuple[bytes, bytes]:
    """Return the first and the third word of a template, empty if there is none or it has a field."""
    words = [b"" if re.search("[{}]", word) else word.encode() for word in [*template.split(" "), "", ""]]
    return words[0], words[2]


_KINDS: dict[tuple[bytes, bytes], list[Kind]] = {}
for _rows, _own in ((OWN, True), (OTHERS, False)):
    for _name, _template, _rule in _rows:
        _kind = Kind(_name, _template, _rule, _compile(_template), _bounds(_template), _own)
        _KINDS.setdefault(_words(_template), []).append(_kind)
_FIRST_WORDS = {first for first, _ in _KINDS}
# What is tried after those of an event's first and third word: those of its first, then those of any.
_OF_ANY = _KINDS.pop((b"", b""))
_OF_FIRST = {first: _KINDS.pop((first, b""), []) + _OF_ANY for first in _FIRST_WORDS}
_OF_BOTH = {words: kinds + _OF_FIRST[words[0]] for words, kinds in _KINDS.items()}


def quick(rule: Rule) -> tuple[bytes, tuple[str, Fits, Rule]]:
    """Return how lines of a rule of queue-send are read if they are very many: their first HEAD bytes; their kind, what
    fits them, and the rule, which takes numbers as their digits. These are so few that each number is in its bounds;
    what does not fit may be such a line all the same."""
    name, template = next((name, template) for name, template, one in OWN if one is rule)
    return template[:HEAD].encode(), (name, _compile(template, "([0-9]{1,18})"), rule)


def parse_event(text: bytes) -> Event | None:
    """Return the kind of an event and the values of its fields, in order; None for what is no event."""
    first, _, rest = text.partition(b" ")
    third = rest.partition(b" ")[2].partition(b" ")[0]
    kinds = _OF_BOTH.get((first, third)) or _OF_FIRST.get(first, _OF_ANY)
    for kind in kinds:
        match = kind.fits(text)
        if match is not None:
            return _read(kind, match.groups())
    return None


def is_line(line: bytes) -> bool:
    """Return whether a line is one of the log, whole: a stamp whose time can be told, and an event."""
    return time_of(line) is not None and parse_event(line[STAMP:]) is not None


def _read(kind: Kind, groups: tuple[bytes, ...]) -> Event | None:
    values: list[Value] = []
    for group, bound in zip(groups, kind.bounds, strict=True):
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
    return None if word is None or word[0] in _FIRST_WORDS else word[0].decode()
