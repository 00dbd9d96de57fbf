"""Runs experiments in rounds, in turn, and shows what they gave.

First each side has a round that is not timed, in which its memory is watched. Then come the rounds, the side that
begins changing each time; at the end a small round each in which strace counts the syncs.
"""

import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from side_by_side.experiment import MEMORY, SYNCS, Experiment, Ground, Measured
from side_by_side.figures import OURS, THEIRS, table
from side_by_side.plot import svg_plot, text_plot
from side_by_side.postfix import FILLING, Postfix
from side_by_side.postfix import SETTINGS as POSTFIX_SETTINGS
from side_by_side.queue_suite import SETTINGS as SUITE_SETTINGS
from side_by_side.queue_suite import QueueSuite, programs
from side_by_side.side import Side
from support.tools import need

SIDES: tuple[type[Side], ...] = (QueueSuite, Postfix)
STEP = 0.1


class Plan(NamedTuple):
    """How many rounds, and how many messages in place of 20,000; 0 for what the experiment has."""

    rounds: int
    messages: int

    def messages_of(self, experiment: Experiment) -> int:
        """Return how many messages a round has."""
        if not self.messages:
            return experiment.messages
        return max(experiment.least, experiment.messages * self.messages // 20_000)


class Result(NamedTuple):
    """The figures of an experiment at a place, by side and name, one for each round; a plot, if it has rates."""

    experiment: Experiment
    on: str
    messages: int
    values: Mapping[str, Mapping[str, list[float]]]
    rates: Mapping[str, Measured]
    seconds: float

    def lines(self) -> list[str]:
        """Return what is printed."""
        head = f"{self.experiment.name}, {self.on}: {self.experiment.title}; {self.messages} messages"
        lines = [f"{head}; took {self.seconds:.0f} s", *table(self.experiment.figures, self.values)]
        top = max((max(measured.rates, default=0.0) for measured in self.rates.values()), default=0.0)
        for side, measured in self.rates.items():
            begin, end = measured.marks
            what = f"deliveries each 100 ms, up to {top:.0f}/s; the burst from {begin:.1f} to {end:.1f} s"
            lines.append(f"  {side}, {what}")
            lines.append(f"    {text_plot(measured.rates, top)}")
        return lines

    def svg(self) -> str:
        """Return the plot of the last round."""
        rates = {side: measured.rates for side, measured in self.rates.items()}
        marks = {side: measured.marks for side, measured in self.rates.items()}
        return svg_plot(f"{self.experiment.title}, {self.on}; dashed: the burst begins and ends", STEP, rates, marks)

    def as_json(self) -> dict[str, Any]:
        """Return what goes into the file."""
        return {
            "experiment": self.experiment.name,
            "on": self.on,
            "messages": self.messages,
            "seconds": round(self.seconds, 1),
            "units": {figure.name: figure.unit for figure in self.experiment.figures},
            "values": self.values,
            "rates": {
                side: {"each_s": STEP, "values": list(found.rates), "burst": list(found.marks)}
                for side, found in self.rates.items()
            },
        }


def run_experiment(
    experiment: Experiment, on: str, place: Path, scratch: Path, plan: Plan, say: Callable[[str], None]
) -> Result:
    """Run all rounds of an experiment."""
    begun, messages = time.monotonic(), plan.messages_of(experiment)
    values: dict[str, dict[str, list[float]]] = {side.name: {} for side in SIDES}
    rates: dict[str, Measured] = {}
    with Ground(place, scratch) as ground:
        ground.watches_memory = MEMORY in experiment.figures
        for kind in SIDES:
            say(f"{experiment.name}, {on}: {kind.name} warms up")
            experiment.run(ground, kind, messages)
            if ground.watches_memory:
                values[kind.name][MEMORY.name] = [ground.peak / 1e6]
        ground.watches_memory = False
        for number in range(plan.rounds):
            for kind in SIDES if number % 2 == 0 else SIDES[::-1]:
                say(f"{experiment.name}, {on}: {kind.name}, round {number + 1} of {plan.rounds}")
                measured = experiment.run(ground, kind, messages)
                for name, value in measured.figures.items():
                    values[kind.name].setdefault(name, []).append(value)
                if measured.rates:
                    rates[kind.name] = measured
        if experiment.traced:
            ground.traced = True
            counted = max(experiment.least, min(messages, experiment.traced))
            for kind in SIDES:
                say(f"{experiment.name}, {on}: {kind.name}, syncs are counted")
                experiment.run(ground, kind, counted)
                values[kind.name][SYNCS.name] = [ground.syncs / counted]
    return Result(experiment, on, messages, values, rates, time.monotonic() - begun)


def describe() -> list[str]:
    """Return the lines about the machine, the versions and the settings."""
    where = "import queue_send.loop as m; print(m.__file__)"
    form = "compiled" if _said([sys.executable, "-I", "-c", where]).endswith(".so") else "pure Python"
    version = _said([need("postconf"), "-h", "mail_version"])
    memory = psutil.virtual_memory().total / 1e9
    lines = [
        f"{psutil.cpu_count()} processors, {memory:.0f} GB, Linux {platform.release()}",
        f"Python {platform.python_version()}",
        f"{OURS}: {form}, {programs()}",
        f"{THEIRS} {version}: Debian's master.cf without chroot",
        f"  {THEIRS}'s defaults, but for",
    ]
    lines += [_setting(name, *what) for name, what in {**POSTFIX_SETTINGS, **FILLING}.items()]
    lines.append(f"  {OURS}'s defaults, but for")
    lines += [_setting(name, *what) for name, what in SUITE_SETTINGS.items()]
    return lines


def _said(words: list[str]) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def _setting(name: str, value: str, reason: str) -> str:
    return f"    {name} = {value}".ljust(44) + reason
