"""The scheduler's goals in a small run of bench/simulate: a world with sick hosts, on a virtual clock."""

import subprocess
import sys
from functools import cache
from pathlib import Path

from support.plugins.amount import amount

SIMULATE = Path(__file__).resolve().parents[2] / "bench/simulate"
# So few places that slow hosts take most of them under the plain scheduler, and healthy mail waits.
ARGUMENTS = ["--messages", "20000", "--destinations", "2000", "--hours", "2", "--concurrency", "80"]
SEEDS = amount([2], [1, 2, 4])


@cache
def simulate(seed: int) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(SIMULATE), *ARGUMENTS, "--seed", str(seed)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def goals(seed: int) -> list[str]:
    """Return the lines of the goals, each with met or MISSED."""
    done = simulate(seed)
    assert done.returncode in (0, 1), done.stderr
    return [line.strip() for line in done.stdout.split("\ngoals\n")[1].splitlines()]


def test_healthy_mail_is_hardly_later_because_other_hosts_are_sick() -> None:
    for seed in SEEDS:
        assert goals(seed)[0].startswith("met"), simulate(seed).stdout


def test_a_revived_host_never_sees_more_jobs_than_its_window() -> None:
    for seed in SEEDS:
        assert goals(seed)[1].startswith("met"), simulate(seed).stdout


def test_a_dead_host_costs_at_most_one_attempt_in_vain_for_each_probe() -> None:
    for seed in SEEDS:
        assert goals(seed)[2].startswith("met"), simulate(seed).stdout


def test_normal_mail_is_started_within_a_second_though_bulk_waits_for_every_place() -> None:
    for seed in SEEDS:
        assert goals(seed)[3].startswith("met"), simulate(seed).stdout


def test_mail_for_hosts_that_come_and_go_is_no_later_than_under_the_plain_scheduler() -> None:
    for seed in SEEDS:
        lines = [line.split() for line in simulate(seed).stdout.splitlines() if "mail for flapping" in line]
        ours, plain = (float(words[words.index("p99") + 1]) for words in lines)
        assert ours <= plain


def test_the_plain_scheduler_misses_the_goal_for_healthy_mail_in_the_same_world() -> None:
    ratios = [float(line.split()[-1]) for line in simulate(2).stdout.splitlines() if "ratio of the p99" in line]
    ours, plain = ratios
    assert ours <= 1.5 < plain
