"""How much a test tries: little in the usual run, more with --exhaustive, where only the amount differs."""

from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")

_exhaustive = False


def choose_amounts(exhaustive: bool) -> None:
    """Say which run this is, before the test files are imported."""
    global _exhaustive
    _exhaustive = exhaustive


def amount(usual: T, exhaustive: T) -> T:
    """Return how much is tried in this run."""
    return exhaustive if _exhaustive else usual


def allow_time() -> None:
    """Let no example of hypothesis fail for its time, which depends on what else runs on the machine."""
    settings.register_profile("any time", settings.default, deadline=None)
    settings.load_profile("any time")
