"""Recipients by domain and age, as Postfix's qshape counts and prints them. Pure.

The columns are ages in minutes: the first is [0, first), and each further one ends at twice the age of the one before
it, or, with `linear`, `first` later. The last has no end. A message that is younger than nothing counts in the first.

With `parents` a domain also counts for its parent domains, `.example.com` for mail.example.com, except for top level
domains. A parent is shown if it has at least `least_subdomains`.

A queue may have a domain for each recipient: those beyond DOMAINS_MAX are counted together, as OTHERS.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from queue_admin.printable import visible
from queue_wire.address import DOUBLE_BOUNCE_SENDER, domain_key

DOMAINS_MAX = 100_000  # Some 300 bytes each.
NO_SENDER = b"MAILER-DAEMON"
OTHERS = b"(others)"
TOTAL = b"TOTAL"
WIDTH = 80  # Columns of the text, at least.
_LOG_2 = math.log(2)
_NAME_MIN = 18  # Columns of the names, at least.
_DOTS = re.compile(rb"\.?(.+?)\.?$")
_PARENT = re.compile(rb"^(?:\.)?[^.]+\.(.*\.)")


class AgeRow(NamedTuple):
    """A domain, or TOTAL: all that it has, and the counts of each column."""

    domain: bytes
    total: int
    counts: list[int]


def shape_domain(address: bytes) -> bytes:
    """Return the domain of an address as it is counted: in lower case, with A-labels.

    It has no dot at either end, nor two together. An address without a domain counts by itself, and the sender of a
    bounce as MAILER-DAEMON.
    """
    if address in (b"", DOUBLE_BOUNCE_SENDER):
        return NO_SENDER
    domain = address.lower().rpartition(b"@")[2]
    if not domain.isascii():
        domain = domain_key(domain)
    if b".." in domain or domain[:1] == b"." or domain[-1:] == b".":
        domain = _DOTS.sub(rb"\1", domain.replace(b"..", b"."), count=1)
    return domain


class AgeTable:
    """The counts. `buckets` is the number of columns, `first` the end of the first one, in minutes."""

    def __init__(
        self,
        buckets: int = 10,
        first: float = 5,
        linear: bool = False,
        parents: bool = False,
        least_subdomains: int = 5,
    ) -> None:
        self._buckets = buckets
        self._first = first
        self._linear = linear
        self._parents = parents
        self._least = least_subdomains
        self._total = [0] * (buckets + 1)
        self._counts: dict[bytes, list[int]] = {}

    @property
    def titles(self) -> list[str]:
        """The heads of the columns: where each ends, in minutes; the last one with a plus sign."""
        end, found = 0.0, []
        for _ in range(self._buckets - 1):
            end += end if end and not self._linear else self._first
            found.append(f"{end:.15g}")
        return [*found, f"{end:.15g}+"]

    def column(self, age: float) -> int:
        """Return the index of the column for an age in seconds."""
        units = age / (60 * self._first)
        if units < 1:
            return 0
        index = int(units) if self._linear else 1 + int(math.log(units) / _LOG_2)
        return min(index, self._buckets - 1)

    def add(self, domain: bytes, column: int) -> None:
        """Count a recipient, or a sender, in a column."""
        place = column + 1
        self._total[0] += 1
        self._total[place] += 1
        counts = self._counts.get(domain)
        if counts is None:
            counts = self._add_domain(domain)
        counts[0] += 1
        counts[place] += 1
        while self._parents and (parent := _parent(domain)) is not None:
            domain = parent
            counts = self._add_domain(domain)
            counts[0] += 1
            counts[place] += 1

    def merge(self, other: "AgeTable") -> None:
        """Add the counts of a table of the same columns."""
        self._total = [one + more for one, more in zip(self._total, other._total, strict=True)]
        for domain, counts in other._counts.items():
            known = self._add_domain(domain)
            for place, count in enumerate(counts):
                known[place] += count

    def _add_domain(self, domain: bytes) -> list[int]:
        """Return the counts of a domain, or those of OTHERS if it is one too many."""
        if len(self._counts) >= DOMAINS_MAX and domain not in self._counts:
            domain = OTHERS
        return self._counts.setdefault(domain, [0] * (self._buckets + 1))

    def rows(self, most: int | None = None) -> list[AgeRow]:
        """Return the rows, TOTAL first, then those with the most; at most `most` of them, with TOTAL."""
        subdomains = Counter(_parent(domain) for domain in self._counts) if self._parents else Counter()
        shown = [
            (domain, counts)
            for domain, counts in self._counts.items()
            if domain[:1] != b"." or subdomains[domain] >= self._least
        ]
        shown.sort(key=lambda row: (-row[1][0], len(row[0]), row[0]))
        rows = [(TOTAL, self._total), *shown]
        return [AgeRow(domain, counts[0], counts[1:]) for domain, counts in rows[:most]]

    def text(self, width: int = WIDTH, most: int | None = None) -> Iterator[str]:
        """Yield the lines of qshape's table, without line ends. A name that is too long loses its beginning."""
        rows = self.rows(most)
        heads = ["T", *self.titles]
        widths = [_column_width(head, count) for head, count in zip(heads, self._total, strict=True)]
        name_width = max(width - sum(widths), _NAME_MIN)
        yield _line("", heads, widths, name_width)
        for row in rows:
            yield _line(visible(row.domain), [str(row.total), *map(str, row.counts)], widths, name_width)


def _parent(domain: bytes) -> bytes | None:
    """Return the parent domain, with its dot; None if that would be a top level domain."""
    parent = _PARENT.sub(rb".\1", domain, count=1)
    return None if parent == domain else parent


def _column_width(head: str, count: int) -> int:
    wanted = max(len(head), len(str(count)))
    return wanted + 1 if wanted > 2 else 3


def _line(name: str, cells: list[str], widths: list[int], name_width: int) -> str:
    if len(name) > name_width:
        # A parent domain keeps its dot.
        sign = ".+" if name.startswith(".") else "+"
        name = sign + name[len(name) - name_width + len(sign) :]
    return name.rjust(name_width) + "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
