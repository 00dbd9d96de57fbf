"""The forwarder killed at each of its system calls: what it did not answer is forwarded again, nothing is half."""

import sys
from collections import Counter
from pathlib import Path

from queue_base.home import Home
from queue_local.forwarding import pack_request, unpack_answer
from queue_local.result import Forward, pack_forward
from queue_wire.pipes.framing import NetstringReader
from support.faults.kill.kill_calls import EVERY, Ended, Point, at_each, own_points, run
from support.faults.kill.kill_world import RECIPIENT, odd_files, sweep_all, text_of
from support.inject.injectors import queued, states
from support.plugins.saying import Say
from support.send.control import files
from support.site import mail_site

FORWARDER = """
import sys
from queue_base.home import Home
from queue_local.forwarding import run_forwarder
run_forwarder(Home(sys.argv[1]), 0, 1)
"""


def forward(home: Home, path: bytes, token: str, point: Point | None, trace: Path | None) -> Ended:
    """Have a forwarder make one forward, killed at a point; its sender is the token."""
    made = Forward(4711, token.encode(), b"Delivered-To: joe@host.example\n", [RECIPIENT.encode()])
    words = [sys.executable, "-c", FORWARDER, home.path]
    return run(words, point, trace, b"".join(pack_request(7, path, [pack_forward(made)])))


def is_reported(ended: Ended) -> bool:
    """Return whether the forwarder has answered that a forward is queued; any other answer is an error."""
    reader = NetstringReader(1 << 20)
    reader.feed(ended.output)
    payload = reader.next()
    if payload is None:
        assert ended.killed, ended
        return False
    answer = unpack_answer(payload)
    assert (answer.number, answer.letter) == (7, b"K"), answer
    return True


@EVERY
def test_a_kill_of_the_forwarder_loses_no_forward_and_queues_none_that_is_half(
    tmp_path: Path, every: bool, say: Say
) -> None:
    with mail_site() as site:
        mail = site.mail
        home = mail.home
        (mail.path / "queue/lock/forward").write_bytes(text_of("forward"))
        path = b"lock/forward"
        reported: dict[str, bool] = {}

        def make(token: str, point: Point | None = None, trace: Path | None = None) -> Ended:
            ended = forward(home, path, token, point, trace)
            reported[token] = reported.get(token, False) or is_reported(ended)
            return ended

        def kill(number: int, point: Point) -> tuple[bool, list[str]]:
            ended = make(f"kill{number}", point, tmp_path / f"trace{number}")
            if not reported[f"kill{number}"]:
                make(f"kill{number}")
            return ended.killed, []

        make("first")
        points = own_points(make("second", trace=tmp_path / "trace").calls, every)
        wrong = at_each(points, kill)
        assert not wrong, "\n".join(wrong)
        assert all(reported.values()) and odd_files(home) == []
        found = queued(home)
        whole = b"Delivered-To: joe@host.example\n" + text_of("forward")
        assert [each.envelope.sender for each in found if each.message != whole] == []
        counts = Counter(each.envelope.sender.decode() for each in found)
        assert counts.keys() == reported.keys() and set(counts.values()) == {1, 2}
        sweep_all(home)
        assert set(states(home)) == {4} and not [name for name in files(home) if name.startswith(("pid", "intd"))]
        say(f"forwarder: {len(points)} kills, {sum(each - 1 for each in counts.values())} messages forwarded twice")
