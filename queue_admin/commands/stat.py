"""queuectl stat: the number of messages in each state, the disk, and the daemons. Reads only."""

import os
import time
from collections import Counter

import click

from queue_admin.home.modes import MAILDROP_REJECTS
from queue_admin.messages.admin_client import QUERY_WAIT, NoAnswer, SchedulerQueries, connect
from queue_admin.messages.survey import Stray, survey
from queue_admin.printable import span
from queue_admin.system_accounts import be_owner
from queue_base.errors import Failure
from queue_base.home import Home, find_home
from queue_base.layout import Layout, open_layout
from queue_wire.maildrop import is_finished


class Totals:
    """Totals over the messages of a queue."""

    def __init__(self, layout: Layout) -> None:
        """Count the messages."""
        self.states: Counter[str] = Counter()
        self.marks: Counter[str] = Counter()
        self.strays = self.size = 0
        self.messages = 0
        self.oldest: int | None = None
        for found in survey(layout):
            if isinstance(found, Stray):
                self.strays += 1
                continue
            self.states[found.state] += 1
            self.marks.update(mark for mark in ("held", "corrupt", "trouble") if getattr(found, mark))
            self.messages += found.presence.mess
            self.size += found.size or 0
            if found.birth is not None and (self.oldest is None or found.birth < self.oldest):
                self.oldest = found.birth


@click.command("stat")
@click.pass_context
def command(context: click.Context) -> None:
    """Count the messages in the queue, and show its disk and its daemons.

    It needs no lock and changes nothing.

    The first two lines are those of qmail-qstat. `maildrop` is left out if it cannot be read. `being removed` counts
    the finished messages that wait for queue-clean. The line of a daemon has its pid, its age and its resident memory.

    \b
    Example:
      queuectl --home /var/queue stat
    """
    # Imported here, because psutil takes long to load, and before be_owner, because perhaps only root can read it.
    from queue_admin.system_facts import disk_space, find_processes

    home = find_home(context.obj)
    be_owner(home)
    layout = open_layout(home.queue)
    totals = Totals(layout)
    space = disk_space(home.queue)
    pid, state = _find_queue_send(home)
    processes = find_processes(pid) if pid else []
    lines = [
        f"messages in queue: {totals.messages}",
        f"messages in queue but not yet preprocessed: {totals.states['queued']}",
        *(f"{state}: {totals.states[state]}" for state in ("incoming", "queued", "classified", "unknown")),
        f"held: {totals.marks['held']}",
        f"corrupt: {totals.marks['corrupt']}",
        f"with trouble: {totals.marks['trouble']}",
        f"stray names: {totals.strays}",
        *_maildrop(home),
        f"bytes: {totals.size}",
        f"oldest: {'none' if totals.oldest is None else span(time.time() - totals.oldest / 1e6)}",
        f"split: {layout.split}",
        f"todo: {'flat' if layout.flat_todo else 'hashed'}",
        f"intd: {'flat' if layout.flat_intd else 'hashed'}",
        f"disk: {space.free} bytes free of {space.total}",
        *([_removals(home)] if processes else []),
        *(
            f"{each.program}: pid {each.pid}, up {span(each.age)}, {each.memory // 1_000_000} MB" for each in processes
        ),
    ]
    if not processes:
        lines.append(f"queue-send: {state}")
    print("\n".join(lines))


def _maildrop(home: Home) -> list[str]:
    """Return a line with the number of files in maildrop/, and one with the number of those that were set aside."""
    lines = []
    for title, place, counts in (
        ("maildrop", "maildrop", is_finished),
        ("set aside from maildrop", MAILDROP_REJECTS, lambda name: True),
    ):
        try:
            with os.scandir(f"{home.queue}/{place}") as entries:
                lines.append(f"{title}: {sum(counts(entry.name) for entry in entries)}")
        except FileNotFoundError:
            lines.append(f"{title}: 0")
        except OSError:
            continue
    return lines


def _removals(home: Home) -> str:
    """Return the line about finished messages that queue-clean has not removed yet."""
    try:
        with SchedulerQueries(home) as queries:
            count, seconds = queries.removals()
    except NoAnswer as error:
        return f"being removed: {error}"
    return f"being removed: {count}" + (f", the oldest for {seconds} s" if count else "")


def _find_queue_send(home: Home) -> tuple[int, str]:
    """Return the pid of queue-send, 0 if there is none or it cannot be seen; and its state in words."""
    try:
        client = connect(home, QUERY_WAIT)
    except Failure as error:
        return 0, f"not known: {error}"
    if client is None:
        return 0, "not running"
    pid = client.peer_pid()
    client.close()
    return pid, "running"
