"""What the log pipeline must make of any bytes, in plain Python: one pass over the lines in order, one state.

It is as simple as it can be, and slow. On logs that are whole it must agree with the simulation, which knows better;
so it can be believed on damaged ones, of which nobody else knows what is right. Rules:
docs/logs.md, spark/queue_report/schema/columns.py.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from support.spark.logs.log_files import LABEL, Files
from support.spark.logs.log_lives import Lives
from support.spark.logs.log_rows import QuarantineRow, Truth

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
    "delete": re.compile(rf"delete msg {N}: (.*)", re.DOTALL),
    "corrupt": re.compile(rf"corrupt msg {N}: (.*)", re.DOTALL),
    "requeue": re.compile(rf"requeue msg {N}: .*", re.DOTALL),
    "release": re.compile(rf"release msg {N}"),
    "dest": re.compile(r"dest [^ ]* (?:dead|alive): .*", re.DOTALL),
    "inflow": re.compile(r"inflow (?:slow|refused|free): .*", re.DOTALL),
    "config": re.compile(r"(?:[!-9;-~]+: )?config .*", re.DOTALL),
    "alert": re.compile(r"(?:alert|warning|[!-9;-~]+: (?:alert|warning|fatal)): .*", re.DOTALL),
}
FOREIGN = re.compile(r"(?!alert:|warning:)[!-9;-~]+: (?:(?:alert|warning|fatal): |config )")
# Which groups of each are numbers, and what is too large for one.
NUMBERS = dict.fromkeys(GRAMMAR, (0,)) | {"status": (0, 1, 2, 3), "info": (0, 1, 3, 4), "start": (0, 1)}
NUMBERS |= dict.fromkeys(("bounce", "delay"), (0, 1))
LARGEST = {False: 2**63, True: 2**31}


def read_stream(files: Files, host: str, queue: str) -> Truth:
    """Return the tables of one stream."""
    return read_lines(whole_lines(files), host, queue)


def read_lines(lines: Iterable[tuple[bytes, bool]], host: str, queue: str) -> Truth:
    """Return the tables that lines make, each with whether it was cut short. A CR at the end is none of a line."""
    lives = Lives(host, queue)
    repeats = Repeats()
    for line, torn in lines:
        for whole in [line] if torn else split_at_nuls(line):
            part = whole.removesuffix(b"\r")
            time_ns = time_of(part)
            if not torn and time_ns is not None and repeats.is_repeat(time_ns, part):
                continue
            if torn or time_ns is None or not _apply(lives, time_ns, shown(part[26:])):
                lives.truth.quarantine.append(QuarantineRow(host, queue, time_ns, torn, shown(part)[:1000]))
    lives.finish()
    return lives.truth


class Repeats:
    """Knows which lines stand in the log a second time.

    In a run of lines with one stamp a line may come again, but not directly behind its equal. Where earlier runs have
    the same stamp, only what a run has more of a line than each of those is new.
    """

    def __init__(self) -> None:
        self._before: Counter[bytes] = Counter()
        self._run: Counter[bytes] = Counter()
        self._time_ns: int | None = None
        self._last = b""

    def is_repeat(self, time_ns: int, line: bytes) -> bool:
        if time_ns != self._time_ns:
            self._before |= self._run
            self._run = Counter()
        elif line == self._last:
            return True
        self._time_ns, self._last = time_ns, line
        self._run[line] += 1
        return self._run[line] <= self._before[line]


def split_at_nuls(line: bytes) -> list[bytes]:
    """Return the parts of a line: a stamp behind a NUL begins a new one."""
    return re.split(rb"(?<=\0)(?=@[0-9a-f]{24} )", line)


def shown(data: bytes) -> str:
    """Return bytes as text: what is no UTF-8, and what looks like it is escaped, as %XX."""
    text, at = "", 0
    data = re.sub(rb"%(?=[0-9A-F]{2})", b"%25", data)
    while at < len(data):
        try:
            return text + data[at:].decode()
        except UnicodeDecodeError as error:
            text += data[at : at + error.start].decode()
            text += "".join(f"%{byte:02X}" for byte in data[at + error.start : at + error.end])
            at += error.end
    return text


def time_of(line: bytes) -> int | None:
    """Return the Unix time of a line's stamp, None where it has none that fits 64 bits."""
    match = STAMPED.match(line)
    if match is None:
        return None
    seconds, nanoseconds = int(match[1], 16) - LABEL, int(match[2], 16)
    return seconds * 10**9 + nanoseconds if abs(seconds) < 9_223_372_036 and nanoseconds < 10**9 else None


def whole_lines(files: Files) -> Iterator[tuple[bytes, bool]]:
    """Yield the lines, without their newlines, and whether each was cut short; what is open at the end is left out."""
    carried, last = b"", ""
    for name, data in files:
        if carried and STAMPED.match(data):
            # A logger completes a file before it calls it .s: a line that is whole but for its newline is one.
            whole = last.endswith(".s") and time_of(carried) is not None and parse_event(shown(carried[26:]))
            yield carried, not whole
            carried = b""
        last = name if data else last
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
    if event is None:
        return False
    if hasattr(lives, event[0]):
        getattr(lives, event[0])(time_ns, *event[1])
    if not FOREIGN.match(text):
        lives.last_ns = time_ns
    return True
