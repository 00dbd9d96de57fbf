"""queuectl stat: the number of messages in each state, the disk, and the daemons. Reads only."""

import json
import os
import time
from collections import Counter
from typing import Any

import click

from queue_admin.home.chosen import each_queue, home_of, with_queue
from queue_admin.home.modes import MAILDROP_REJECTS
from queue_admin.messages.admin_client import QUERY_WAIT, NoAnswer, SchedulerQueries, connect
from queue_admin.messages.divided import count_shares, divide
from queue_admin.messages.stored_mail import COUNTED_MAX, StoredMail
from queue_admin.messages.survey import Snapshot, Stray, Survey
from queue_admin.printable import span
from queue_admin.progress import Progress
from queue_admin.system_accounts import be_owner
from queue_base.errors import TEMPORARY, Failure, Temporary
from queue_base.home import Home
from queue_base.queue.layout import Layout, open_layout
from queue_wire.files.maildrop import is_finished
from queue_wire.logline import moment

RUNNING = "running"
STATES = ("incoming", "queued", "classified", "unknown")


class Totals:
    """Totals over messages of a queue. `oldest` is the oldest birth, in microseconds."""

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self.marks: Counter[str] = Counter()
        self.strays = self.size = 0
        self.messages = 0
        self.oldest: int | None = None

    def add(self, found: Snapshot | Stray) -> None:
        """Count a message or a stray name."""
        if isinstance(found, Stray):
            self.strays += 1
            return
        self.states[found.state] += 1
        for mark in ("held", "corrupt", "trouble"):
            if getattr(found, mark):
                self.marks[mark] += 1
        self.messages += "mess" in found.files
        self.size += found.size or 0
        self._add_birth(found.birth)

    def merge(self, other: "Totals") -> None:
        """Add the totals of other messages."""
        self.states.update(other.states)
        self.marks.update(other.marks)
        self.strays += other.strays
        self.messages += other.messages
        self.size += other.size
        self._add_birth(other.oldest)

    def _add_birth(self, birth: int | None) -> None:
        if birth is not None and (self.oldest is None or birth < self.oldest):
            self.oldest = birth


def count_messages(layout: Layout) -> Totals:
    """Return the totals of a queue. Several processes count a large one. Raises Temporary."""
    shares, every = count_shares(layout), Survey(layout)

    def count(share: int) -> Totals:
        totals = Totals()
        with Progress(None, "messages", "looked at") as progress:
            for number in range(share, layout.split, shares):
                for found in every.bucket(number):
                    totals.add(found)
                    if not share:
                        progress.step(shares)  # The first share stands for all.
        return totals

    totals, *others = divide(count, shares)
    for other in others:
        totals.merge(other)
    for stray in every.strays:
        totals.add(stray)
    for found in every.beside():
        totals.add(found)
    return totals


@click.command("stat")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def command(context: click.Context, form: str) -> None:
    """Count the messages in the queue, and show its disk and its daemons.

    It needs no lock and changes nothing. Exit 0 if queue-send runs, 111 if it does not, or does not answer.

    The first two lines are those of qmail-qstat. `maildrop` is left out if it cannot be read, and what is stored for
    on-demand domains if nothing is. `being removed` counts the finished messages that wait for queue-clean. The line of
    a daemon has its pid, its age and its resident memory.
    With --format json it is one object for each queue.

    \b
    Examples:
      queuectl --home /var/queue stat
      queuectl stat --format json
    """
    # Imported here, because psutil takes long to load, and before be_owner, because perhaps only root can read it.
    import queue_admin.metrics.system_facts  # noqa: F401

    home = home_of(context)
    be_owner(home)
    each_queue(home, lambda one: _show(one, form), heading=form == "text", both=True)


