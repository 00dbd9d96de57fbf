"""The real daemons in one process, a system call at a time: nothing is lost, and nothing is repeated but for a crash;
and the walks find it where a guard is left out of the daemons' code.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

from support.notice.left_out import FAVOURED, LEFT_OUT
from support.notice.real import walk
from support.plugins.saying import Say

STEPS = 1000
pytestmark = [
    pytest.mark.pure("replaces classes and functions of the daemons"),
    # A daemon that is killed closes nothing.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


# After walk 90 last/B/I is left for the sweep.
@pytest.mark.parametrize("seeds", [[*range(10), 90], pytest.param(range(10, 2020), marks=pytest.mark.exhaustive)])
def test_no_walk_of_the_daemons_loses_or_repeats_a_recipient(seeds: Sequence[int], tmp_path: Path, say: Say) -> None:
    worlds = [walk(seed, STEPS, tmp_path / str(seed)) for seed in seeds]

    crashes = sum(world.crashes for world in worlds)
    letters = sum(len(world.letters) for world in worlds)
    say(f"{len(worlds)} walks of {STEPS} system calls and turns: {letters} messages, {crashes} crashes")
    assert crashes > 2 * len(worlds) and letters > 2 * len(worlds)
    assert sum(world.announced for world in worlds) > len(worlds) / 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("guard", LEFT_OUT)
def test_a_walk_finds_it_where_a_guard_is_left_out_of_the_code(guard: str, tmp_path: Path) -> None:
    for seed in range(400):
        with ExitStack() as stack:
            for target, name, value in LEFT_OUT[guard]:
                stack.enter_context(patch.object(target, name, value))
            try:
                walk(seed, STEPS, tmp_path / str(seed), FAVOURED.get(guard))
            except (AssertionError, KeyError):
                return
    pytest.fail("no walk needs it")
