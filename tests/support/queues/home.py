"""A home in a test's own directory: every directory of the queue, control/me, the lock and the trigger.

The environment may have the value of its control/classifyafter (pytest --classifyafter).
"""

import os
from pathlib import Path

from queue_base.home import Home

HASHED = ("mess", "info", "local", "remote", "hold", "corrupt", "last")
CLASSIFYAFTER = "QUEUE_TEST_CLASSIFYAFTER"
FLAT = ("bounce", "maildrop", "pid", "lock", "intake", "postman")


def make_home(path: Path, *, split: int = 23, flat: bool = False) -> Home:
    """Make a home at `path`, which must not be there yet; `flat` makes todo/ and intd/ without buckets."""
    queue = path / "queue"
    for kind in HASHED if flat else (*HASHED, "todo", "intd"):
        for bucket in range(split):
            (queue / kind / str(bucket)).mkdir(parents=True)
    for kind in (*FLAT, "todo", "intd") if flat else FLAT:
        (queue / kind).mkdir()
    (path / "control").mkdir()
    (path / "alias").mkdir()
    (path / "control" / "me").write_bytes(b"me.example.org\n")
    if after := os.environ.get(CLASSIFYAFTER):
        (path / "control" / "classifyafter").write_text(after + "\n")
    (queue / "lock" / "sendmutex").touch(0o600)
    os.mkfifo(queue / "lock" / "trigger", 0o622)
    return Home(str(path))
