"""The crash model catches each wrong order of durable steps, and passes the right one.

Every trace here is of a real process under strace, a short script that uses queue_base.durable as the programs do.
"""

from pathlib import Path

import pytest

from queue_base.queue.layout import Layout, open_layout
from support.faults.crash.crash_checks import QUEUED, Message, broken, check_queue
from support.faults.crash.crash_model import Crash, CrashModel
from support.faults.traced import HEAD, traced_script
from support.queues.home import make_home

# A message the right way: mess whole, then intd whole, then todo's name.
INJECT = (
    HEAD
    + """
queue = sys.argv[1]
commit = Commit()
with open(queue + "/pid/x", "xb", buffering=0) as file:
    number = os.fstat(file.fileno()).st_ino
    file.write(b"Subject: hello\\n\\nThis is the body.\\n")
mess, intd, todo = (f"{queue}/{kind}/{number % 3}/{number}" for kind in ("mess", "intd", "todo"))
def enter():
    os.link(queue + "/pid/x", mess)
    os.unlink(queue + "/pid/x")
def envelope():
    commit.create(intd, b"u1\\0p2\\0Fa@example.org\\0Tb@example.net\\0", 0o600)
"""
)
RIGHT = """
enter(); commit.written(mess); commit.sync()
envelope(); commit.sync()
commit.link(intd, todo); commit.sync()
os.write(1, b"queued")
"""
# A wrong order, and what the model finds wrong with it.
WRONG = {
    "todo's directory is never synced": (
        "queued was said, and the states are [3]",
        """
enter(); commit.written(mess); commit.sync()
envelope(); commit.sync()
os.link(intd, todo)
os.write(1, b"queued")
""",
    ),
    "mess's directory is never synced": (
        "is in no state: it has intd",
        """
enter(); sync_path(mess)
envelope(); commit.sync()
commit.link(intd, todo); commit.sync()
os.write(1, b"queued")
""",
    ),
    "mess's contents are never synced": (
        "is in S4 and its mess is not whole",
        """
enter(); sync_path(os.path.dirname(mess))
envelope(); commit.sync()
commit.link(intd, todo); commit.sync()
os.write(1, b"queued")
""",
    ),
    "intd is made before mess is safe": (
        "is in no state: it has intd",
        """
enter(); commit.written(mess)
envelope(); commit.sync()
commit.link(intd, todo); commit.sync()
os.write(1, b"queued")
""",
    ),
    "todo is linked before its contents are safe": (
        "is in S4 and its todo is not whole",
        """
enter(); commit.written(mess); commit.sync()
envelope()
commit.link(intd, todo); commit.sync()
os.write(1, b"queued")
""",
    ),
    "queued is said before the last sync": (
        "queued was said, and the states are [3]",
        """
enter(); commit.written(mess); commit.sync()
envelope(); commit.sync()
commit.link(intd, todo)
os.write(1, b"queued")
commit.sync()
""",
    ),
    "mess is named after another inode": (
        "has the inode number",
        """
enter(); commit.written(mess); commit.sync()
os.rename(mess, mess + "3"); commit.written(mess + "3"); commit.sync()
os.write(1, b"")
""",
    ),
}


def inject(tmp_path: Path, steps: str) -> tuple[CrashModel, Layout]:
    home = make_home(tmp_path / "home", split=3)
    model = traced_script(Path(home.queue), INJECT + steps, home.queue)
    return model, Layout("", open_layout(home.queue).split)


def said_queued(crash: Crash, found: dict[int, Message]) -> list[str]:
    """After `queued` was said there is one message, in S4."""
    states = [message.state for message in found.values()]
    return [] if crash.said != b"queued" or states == [QUEUED] else [f"queued was said, and the states are {states}"]


def test_the_right_order_of_an_injection_survives_every_power_cut(tmp_path: Path) -> None:
    model, layout = inject(tmp_path, RIGHT)

    assert check_queue(model, layout, said_queued) > 20


@pytest.mark.parametrize("order", WRONG)
def test_a_wrong_order_of_an_injection_is_caught_where(tmp_path: Path, order: str) -> None:
    wrong, steps = WRONG[order]
    model, layout = inject(tmp_path, steps)

    lines = broken(model, layout, said_queued)[1]

    assert any(wrong in line for line in lines), lines
