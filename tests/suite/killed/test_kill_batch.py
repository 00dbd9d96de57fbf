"""A batch killed at each of its system calls: --skip takes the rest, and every message arrives whole, once or twice."""

from pathlib import Path

import pytest

from queue_base.home import Home
from support.faults.kill.kill_calls import EVERY, Ended, Point, at_each, own_points, run
from support.faults.kill.kill_world import RECIPIENT, SENDER, World, kill_world, text_of
from support.inject.injectors import USER, as_user
from support.inject.packing import pack_bsmtp, pack_pair, quote_mbox
from support.plugins.saying import Say
from support.processes.suite import program
from support.queues.inflow import patched_programs

COUNT = 7
# The first group is synced by two threads, the second one is few enough for one.
GROUP = 5
FEWER = f"""
import queue_inject.batch.injector
queue_inject.batch.injector.GROUP = {GROUP}
"""


def packed(form: str, token: str) -> bytes:
    """Return a message as a batch has it."""
    if form == "mbox":
        return quote_mbox(text_of(token))
    return (pack_bsmtp if form == "bsmtp" else pack_pair)(SENDER.encode(), [RECIPIENT.encode()], text_of(token))


def batch_command(home: Home, place: Path, form: str) -> list[str]:
    if form == "a user's":
        return [*as_user(USER, "queue_inject.main"), "--home", home.path, "--batch", "mbox"]
    return [*program("queue-inject", patched_programs(place, queue_inject=FEWER)), "--home", home.path, "--batch", form]


class Batches:
    """Batches of one kind, each of COUNT messages with tokens of their own."""

    def __init__(self, world: World, place: Path, form: str) -> None:
        self._world = world
        self._place = place
        self._form = "mbox" if form == "a user's" else form
        self._command = batch_command(world.home, place, form)
        # A user cannot see what became of mail in maildrop/, and all of it shares one commit.
        self._looked_at = form != "a user's"
        self._group = GROUP if self._looked_at else COUNT

    def inject(self, number: int, point: Point | None) -> tuple[Ended, list[str]]:
        """Inject a batch that is killed at a point, and what is left of it; return its end, and what was wrong."""
        tokens = [f"batch{number}.{each}" for each in range(COUNT)]
        data = b"".join(packed(self._form, token) for token in tokens)
        trace = self._place / f"trace{number}"
        ended = run(self._command, point, trace, data)
        done = ended.output.count(b"ok ")
        assert ended.killed == (ended.code != 0) and ended.output.count(b"\n") == done, ended
        lacking = set(tokens[:done]) - self._world.in_queue() if self._looked_at else set()
        wrong = [f"said and not there: {token}" for token in lacking]
        if ended.killed:
            rest = run([*self._command, "--skip", str(done)], None, None, data)
            assert rest.code == 0 and rest.output.count(b"ok ") == COUNT - done, rest
        for at, token in enumerate(tokens):
            # Those that have their line are not sent again; the next group may have been queued without saying so.
            unsure = ended.killed and done <= at < done + self._group
            self._world.expect(token, 1, 2 if unsure else 1, f"message {at}, {done} were said, {point}")
        return ended, wrong

    def kill(self, number: int, point: Point) -> tuple[bool, list[str]]:
        """Do so at a point; return whether the batch was killed, and what was wrong."""
        ended, wrong = self.inject(number, point)
        return ended.killed, wrong


@EVERY
@pytest.mark.parametrize("form", ["mbox", "bsmtp", "netstring", "a user's"])
def test_after_a_kill_of_a_batch_no_message_is_lost_and_at_most_one_group_is_sent_again(
    tmp_path: Path, form: str, every: bool, say: Say
) -> None:
    with kill_world() as world:
        batches = Batches(world, tmp_path, form)
        batches.inject(-2, None)
        points = own_points(batches.inject(-1, None)[0].calls, every)
        # Each message has the same calls, and so has each form, but for how it is read.
        points = points[:: (1 if every else 10) * (1 if form in ("mbox", "a user's") else 4)]
        wrong = at_each(points, batches.kill) + world.finish()
        assert not wrong, "\n".join(wrong)
        assert world.surplus > 0 or form not in ("mbox", "a user's")
        say(f"batch, {form}: {len(points)} kills, {world.surplus} messages sent again")
