"""What the log pipeline must make of any bytes, in plain Python: one pass over the lines in order, one state.

It is as simple as it can be, and slow. On logs that are whole it must agree with the simulation, which knows better;
so it can be believed on damaged ones, of which nobody else knows what is right. Rules: docs/logs.md, lake/schema.py.
"""

import re
from collections.abc import Iterator

from support.spark.log_files import LABEL, Files
from support.spark.log_lives import Lives
from support.spark.log_rows import QuarantineRow, Truth

STAMPED = re.compile(rb"@([0-9a-f]{16})([0-9a-f]{8}) ")
N = r"([0-9]+)"
GRAMMAR = {
    "status": re.compile(rf"status: local {N}/{N} remote {N}/{N}(?: exitasap)?"),
    "exiting": re.compile(r"status: exiting"),
    "new": re.compile(rf"new msg {N}"),
    "info": re.compile(rf"info msg {N}: bytes {N} from <(.*)> qp {N} uid {N}", re.DOTALL),
    "start": re.compile(rf"starting delivery {N}: msg {N} to (local|remote) ([^ ]*)"),
    "done": re.compile(rf"delivery {N}: (success|failure|deferral): ([^ ]*)"),
    "mangled": re.compile(rf"delivery {N}: report mangled, will defer"),
    "bounce": re.compile(rf"bounce msg {N} qp {N}"),
    "delay": re.compile(rf"delay msg {N} qp {N}"),
    "triple": re.compile(rf"(?:triple|double) bounce: discarding bounce/{N}"),
    "end": re.compile(rf"end msg {N}"),
    "hold": re.compile(rf"hold msg {N}: (.*)", re.DOTALL),
    "corrupt": re.compile(rf"corrupt msg {N}: (.*)", re.DOTALL),
    "release": re.compile(rf"release msg {N}"),
    "dest": re.compile(r"dest [^ ]* (?:dead|alive): .*", re.DOTALL),
    "inflow": re.compile(r"inflow (?:slow|refused|free): .*", re.DOTALL),
    "alert": re.compile(r"(?:alert|warning|[!-9;-~]+: (?:alert|warning|fatal)): .*", re.DOTALL),
}
# Which groups of each are numbers, and what is too large for one.
NUMBERS = dict.fromkeys(GRAMMAR, (0,)) | {"status": (0, 1, 2, 3), "info": (0, 1, 3, 4), "start": (0, 1)}
NUMBERS |= dict.fromkeys(("bounce", "delay"), (0, 1))
LARGEST = {False: 2**63, True: 2**31}


def read_stream(files: Files, host: str, queue: str) -> Truth:
    """Return the tables of one stream."""
    lives = Lives(host, queue)
    seen: set[bytes] = set()
    for line, torn in whole_lines(files):
        time_ns = time_of(line)
        if not torn and time_ns is not None:
            if line in seen:
                continue
            seen.add(line)
        if torn or time_ns is None or not _apply(lives, time_ns, line[26:].decode("utf-8", "replace")):
            shown = line.decode("utf-8", "replace")[:1000]
            lives.truth.quarantine.append(QuarantineRow(host, queue, time_ns, torn, shown))
    lives.finish()
    return lives.truth


def time_of(line: bytes) -> int | None:
    """Return the Unix time of a line's stamp, None where it has none that fits 64 bits."""
    match = STAMPED.match(line)
    if match is None:
        return None
    seconds, nanoseconds = int(match[1], 16) - LABEL, int(match[2], 16)
    return seconds * 10**9 + nanoseconds if abs(seconds) < 9_223_372_036 and nanoseconds < 10**9 else None


def whole_lines(files: Files) -> Iterator[tuple[bytes, bool]]:
    """Yield the lines, without their newlines, and whether each was cut short; what is open at the end is left out."""
    carried = b""
    for _, data in files:
        if carried and STAMPED.match(data):
            yield carried, True
            carried = b""
        *lines, carried = (carried + data).split(b"\n")
        for line in lines:
            yield line, False


def parse_event(text: str) -> tuple[str, list[str | int]] | None:
    """Return the kind of an event and its fields, None for what is no event."""
    for kind, pattern in GRAMMAR.items():
        match = pattern.fullmatch(text)
        if match is not None:
            values = [int(value) if at in NUMBERS[kind] else value for at, value in enumerate(match.groups())]
            if any(isinstance(value, int) and value >= LARGEST[kind == "status"] for value in values):
                return None
            return kind, values
    return None


def _apply(lives: Lives, time_ns: int, text: str) -> bool:
    """Tell what a line says; return False where it says nothing that there is."""
    event = parse_event(text)
    if event is not None and hasattr(lives, event[0]):
        getattr(lives, event[0])(time_ns, *event[1])
    return event is not None