def _show(home: Home, form: str) -> None:
    """Print what is known of one queue. Raises Exit if its queue-send does not run."""
    from queue_admin.metrics.system_facts import disk_space, find_processes

    layout = open_layout(home.queue)
    totals = count_messages(layout)
    space = disk_space(home.queue)
    pid, state = _find_queue_send(home)
    processes = find_processes(pid) if pid else []
    removing, silent = _removals(home) if state == RUNNING else (None, "")
    state = silent or state
    facts: dict[str, Any] = {
        "messages": totals.messages,
        **{name: totals.states[name] for name in STATES},
        **{name: totals.marks[name] for name in ("held", "corrupt", "trouble")},
        "strays": totals.strays,
        "maildrop": _files(f"{home.queue}/maildrop", finished=True),
        "set_aside": _files(f"{home.queue}/{MAILDROP_REJECTS}", finished=False),
        "stored": _stored(home),
        "bytes": totals.size,
        "oldest": None if totals.oldest is None else moment(totals.oldest / 1e6),
        "split": layout.split,
        "todo": "flat" if layout.flat_todo else "hashed",
        "intd": "flat" if layout.flat_intd else "hashed",
        "disk": {"free": space.free, "total": space.total},
        "removing": removing,
        "queue_send": state,
        "processes": [
            {"program": each.program, "pid": each.pid, "age": int(each.age), "memory": each.memory}
            for each in processes
        ],
    }
    if form == "json":
        print(json.dumps(with_queue(home, facts)))
    else:
        age = None if totals.oldest is None else time.time() - totals.oldest / 1e6
        print("\n".join(_lines(facts, age)))
    if state != RUNNING:
        raise click.exceptions.Exit(TEMPORARY)


def _lines(facts: dict[str, Any], oldest: float | None) -> list[str]:
    """Return the text. `oldest` is the age of the oldest message in seconds."""
    removing = facts["removing"]
    lines = [
        f"messages in queue: {facts['messages']}",
        f"messages in queue but not yet preprocessed: {facts['queued']}",
        *(f"{state}: {facts[state]}" for state in (*STATES, "held", "corrupt")),
        f"with trouble: {facts['trouble']}",
        f"stray names: {facts['strays']}",
        *(
            f"{title}: {facts[name]}"
            for title, name in (("maildrop", "maildrop"), ("set aside from maildrop", "set_aside"))
            if facts[name] is not None
        ),
        *([f"stored for on-demand domains: {_at_most(facts['stored'])}"] if facts["stored"] else []),
        f"bytes: {facts['bytes']}",
        f"oldest: {'none' if oldest is None else span(oldest)}",
        *(f"{name}: {facts[name]}" for name in ("split", "todo", "intd")),
        f"disk: {facts['disk']['free']} bytes free of {facts['disk']['total']}",
    ]
    if removing is not None:
        wait = f", the oldest for {removing['wait']} s" if removing["messages"] else ""
        lines.append(f"being removed: {removing['messages']}{wait}")
    for each in facts["processes"]:
        memory = each["memory"] // 1_000_000
        lines.append(f"{each['program']}: pid {each['pid']}, up {span(each['age'])}, {memory} MB")
    if facts["queue_send"] != RUNNING or not facts["processes"]:
        lines.append(f"queue-send: {facts['queue_send']}")
    return lines


def _stored(home: Home) -> int | None:
    """Return how many messages are stored, COUNTED_MAX if there are more, None if that cannot be read."""
    try:
        mail = StoredMail(home)
        count = mail.count()
        mail.check()
        return count
    except Temporary:
        return None


def _at_most(count: int) -> str:
    """Return how many messages are stored, as far as they were counted."""
    return f"{COUNTED_MAX} or more" if count == COUNTED_MAX else str(count)


def _files(path: str, finished: bool) -> int | None:
    """Return the number of (finished) files in a directory, None if it cannot be read."""
    try:
        with os.scandir(path) as entries:
            return sum(not finished or is_finished(entry.name) for entry in entries)
    except FileNotFoundError:
        return 0
    except OSError:
        return None


def _removals(home: Home) -> tuple[dict[str, int] | None, str]:
    """Return how many finished messages queue-clean has not removed yet, and the seconds that the oldest has waited.

    With it comes why queue-send does not answer, empty if it does.
    """
    try:
        with SchedulerQueries(home) as queries:
            count, seconds = queries.removals()
    except NoAnswer as error:
        return None, str(error)
    return {"messages": count, "wait": seconds}, ""


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
    return pid, RUNNING
