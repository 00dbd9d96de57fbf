"""The counts for an account that may not read the queue: queue-send's socket in monitor/, and who may ask there."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_wire.admin.socket import DESTINATIONS, FIGURES, REREAD, TOTALS, Request
from support.processes.forked import BIN
from support.processes.suite import wait_until
from support.queues.home import make_home
from support.queues.queued import classified_message
from support.send.control import Client
from support.send.scripted_send import ScriptedSend
from support.site import mail_site

NOBODY, GROUP = 65534, 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")


@pytest.fixture
def watched() -> Iterator[Home]:
    """A queue whose owner alone may read it, and whose queue-send has a hanging message to a local address."""
    with mail_site() as site:
        yield from _watched(site.home)


def _watched(home: Home) -> Iterator[Home]:
    for path, mode in ((home.path, 0o755), (home.queue, 0o711), (f"{home.queue}/lock", 0o700), (home.control, 0o755)):
        os.chmod(path, mode)
    for kind in ("mess", "todo", "info"):
        os.chmod(f"{home.queue}/{kind}", 0o700)
    Path(home.path, "monitor").mkdir(0o750)
    with ScriptedSend(home) as send:
        send.fence()
        send.todo.classified(classified_message(home, local=[b"joe@me.example"], remote=[b"ann@far.example"]))
        send.local.job()
        yield home


def metrics(home: Home, group: int) -> subprocess.CompletedProcess[str]:
    """Run `queuectl metrics` as an account of this group that owns nothing."""
    return subprocess.run(
        [sys.executable, str(BIN / "queuectl"), "--home", home.path, "metrics"],
        user=NOBODY, group=group, extra_groups=[], capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@as_root
def test_an_account_that_may_search_monitor_reads_counts_and_no_address(watched: Home) -> None:
    monitor = Path(watched.path, "monitor")
    os.chown(monitor, 0, GROUP)
    done = metrics(watched, GROUP)
    assert done.returncode == 0, done.stderr
    assert re.search(r'^queue_messages\{channel="local",state="active"\} 1.0$', done.stdout, re.MULTILINE)
    assert re.search(r"^queue_up 1.0$", done.stdout, re.MULTILINE)
    assert "example" not in done.stdout and "joe" not in done.stdout
    # What this account cannot know is left out, and is not 0.
    assert "queue_inflow" not in done.stdout and "queue_smtpd" not in done.stdout
    assert "joe@me.example" in subprocess.run(
        [sys.executable, str(BIN / "queuectl"), "--home", watched.path, "metrics"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    other = metrics(watched, GROUP + 1)
    assert (other.returncode, other.stdout) == (111, "")
    assert "who may search that directory may read counts" in other.stderr


def test_the_socket_of_counts_answers_nothing_else(watched: Home) -> None:
    requests: list[tuple[bytes, list[bytes]]] = [(TOTALS, []), (DESTINATIONS, [b"local", b""]), (REREAD, [])]
    for command, names in requests:
        with Client(watched, only_counts=True) as client:
            reply = client.ask(Request(command, b"", names))
            assert reply is not None and reply.error.startswith(b"here are counts alone")
    with Client(watched, only_counts=True) as client:
        reply = client.ask(Request(FIGURES, b"", []))
        assert reply is not None and not reply.error and reply.notes
        assert not [note for note in reply.notes if b"example" in note.text]


def test_monitor_is_listened_in_only_if_nobody_else_may_write_there(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    with ScriptedSend(home) as send:
        send.fence()
        assert not os.path.exists(f"{home.path}/monitor")
    monitor = Path(home.path, "monitor")
    monitor.mkdir()
    monitor.chmod(0o775)
    with ScriptedSend(home) as send:
        send.wait_for(f"alert: unable to use {monitor}: .*nobody else may write; no other account can ask for counts")
        assert not list(monitor.iterdir())
    monitor.chmod(0o755)
    with ScriptedSend(home) as send:
        wait_until(lambda: [path.name for path in monitor.iterdir()] == ["queue"], why="the socket")
        send.fence()
