"""queue-clean: removes finished messages, so that a slow unlink never stalls the scheduler.

`queue-clean [--home HOME]`, started by queue-start. fd 0 gives ids from queue-send (queue_wire.pipes.cleaning), fd 1
takes one answer for each, in order. A request that comes after a while without any is carried out at once. Those of the
next half second, GROUP at most, form a group with shared syncs, and so on. If they have filled the pipe, the next group
follows at once. At start, and then every 21 hours, it looks for what dead injectors have left, and an hour after it has
seen it removes it. It exits at the end of fd 0.
"""

import os
import select
import signal
import time
from collections.abc import Iterator

from queue_base.daemon.pipes import PeerLost, read_available
from queue_base.daemon.signals import ignore
from queue_base.durable import Commit, write_all
from queue_base.errors import Failure, complain, reason
from queue_base.home import take_daemon_home
from queue_base.queue.layout import Layout, open_layout
from queue_base.queue.removal import finish_removals, remove_messages
from queue_base.queue.sightings import SEEN_SECONDS, Sightings
from queue_clean.sweep import Swept, sweep
from queue_wire.format_error import FormatError
from queue_wire.pipes.cleaning import NOT_UNDERSTOOD, REMOVED, TROUBLE, Removal, unpack_clean
from queue_wire.pipes.framing import RecordReader

USAGE = "usage: queue-clean [--home HOME] [--queue NAME]"
HELP = f"""{USAGE}
Removes finished messages, and what dead injectors have left. It is started by queue-start.
"""
GROUP = 2000  # The most messages of a group.
GROUP_SECONDS = 0.5  # Seconds between the begins of two groups, unless there are GROUP requests.
# Bytes of one read that may have been all that the pipe holds: it holds 64 kB, less what its pages have left over. The
# requests that did not fit come as soon as the group is removed.
PIPE_FULL = 32768
SYNC_AGAIN = 60.0  # Seconds until a sweep that could not begin is tried again.
SWEEP_EVERY = 76431.0  # Seconds between sweeps, qmail's SLEEP_CLEANUP: 21 hours.


def answer(layout: Layout, records: list[bytes], failing: set[int]) -> bytes:
    """Remove the messages that the records name; return the answers, in order.

    `failing` are the messages whose removal queue-send will ask for again.
    """
    asked: list[Removal | None] = []
    for record in records:
        try:
            asked.append(unpack_clean(record))
        except FormatError as error:
            complain("queue-clean", f"warning: {error}; ignored")
            asked.append(None)
    removals = [removal for removal in asked if removal is not None]
    failed = remove_messages(layout, removals)
    failing.difference_update(removal.message for removal in removals)
    failing.update(failed)
    for message, trouble in failed.items():
        name = trouble.filename or message
        complain("queue-clean", f"warning: unable to remove {name}: {reason(trouble)}; it will be asked for again")
    return b"".join(
        NOT_UNDERSTOOD if removal is None else TROUBLE if removal.message in failed else REMOVED for removal in asked
    )


def sync_todo(layout: Layout) -> None:
    """Sync the directories of todo/ and intd/. Raises OSError.

    An earlier run may have removed names there without a sync. If a power cut brought them back after mess/ is gone,
    they would be envelopes without a message.
    """
    commit = Commit()
    for directory in (*layout.directories("todo"), *layout.directories("intd")):
        commit.contents(directory)
    commit.sync()


def try_sync_todo(layout: Layout) -> bool:
    """Sync the directories of todo/ and intd/; return whether that is done, complain if not."""
    try:
        sync_todo(layout)
    except OSError as error:
        complain("queue-clean", f"warning: unable to sync {error.filename or 'todo'}: {reason(error)}; will try again")
        return False
    return True


def remove_group(layout: Layout, records: list[bytes], synced: bool, failing: set[int]) -> bool:
    """Carry out requests, and write the answers. Before the first ones, sync todo/; return whether that is done."""
    synced = synced or try_sync_todo(layout)
    answers = answer(layout, records, failing) if synced else TROUBLE * len(records)
    try:
        # This may block until queue-send reads, which it does in every turn of its loop.
        write_all(1, answers)
    except BrokenPipeError:
        pass  # queue-send has exited.
    return synced


def loop(layout: Layout, synced: bool) -> None:
    """Serve requests; sweep one directory at a time while there are none. Raises PeerLost at the end.

    `synced` is whether `sync_todo` has succeeded.
    """
    reader = RecordReader()
    poll = select.poll()
    records: list[bytes] = []
    # The sweep leaves these alone: the second request for their removal would remove the next message of the number.
    failing: set[int] = set()
    next_group = 0.0
    full = False  # Whether the pipe may have been full when it was read last.
    sweeping: Iterator[Swept] | None = None
    sightings = Sightings()
    next_sweep = time.monotonic()
    while True:
        # Until the next group its requests stay in the pipe, where they wake nobody, and one read takes them. Only the
        # end of the pipe, which poll reports in any case, ends the wait.
        now = time.monotonic()
        gathering = now < next_group
        poll.register(0, 0 if gathering else select.POLLIN)
        due = min(next_group, next_sweep) if gathering else next_sweep
        wait = 0.0 if records or sweeping is not None else max(0.0, due - now)
        if len(records) < GROUP and poll.poll(wait * 1000):
            gathering = False
            try:
                data = read_available(0) or b""
                full = len(data) >= PIPE_FULL
                records += reader.feed(data)
            except PeerLost:
                # queue-send has exited. Its requests are carried out all the same.
                if records:
                    remove_group(layout, records, synced, failing)
                raise
        now = time.monotonic()
        if records and not gathering:
            group, records = records[:GROUP], records[GROUP:]
            next_group = now if records or full else now + GROUP_SECONDS
            synced = remove_group(layout, group, synced, failing)
        elif sweeping is not None:
            swept = next(sweeping, None)
            if swept is None:
                sweeping = None
                if sightings:
                    next_sweep = min(next_sweep, now + SEEN_SECONDS)
            elif swept.trouble:
                complain("queue-clean", f"warning: {swept.trouble}; the next sweep will try again")
        elif now >= next_sweep:
            synced = synced or try_sync_todo(layout)
            if synced:
                sweeping = sweep(layout, time.time(), failing, sightings)
            next_sweep = time.monotonic() + (SWEEP_EVERY if synced else SYNC_AGAIN)


def main(argv: list[str]) -> int:
    """Run the daemon; return 0 at the end of fd 0, else an exit code of queue_base.errors."""
    try:
        home = take_daemon_home(argv, USAGE, HELP)
        if home is None:
            return 0
        ignore(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        os.umask(0o027)
        layout = open_layout(home.queue)
        synced = try_sync_todo(layout)
        try:
            troubles = finish_removals(layout) if synced else []
        except OSError as error:
            troubles = [error]
        for trouble in troubles[:1]:
            others = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
            text = f"warning: unable to remove {trouble.filename}{others}: {reason(trouble)}; the sweep will"
            complain("queue-clean", text)
        loop(layout, synced)
    except PeerLost:
        return 0
    except FormatError as error:
        complain("queue-clean", f"fatal: request from queue-send: {error}")
        return 111
    except Failure as error:
        complain("queue-clean", f"fatal: {error}")
        return error.exit_code
    return 0
