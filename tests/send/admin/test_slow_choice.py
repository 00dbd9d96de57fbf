"""An order whose messages are chosen slowly: between two requests it has neither a connection nor the lock."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from queue_base.daemon.lock import take_sendmutex
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_wire.admin.socket import IDS_MAX
from support.processes.forked import BIN, Forked, fork_piped
from support.processes.suite import wait_until
from support.queues.inflow import patched_programs
from support.queues.queued import classified_message
from support.send.control import Client, file, long_id
from support.send.scripted_send import ScriptedSend


def waiting(home: Home, count: int) -> list[int]:
    return [classified_message(home, remote=[b"b@c.example"], due=4e9) for _ in range(count)]


@contextmanager
def hold_of_ids(home: Home, messages: list[int]) -> Iterator[Forked]:
    """Run `queuectl hold -`, and give it these ids on stdin; return when it has held them, and waits for more."""
    process = fork_piped("queuectl", [str(BIN / "queuectl"), "--home", home.path, "hold", "-"])
    try:
        give(home, process, messages)
        wait_until(lambda: all(file(home, "hold", each).exists() for each in messages), why="the marks in hold/")
        yield process
    finally:
        process.kill()
        process.wait()


def give(home: Home, process: Forked, messages: list[int]) -> None:
    assert process.stdin is not None
    process.stdin.write("".join(f"{long_id(home, each)}\n" for each in messages).encode())
    process.stdin.flush()


def is_free(home: Home) -> bool:
    try:
        os.close(take_sendmutex(home))
    except Temporary:
        return False
    return True


def test_an_order_goes_on_though_a_choice_took_longer_than_queue_send_keeps_a_silent_client(
    home: Home, tmp_path: Path
) -> None:
    programs = patched_programs(
        tmp_path, queue_send="import queue_send.admin.admin_socket as patched; patched.IDLE = 0.2"
    )
    messages = waiting(home, IDS_MAX + 1)
    with ScriptedSend(home, programs=programs) as send:
        send.fence()
        with hold_of_ids(home, messages[:-1]) as process:
            with Client(home) as later:
                assert later.reply() is None  # Whoever was connected before is disconnected, too.
            give(home, process, messages[-1:])
            said, errors = process.communicate()
            assert (process.wait(), said, errors) == (0, b"held %d messages\n" % len(messages), b"")


def test_queue_send_may_start_while_an_order_chooses_its_messages(home: Home) -> None:
    messages = waiting(home, IDS_MAX + 1)
    with hold_of_ids(home, messages[:-1]) as process:
        wait_until(lambda: is_free(home), deadline=10, why="sendmutex")
        with ScriptedSend(home) as send:
            send.fence()
            give(home, process, messages[-1:])
            said, errors = process.communicate()
            assert (process.wait(), said, errors) == (0, b"held %d messages\n" % len(messages), b"")
            send.wait_for(f"hold msg {messages[-1]}: .*")
