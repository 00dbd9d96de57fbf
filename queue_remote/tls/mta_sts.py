"""MTA-STS (RFC 8461): the TXT record that says that a domain has a policy, and the policy itself.

What is not as the RFC says is a FormatError: it is as if the domain had no policy, or kept the one that it had.
"""

import enum
import re
from collections.abc import Iterable
from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted

# Section 3.2: about a year.
MAX_AGE_MOST = 31557600
# Section 3.3: larger policies may be refused.
POLICY_MOST = 65536

_RECORD = re.compile(rb"v=STSv1[ \t]*;")
_ID = re.compile(rb"[A-Za-z0-9]{1,32}")
_PATTERN = re.compile(rb"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")


class Mode(enum.Enum):
    """ENFORCE: hosts that fail get no mail. TESTING: they get it, and the domain wants to know. NONE: no policy."""

    ENFORCE = b"enforce"
    TESTING = b"testing"
    NONE = b"none"


class StsPolicy(NamedTuple):
    """`max_age` in seconds; `patterns` are the names that the domain's mail exchangers may have.

    `names` are the same in lower case and without a final dot: a host is looked up, not compared with each.
    """

    mode: Mode
    max_age: int
    patterns: tuple[bytes, ...]
    names: frozenset[bytes]

    def allows(self, host: bytes) -> bool:
        """Return whether a mail exchanger may have this name: a pattern, or what `*.` stands for (section 4.1)."""
        host = host.lower().removesuffix(b".")
        label, dot, parent = host.partition(b".")
        return (bool(host) and host in self.names) or (bool(label and dot) and b"*." + parent in self.names)


def unpack_record(records: Iterable[bytes]) -> bytes | None:
    """Return the policy's id from the TXT records of `_mta-sts.DOMAIN`, each one's strings joined (section 3.1).

    None where no record is MTA-STS's. Raises FormatError where several are, or it has no id.
    """
    ours = [record for record in records if _RECORD.match(record)]
    if not ours:
        return None
    if len(ours) > 1:
        raise FormatError(f"{len(ours)} records with v=STSv1")
    for field in ours[0].split(b";")[1:]:
        key, _, value = field.partition(b"=")
        if key.strip(b" \t") == b"id":
            found = value.strip(b" \t")
            if not _ID.fullmatch(found):
                break
            return found
    raise FormatError(f"no id: {quoted(ours[0])}")


def unpack_policy(text: bytes) -> StsPolicy:
    """Return the policy in a file (section 3.2). Raises FormatError.

    The first of equal keys counts, `mx` excepted; keys that nobody knows yet do not count.
    """
    values: dict[bytes, bytes] = {}
    patterns: list[bytes] = []
    for line in text.split(b"\n"):
        if not line:
            continue
        key, colon, value = line.removesuffix(b"\r").partition(b":")
        value = value.strip(b" \t")
        if colon and key == b"mx":
            patterns.append(value)
        elif colon:
            values.setdefault(key, value)
    if values.get(b"version") != b"STSv1":
        raise FormatError("no version STSv1")
    try:
        mode = Mode(values.get(b"mode"))
    except ValueError as error:
        raise FormatError(f"no known mode: {quoted(values.get(b'mode', b''))}") from error
    age = values.get(b"max_age", b"")
    if not age.isdigit() or len(age) > 10:
        raise FormatError(f"no max_age: {quoted(age)}")
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise FormatError(f"not a name for mx: {quoted(pattern)}")
    if not patterns and mode is not Mode.NONE:
        raise FormatError("no mx")
    names = frozenset(pattern.lower().removesuffix(b".") for pattern in patterns)
    return StsPolicy(mode, min(int(age), MAX_AGE_MOST), tuple(patterns), names)
