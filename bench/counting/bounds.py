"""The bounds of what a message may cost, as a file keeps them, and what is over them. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from counting.trace import Calls

# How much more than was recorded is let pass. Calls and wake-ups of a message depend on how much a daemon finds to do
# each time that it looks, which the machine's other work changes, and so do calls that find nothing.
SLACK = {"calls": 0.25, "files": 0.1, "syncs": 0.15, "failed": 0.5, "wakeups": 1.0}
# What is small may differ by this much.
FLOOR = {"calls": 0.5, "files": 0.15, "syncs": 0.1, "failed": 0.5, "wakeups": 0.3}


class Counts(NamedTuple):
    """What a daemon did for a message: system calls; those for files, syncs and failures among them; its waits."""

    calls: float
    files: float
    syncs: float
    failed: float
    wakeups: float


def per_message(calls: Calls, wakeups: int, messages: int) -> Counts:
    """Return what a message cost of which there were so many."""
    return Counts(*(number / messages for number in (*calls, wakeups)))


def pack_bounds(found: Mapping[str, Counts], messages: int) -> str:
    """Return the text of the file."""
    daemons = {
        name: {key: round(value, 2) for key, value in counts._asdict().items()} for name, counts in found.items()
    }
    return json.dumps({"messages": messages, "daemons": daemons}, indent=2, sort_keys=True) + "\n"


def unpack_bounds(text: str) -> dict[str, Counts]:
    """Return the counts that were recorded. Raises ValueError, KeyError or TypeError for another text."""
    return {name: Counts(**counts) for name, counts in json.loads(text)["daemons"].items()}


def combine(
    choose: Callable[[Sequence[float]], float], measurements: Sequence[Mapping[str, Counts]]
) -> dict[str, Counts]:
    """Return one measurement for several of the same daemons: of each figure what is chosen, such as the least."""
    return {
        name: Counts(*map(choose, zip(*(each[name] for each in measurements), strict=True))) for name in measurements[0]
    }


def limit(name: str, recorded: float) -> float:
    """Return how much of something is let pass."""
    return recorded * (1 + SLACK[name]) + FLOOR[name]


def compare(found: Mapping[str, Counts], recorded: Mapping[str, Counts]) -> list[str]:
    """Return a line for everything that is over its bound, and for a daemon that has none."""
    lines = []
    for daemon, counts in sorted(found.items()):
        if daemon not in recorded:
            lines.append(f"{daemon}: no bounds are recorded")
            continue
        for name, value in counts._asdict().items():
            most = limit(name, getattr(recorded[daemon], name))
            if value > most:
                lines.append(f"{daemon}: {value:.2f} {name} a message, at most {most:.2f}")
    return lines
