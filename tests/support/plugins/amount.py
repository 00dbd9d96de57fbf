"""How much a test tries: little in the usual run, more with --exhaustive, where only the amount differs."""

from typing import TypeVar

T = TypeVar("T")

_exhaustive = False


def choose_amounts(exhaustive: bool) -> None:
    """Say which run this is, before the test files are imported."""
    global _exhaustive
    _exhaustive = exhaustive


def amount(usual: T, exhaustive: T) -> T:
    """Return how much is tried in this run."""
    return exhaustive if _exhaustive else usual
