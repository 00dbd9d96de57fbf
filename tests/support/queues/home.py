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
    make_queue(path / "queue", split, flat)
    (path / "control").mkdir()
    (path / "alias").mkdir()
    (path / "control" / "me").write_bytes(b"me.example.org\n")
    if after := os.environ.get(CLASSIFYAFTER):
        (path / "control" / "classifyafter").write_text(after + "\n")
    return Home(str(path))


def make_several(path: Path, *names: str, split: int = 23) -> Home:
    """Make a home at `path` with queues of these names in it, and `run/`."""
    make_home(path, split=split)
    for name in names:
        make_queue(path / name, split)
    for kind in ("lock", "intake"):
        (path / "run" / kind).mkdir(parents=True)
    (path / "control" / "queues").write_text("".join(f"{name}\n" for name in names))
    return Home(str(path))


def make_queue(queue: Path, split: int = 23, flat: bool = False) -> None:
    """Make a queue directory, with everything in it."""
    for kind in HASHED if flat else (*HASHED, "todo", "intd"):
        for bucket in range(split):
            (queue / kind / str(bucket)).mkdir(parents=True)
    for kind in (*FLAT, "todo", "intd") if flat else FLAT:
        (queue / kind).mkdir()
    (queue / "lock" / "sendmutex").touch(0o600)
    os.mkfifo(queue / "lock" / "trigger", 0o622)
