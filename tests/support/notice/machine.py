"""A hypothesis state machine over the world of the protocol: it shrinks what a walk at random only finds."""

import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from support.notice.world import World


class NoticeMachine(RuleBasedStateMachine):
    """Any move may come at any time; at the end everything settles."""

    without: frozenset[str] = frozenset()

    @initialize(chance=st.randoms(use_true_random=False))
    def begin(self, chance: random.Random) -> None:
        self.world = World(chance, self.without)

    @rule(place=st.integers(0, 1000))
    def step(self, place: int) -> None:
        moves = self.world.moves()
        moves[place % len(moves)].do()

    @rule(place=st.integers(0, 1000))
    def progress(self, place: int) -> None:
        moves = [move for move in self.world.moves() if move.progress]
        if moves:
            moves[place % len(moves)].do()

    @invariant()
    def nothing_is_wrong(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.chance = random.Random(0)
            self.world.settle()
