"""The lines that LOGS.md lists, as templates, and the Spark expressions that read them.

A template's words are separated by single spaces, as those of a line are. A word is literal but for one field, or for
two numbers with a slash between: `{name}` is a number, `{name$}` text without a space,
maybe empty; a last word `…` stands for any number of words.
"""

import re
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

_FIELD = re.compile(r"(?P<before>[^{]*)\{(?P<name>\w+)(?P<text>\$?)\}(?P<after>.*)")
_INTS = ("local_now", "local_limit", "remote_now", "remote_limit")

# Event kind and template. More than one of a kind: the word that tells them apart is literal in each.
TEMPLATES = (
    ("new", "new msg {message}"),
    ("info", "info msg {message}: bytes {bytes} from <{sender$}> qp {qp} uid {uid}"),
    ("start", "starting delivery {delivery}: msg {message} to {channel$} {recipient$}"),
    ("done", "delivery {delivery}: {result$}: {reason$}"),
    ("mangled", "delivery {delivery}: report mangled, will defer"),
    ("end", "end msg {message}"),
    ("bounce", "bounce msg {message} qp {qp}"),
    ("delay", "delay msg {message} qp {qp}"),
    ("triple", "triple bounce: discarding bounce/{message}"),
    ("triple", "double bounce: discarding bounce/{message}"),  # netqmail's, where doublebounceto is empty.
    ("status", "status: local {local_now}/{local_limit} remote {remote_now}/{remote_limit}"),
    ("status", "status: local {local_now}/{local_limit} remote {remote_now}/{remote_limit} exitasap"),
    ("exiting", "status: exiting"),
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
CHOICES = {"result": ("success", "failure", "deferral"), "channel": ("local", "remote")}


@dataclass(frozen=True)
class Field:
    """A field of a template: which word of the line it is in, and what stands before and after it there."""

    name: str
    is_text: bool
    word: Column
    before: str
    after: str

    @property
    def value(self) -> Column:
        """Return the field; null where it is a number and the word has none."""
        inner = self.word
        if self.before or self.after:
            size = F.length(self.word) - (len(self.before) + len(self.after))
            inner = F.substring(self.word, F.lit(len(self.before) + 1), size)
        if self.is_text:
            return inner
        return inner.cast("int" if self.name in _INTS else "long")

    @property
    def fits(self) -> Column:
        """Return whether the word is what the template says: a number must print as what was read."""
        if self.is_text:
            checks = [self.value.isin(*CHOICES[self.name])] if self.name in CHOICES else []
            if self.before:
                checks.append(self.word.startswith(self.before))
            if self.after:
                checks.append(self.word.endswith(self.after))
            least = len(self.before) + len(self.after)
            return reduce(lambda one, other: one & other, checks, F.length(self.word) >= least)
        parts = [F.lit(part) for part in (self.before,) if part] + [self.value.cast("string")]
        parts += [F.lit(part) for part in (self.after,) if part]
        digits = self.word.rlike(f"^{re.escape(self.before)}[0-9]+{re.escape(self.after)}\\z")
        # The comparison is cheaper and nearly always enough; a number with zeros before it fails it.
        return self.value.isNotNull() & (((F.concat(*parts) == self.word) & (self.value >= 0)) | digits)


@dataclass(frozen=True)
class Template:
    """A template over the words of a line, an array column whose first word is the stamp."""

    kind: str
    first: str
    fields: tuple[Field, ...]
    fits: Column


def read_template(kind: str, template: str, words: Column) -> Template:
    """Return the expressions of one template."""
    expected = template.split(" ")
    fields: list[Field] = []
    is_open = expected[-1] == "…"
    checks = [F.size(words) >= len(expected) + 1 if is_open else F.size(words) == len(expected) + 1]
    for place, part in enumerate(expected[:-1] if is_open else expected, start=1):
        word = F.get(words, F.lit(place))
        if "}/{" in part:
            sides = [F.substring_index(word, "/", 1), F.substring_index(word, "/", -1)]
            pair = [Field(name[1:-1], False, side, "", "") for name, side in zip(part.split("/"), sides, strict=True)]
            fields += pair
            checks += [one.fits for one in pair] + [F.concat_ws("/", *sides) == word]
        elif field := _FIELD.fullmatch(part):
            fields.append(Field(field["name"], bool(field["text"]), word, field["before"], field["after"]))
            checks.append(fields[-1].fits)
        elif place > 1:
            checks.append(word == part)
    return Template(kind, expected[0], tuple(fields), reduce(lambda one, other: one & other, checks))
