"""queue-send and the disk before a bounce: DONE marks are safe first, and the loop does not wait for that."""

import os
import sys
import time
from pathlib import Path

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from support.queues.queued import classified_message
from support.send.scripted_send import ScriptedSend
from support.tools import need

OLD_FAILURE = b"<x@c>:\nnever\n\n"
SLOW = 3.0  # Seconds that an fsync takes: much more than a busy machine needs for a turn.


def test_a_disk_that_syncs_slowly_holds_up_the_bounce_and_not_the_loop(home: Home, tmp_path: Path) -> None:
    message = classified_message(home, bounce=OLD_FAILURE)
    trace = tmp_path / "trace"
    layout = open_layout(home.queue)
    marks = [os.path.dirname(layout.hashed(kind, message)) for kind in ("local", "remote")]
    files = [layout.bounce(message), os.path.dirname(layout.bounce(message)), layout.hashed("info", message)]
    # -D: the process that gets our signals is queue-send. -f: its threads and queue-enqueue, too. -P: only what it has
    # of this message is slow, not what queue-enqueue makes, whose start is shown.
    slow = [need("strace"), "-D", "-f", "-y", "-s", "4096", "-o", str(trace), "-e", "trace=fsync,execve"]
    slow += [word for path in (*marks, *files, sys.executable) for word in ("-P", path)]
    with ScriptedSend(home, wrapper=(*slow, "-e", f"inject=fsync:delay_enter={int(SLOW * 1e6)}")) as send:
        worst, end = 0.0, time.monotonic() + 60
        while not send.found(rf"bounce msg {message} .*"):
            assert time.monotonic() < end
            start = time.monotonic()
            send.turn()
            worst = max(worst, time.monotonic() - start)
            time.sleep(0.01)  # A small part of SLOW: so many looks are enough.
        assert send.clean.removed() == message
    assert worst < SLOW
    calls = [line.split(maxsplit=1)[1] for line in trace.read_text().splitlines()]
    enqueue = next(index for index, call in enumerate(calls) if call.startswith("execve") and "queue-enqueue" in call)
    for directory in marks:
        assert any("fsync(" in call and f"<{directory}>" in call for call in calls[:enqueue])


def test_a_bounce_whose_marks_cannot_be_made_safe_waits(home: Home) -> None:
    message = classified_message(home, bounce=OLD_FAILURE)
    fail = (need("strace"), "-D", "-f", "-o", os.devnull, "-e", "trace=fsync", "-e", "inject=fsync:error=EIO")
    with ScriptedSend(home, wrapper=fail) as send:
        assert "nput/output error" in send.wait_for(rf"warning: trouble injecting bounce message of msg {message}: .*")
        send.fence()
        assert not send.found("(bounce|end) msg .*")
    assert Path(open_layout(home.queue).bounce(message)).read_bytes() == OLD_FAILURE
