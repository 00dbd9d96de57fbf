"""The lines that docs/logs.md lists, as templates, and the Spark expressions that read them.

A template's words are separated by single spaces, as those of a line are. A word is literal but for one field, or for
two numbers with a slash between: `{name}` is a number, `{name$}` text without a space, maybe empty, `{name$$}` text
that may have spaces; a last word `…` stands for any number of words.

One regular expression says whether a line is one of them. So what is taken out of a line needs no look of its own.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

_FIELD = re.compile(r"(?P<before>[^{]*)\{(?P<name>\w+)(?P<text>\$*)\}(?P<after>.*)")
_INTS = ("local_now", "local_limit", "remote_now", "remote_limit")

# Event kind and template, those of the most lines first. Of kinds with the same first word, the last is what a line is
# where the first literal word of the others is not there.
TEMPLATES = (
    ("exiting", "status: exiting"),
    ("status", "status: local {local_now}/{local_limit} remote {remote_now}/{remote_limit}"),
    ("status", "status: local {local_now}/{local_limit} remote {remote_now}/{remote_limit} exitasap"),
    ("mangled", "delivery {delivery}: report mangled, will defer"),
    ("done", "delivery {delivery}: {result$}: {reason$}"),
    ("start", "starting delivery {delivery}: msg {message} to {channel$} {recipient$}"),
    ("new", "new msg {message}"),
    ("info", "info msg {message}: bytes {bytes} from <{sender$$}> qp {qp} uid {uid}"),
    ("end", "end msg {message}"),
    ("bounce", "bounce msg {message} qp {qp}"),
    ("delay", "delay msg {message} qp {qp}"),
    ("triple", "triple bounce: discarding bounce/{message}"),
    ("triple", "double bounce: discarding bounce/{message}"),  # netqmail's, where doublebounceto is empty.
    ("corrupt", "corrupt msg {message}: …"),
    ("hold", "hold msg {message}: …"),
    ("release", "release msg {message}"),
    ("dest", "dest {nexthop$} dead: …"),
    ("dest", "dest {nexthop$} alive: …"),
    ("inflow", "inflow slow: …"),
    ("inflow", "inflow refused: …"),
    ("inflow", "inflow free: …"),
    ("alert", "alert: …"),
    ("warning", "warning: …"),
)
# What else a text field must be.
_CHOICES = {"result": "(?:success|failure|deferral)", "channel": "(?:local|remote)"}
FIRST_WORDS = tuple(dict.fromkeys(template.split(" ")[0] for _, template in TEMPLATES))


def line_pattern() -> str:
    """Return the regular expression (Java's) of a line: a stamp, a space and an event."""
    return f"^@[0-9a-f]{{24}} (?:{'|'.join(_event_pattern(template) for _, template in TEMPLATES)})\\z"


def _event_pattern(template: str) -> str:
    found = []
    for word in template.split(" "):
        if "}/{" in word:
            found.append("[0-9]++/[0-9]++")
        elif field := _FIELD.fullmatch(word):
            text = {"": "[0-9]++", "$": "[^ ]*", "$$": "(?s:.*)"}[field["text"]]
            found.append(re.escape(field["before"]) + _CHOICES.get(field["name"], text) + re.escape(field["after"]))
        else:
            found.append("(?s:.*)" if word == "…" else re.escape(word))
    return " ".join(found)


def find_kind(words: Column) -> Column:
    """Return the kind of a line that fits line_pattern(). words: an array, whose first one is the stamp."""
    first = F.get(words, F.lit(1))
    chain: Any = F
    for word in FIRST_WORDS:
        kinds = {kind: template.split(" ") for kind, template in TEMPLATES if template.split(" ")[0] == word}
        *others, last = kinds
        found: Any = F
        for kind in others:
            place, literal = next((n, part) for n, part in enumerate(kinds[kind][1:], 2) if "{" not in part)
            found = found.when(F.get(words, F.lit(place)) == literal, kind)
        chain = chain.when(first == word, found.otherwise(last) if others else F.lit(last))
    kind_of: Column = chain
    return kind_of


def find_fields(words: Column, kind: Column) -> dict[str, Column]:
    """Return the fields of a line of this kind. A number is null where it does not fit its type."""
    found: dict[str, dict[_Word, list[str]]] = {}
    for one, template in TEMPLATES:
        for name, word in _words_of(template):
            kinds = found.setdefault(name, {}).setdefault(word, [])
            kinds += [] if one in kinds else [one]
    fields = {}
    for name, places in found.items():
        chain: Any = F
        for word, kinds in places.items():
            chain = chain.when(kind.isin(*kinds), word.take(words))
        fields[name] = chain.cast("int" if name in _INTS else "string" if next(iter(places)).is_text else "long")
    return fields


def lacks(kind: Column, fields: Mapping[str, Column]) -> Column:
    """Return whether a number of a line of this kind is null, as it is over 2^63."""
    checks = []
    for name, field in fields.items():
        kinds = [one for one, template in TEMPLATES if f"{{{name}}}" in template]
        if kinds:
            checks.append(field.isNull() & kind.isin(*dict.fromkeys(kinds)))
    return reduce(or_, checks)


@dataclass(frozen=True)
class _Word:
    """Where a field is: its word's place from the line's start or, below 0, end; how much of the word is around it."""

    place: int
    before: int
    after: int
    side: int = 0
    is_text: bool = False
    is_open: bool = False
    size: int = 0

    def take(self, words: Column) -> Column:
        """Return the field's text."""
        size = F.size(words)
        word = F.get(words, F.lit(self.place) if self.place > 0 else size + self.place)
        if self.is_open:
            joined = F.array_join(F.slice(words, F.lit(self.place + 1), size - (self.size - 1)), " ")
            word = F.when(size == self.size, word).otherwise(joined)
        if self.side:
            return F.substring_index(word, "/", self.side)
        if self.before or self.after:
            return F.substring(word, F.lit(self.before + 1), F.length(word) - (self.before + self.after))
        return word


def _words_of(template: str) -> Iterator[tuple[str, _Word]]:
    """Yield the fields of a template: name and word. Those behind a word that may have spaces count from the end."""
    expected = template.split(" ")
    is_behind = False
    for place, part in enumerate(expected, start=1):
        if "}/{" in part:
            for side, name in zip((1, -1), part.split("/"), strict=True):
                yield name[1:-1], _Word(place, 0, 0, side)
        elif field := _FIELD.fullmatch(part):
            is_open = field["text"] == "$$"
            around = len(field["before"]), len(field["after"])
            where = place - len(expected) - 1 if is_behind else place
            yield field["name"], _Word(where, *around, 0, bool(field["text"]), is_open, len(expected) + 1)
            is_behind |= is_open
