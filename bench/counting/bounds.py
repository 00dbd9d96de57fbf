"""The bounds of what a message may cost, as a file keeps them, and what is over them. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from counting.trace import Calls

# How much more than was recorded is let pass. Calls and wake-ups of a message depend on how much a daemon finds to do
# each time that it looks, which the machine's other work changes; syncs hardly do.
SLACK = {"calls": 0.25, "syncs": 0.15, "failed": 0.5, "wakeups": 1.0}
# What is small may differ by this much. How many messages share a sync of queue-clean depends on how many are finished
# when it looks.
FLOOR = {"calls": 0.5, "syncs": 0.75, "failed": 0.5, "wakeups": 0.3}


class Counts(NamedTuple):
    """What a daemon did for a message: system calls, the syncs and the failures among them, and how often it waited."""

    calls: float
    syncs: float
    failed: float
    wakeups: float


def per_message(few: Mapping[str, Calls], many: Mapping[str, Calls], messages: int) -> dict[str, list[float]]:
    """Return calls, syncs and failures a message, by program: the difference of two drains, `messages` apart."""
    return {
        name: [(more - less) / messages for more, less in zip(many[name], few.get(name, Calls(0, 0, 0)), strict=True)]
        for name in many
    }


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
