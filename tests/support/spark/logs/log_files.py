"""Log directories as multilog and svlogd leave them, and the ways in which they are damaged.

A stream's files are pairs of name and bytes, in order; write_files puts them into a directory.
"""

import itertools
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

LABEL = 4_611_686_018_427_387_914  # 2^62 + 10: the TAI64 label of Unix second 0, as multilog reckons.
Files = list[tuple[str, bytes]]


def stamp(time_ns: int) -> str:
    """Return `@` and the TAI64N label of a Unix time."""
    return f"@{time_ns // 10**9 + LABEL:016x}{time_ns % 10**9:08x}"


def lines_of(log: Iterable[tuple[int, str]]) -> list[bytes]:
    """Return the lines of a simulated log, with their newlines."""
    return [f"{stamp(time_ns)} {text}\n".encode() for time_ns, text in log]


def named(pieces: Sequence[bytes], times: Sequence[int], rng: random.Random) -> Files:
    """Name pieces as rotated files, the last as `current`. times: when each ended, mended so that names sort."""
    files, latest = [], 0
    for piece, time_ns in zip(pieces[:-1], times, strict=False):
        latest = max(latest + 1, time_ns)
        files.append((stamp(latest) + rng.choice((".s", ".s", ".s", ".u")), piece))
    return [*files, ("current", pieces[-1])]


def rotated(log: Sequence[tuple[int, str]], rng: random.Random, count: int, splits: float = 0.5) -> Files:
    """Return a log in `count` files. At a share `splits` of the ends, a line stands in two files, or in more."""
    text = b"".join(lines_of(log))
    starts, at = [], 0
    for line in lines_of(log):
        starts.append(at)
        at += len(line)
    cuts: set[int] = set()
    while len(cuts) < min(count - 1, len(starts) - 1):
        number = rng.randrange(1, len(starts))
        inside = rng.random() < splits
        cuts.add(starts[number] + (rng.randrange(1, 60 if rng.random() < 0.8 else 27) if inside else 0))
        if inside and rng.random() < 0.2:
            cuts.add(starts[number] + 1)
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[one:two] for one, two in itertools.pairwise(places)]
    times, number = [], 0
    for place in places[1:]:
        while number + 1 < len(starts) and starts[number + 1] < place:
            number += 1
        times.append(log[number][0])
    return named(pieces, times, rng)


def write_files(directory: Path, files: Files, logger: str = "multilog") -> None:
    """Write files into a directory that is made where it is missing, beside what the logger itself keeps there."""
    directory.mkdir(parents=True, exist_ok=True)
    for extra in ("lock", "state") if logger == "multilog" else ("lock", "config", "newstate"):
        (directory / extra).write_bytes(b"s1000000\n" if extra == "config" else b"")
    for name, data in files:
        (directory / name).write_bytes(data)


GARBAGE = (
    *(b"\n", b"no stamp at all\n", b"@400000006745 short stamp\n", b"@4000000067450000000000zz bad digits\n", b"\r\n"),
    b"Nov 20 19:20:11 host qmail: 1700000000.5 new msg 5\n",
    *(b"@400000006553f10000000000 hello world\n", b"@400000006553f10000000001 new msg x\n", b"\0\0\0\0\n"),
    *(b"@400000006553f10000000002 end msg\n", b"@400000006553f10000000003 \n"),
    b"@400000006553f10000000004 new msg 5 6\n",
    *(b"@400000006553f10000000005 starting delivery 1: msg 400 to nowhere x@y\n", "@ grün\n".encode()),
    *(b"@400000006553f10000000006 delivery 7: perhaps: x\n", b"@400000006553f10000000007 info msg 400: bytes 3\n"),
    *(b"@400000006553f10000000008 status: local 0 remote\n", b"@400000006553f10000000009 bounce msg 400 qp\n"),
    *(b"@400000006553f1000000000A new msg 400\n", b"@400000006553f1000000000a new msg 99999999999999999999\n"),
    *(b"@400000006553f1000000000b " + b"long " * 300 + b"\n", b" @400000006553f1000000000c new msg 400\n"),
    b"@400000006553f1000000000d end msg 400\r\n",
)


def damage(files: Files, rng: random.Random) -> Files:
    """Return the files cut short, doubled, with lines twice and with garbage between lines: each a few times."""
    files = list(files)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(files))
        name, data = files[at]
        lines = data.splitlines(keepends=True) if b"\r" not in data else [line + b"\n" for line in data.split(b"\n")]
        what = rng.choice(("truncate", "double", "repeat", "garbage", "garbage", "drop"))
        if what == "truncate" and at < len(files) - 1:
            files[at] = (name, data[: rng.randrange(1, len(data) + 1)])
        elif what == "double" and at < len(files) - 1:
            later = rng.randrange(at, len(files) - 1)
            seconds, nanoseconds = files[later][0][1:17], int(files[later][0][17:25], 16) + 1
            while any(taken.startswith(f"@{seconds}{nanoseconds:08x}") for taken, _ in files):
                nanoseconds += 1
            files.insert(later + 1, (f"@{seconds}{nanoseconds:08x}.s", data))
        elif what == "drop" and len(files) > 2 and at < len(files) - 1:
            del files[at]
        elif len(lines) > 2:
            place = rng.randrange(1, len(lines))
            lines[place:place] = lines[place - 1 : place + 3] if what == "repeat" else [rng.choice(GARBAGE)]
            files[at] = (name, b"".join(lines))
    return sorted(files, key=lambda file: (file[0] == "current", file[0]))
