"""The simulation of logs and the reference reader agree, so that each may judge the log pipeline."""

import random

import pytest

from support.spark.logs.log_files import damage, rotated
from support.spark.logs.log_reference import read_stream
from support.spark.logs.log_rows import agree, differences
from support.spark.logs.log_world import World


@pytest.mark.parametrize("seed", range(40))
def test_the_reference_reads_from_a_simulated_log_what_the_simulation_did(seed: int) -> None:
    world = World(seed).run(300)
    files = rotated(world.lines, random.Random(seed), 1 + seed % 9)
    agree(world.truth, read_stream(files, world.host, world.queue))


def test_a_simulation_has_every_hard_case_in_it() -> None:
    messages, deliveries, texts = [], [], ""
    for seed in range(20):
        world = World(seed).run(300)
        messages += world.truth.messages
        deliveries += world.truth.deliveries
        texts += "\n".join(text for _, text in world.lines)
        assert world.lines == World(seed).run(300).lines
    assert {row.outcome for row in messages} == {"delivered", "bounced", "partly", "discarded", "deleted", "lost"}
    assert {row.result for row in deliveries} == {"success", "failure", "deferral", "mangled", "lost"}
    assert {row.bounce_of is None for row in messages} == {row.birth_ns is None for row in messages} == {True, False}
    assert {row.recipient == "" for row in deliveries} == {row.sender == "" for row in messages} == {True, False}
    ours = ("delay msg", "release msg", "inflow slow", "dest d1")
    for words in ("status: exiting", "exitasap", "triple bounce", "\r", *ours):
        assert words in texts


def test_damage_changes_what_can_be_read() -> None:
    changed = 0
    for seed in range(30):
        world = World(seed).run(100)
        files = damage(rotated(world.lines, random.Random(seed), 6), random.Random(seed))
        changed += bool(differences(world.truth, read_stream(files, world.host, world.queue)))
    assert changed > 20
