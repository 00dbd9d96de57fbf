"""Messages that are late, deferrals of them, and what queue-send's log says of delay notices then."""

import os
import signal
import time

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from support.queues.queued import classified_message
from support.send.scripted_send import ScriptedSend

LATER = b"ZRemote host said: 451 4.7.1 come back later\n"
HOUR = 3600


def make_due(home: Home, message: int, kind: str = "remote") -> None:
    """Make a message that waits due, for a queue-send that starts after this."""
    os.utime(open_layout(home.queue).hashed(kind, message), (1, 1))


def grow_older(home: Home, message: int, seconds: int) -> None:
    """Make a message older, as if time had passed since all that is known of it."""
    layout = open_layout(home.queue)
    for path in (layout.hashed("info", message), layout.mess(message)):
        now = os.stat(path).st_mtime - seconds
        os.utime(path, (now, now))


def old_message(home: Home, age: float, **others: object) -> int:
    """Put in a message that is `age` seconds old, for b@c where nothing else is said; return its id."""
    others.setdefault("remote", [b"b@c"])
    return classified_message(home, birth=time.time() - age, **others)  # type: ignore[arg-type]


def defer(send: ScriptedSend, verdict: bytes = LATER) -> None:
    """Have the next message deferred, and wait until what follows from that at once has happened."""
    send.remote.deliver(verdict)
    send.fence()


def told(send: ScriptedSend) -> list[str]:
    """End queue-send, which waits for a notice that is on its way; return its lines about notices."""
    send.fence()
    send.signal(signal.SIGTERM)
    assert send.wait() == 0
    return send.found("delay .*")
