"""The protocol of delivery from the notice, as a model: no crash, no reused number and no late notice loses or repeats
a recipient; and each of its guards is needed, because without it the model finds a fault.
"""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from support.notice.guards import FAVOURED, GUARDS
from support.notice.machine import NoticeMachine
from support.notice.world import walk
from support.plugins.saying import Say

STEPS = 300
# Walks until a fault of a missing guard must be found; the rarest takes some hundreds.
TRIES = 6000
RARE = {"identity", "start sync", "repeated sync", "names first", "finished", "clear", "begun"}


@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 12200), marks=pytest.mark.exhaustive)])
def test_no_walk_through_the_protocol_loses_or_repeats_a_recipient(seeds: range, say: Say) -> None:
    worlds = [walk(seed, STEPS) for seed in seeds]

    crashes = sum(world.crashes for world in worlds)
    letters = sum(len(world.fates) for world in worlds)
    say(f"{len(worlds)} walks of {STEPS} steps: {letters} messages, {crashes} crashes")
    assert crashes > 5 * len(worlds) and letters > 5 * len(worlds)


@pytest.mark.parametrize("examples", [40, pytest.param(2000, marks=pytest.mark.exhaustive)])
def test_no_order_of_moves_that_hypothesis_tries_loses_or_repeats_a_recipient(examples: int) -> None:
    run_state_machine_as_test(
        NoticeMachine, settings=settings(max_examples=examples, stateful_step_count=60, deadline=None)
    )


@pytest.mark.parametrize(
    "guard", [pytest.param(name, marks=pytest.mark.exhaustive) if name in RARE else name for name in GUARDS]
)
def test_the_model_finds_a_fault_where_a_guard_is_left_out(guard: str) -> None:
    for seed in range(TRIES):
        try:
            walk(seed, STEPS, frozenset([guard]), FAVOURED.get(guard))
        except (AssertionError, KeyError):
            return  # A fault, or a daemon that is told of a message which it does not know.
    pytest.fail(f"no walk needs it: {GUARDS[guard]}")
