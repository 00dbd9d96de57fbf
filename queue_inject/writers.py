"""Chooses where a message goes: into the queue, to queue-intake, or to a program named by the environment.

The owner of queue/ writes to the queue, and root becomes that owner first. Any other user hands mail to queue-intake,
or leaves it in maildrop/ if that is not possible.
"""

import os

from queue_base.accounts import become_reader, queue_owner
from queue_base.errors import CONFIG, HOME_TROUBLE, QUEUE_TROUBLE, Failure, QueueTrouble
from queue_base.home import Home, enqueue_program
from queue_base.queue.layout import open_layout
from queue_base.queue.writer import QueueWriter, Writer
from queue_wire.files.envelope import is_submitter

PRIORITY = "QUEUE_PRIORITY"
SUBMITTER = b"QUEUE_SUBMITTER"
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def open_writer(home: Home, filters: bool = False) -> Writer:
    """Return the writer for this user; root becomes the owner of queue/ first. Raises QueueTrouble.

    The uid on record stays the real user id that the program was started with. With `filters`, a program that the
    environment names gets the message instead. queue-enqueue never asks for that, since such programs run it to queue
    the message.

    QUEUE_PRIORITY names the class that is asked for. Raises Usage if there is no such class. QUEUE_SUBMITTER is what
    queue-smtpd says to a program that queues its mail; it counts from those who may speak for others alone.
    """
    writer = _choose_writer(home, filters)
    if name := os.environ.get(PRIORITY):
        # Imported here because most mail asks for no class.
        from queue_base.queue.class_trees import check_class

        writer.priority = check_class(home, name)
    if is_submitter(submitter := os.environb.get(SUBMITTER, b"")):
        writer.submitter = submitter
    return writer


def _choose_writer(home: Home, filters: bool) -> Writer:
    named = enqueue_program() if filters else None
    if named is not None:
        # Imported here because it takes half as long as everything else together.
        from queue_inject.filter import FilterWriter

        return FilterWriter(home, *named)
    uid, effective = os.getuid(), os.geteuid()
    if not os.path.isdir(home.path):
        raise QueueTrouble(HOME_TROUBLE, f"unable to use {home.path}: it is not there; queuectl init makes a home")
    try:
        owner = queue_owner(home)
        if effective == 0 and owner.uid != 0:
            become_reader(owner)
    except Failure as failure:
        raise QueueTrouble(QUEUE_TROUBLE, str(failure)) from failure
    if effective not in (0, owner.uid):
        # Imported here because only a user who may not write to the queue needs it.
        from queue_inject.drop import DropWriter
        from queue_inject.hand_in import IntakeWriter

        return IntakeWriter(home, DropWriter(home) if home.is_chosen else _spread_drops(home))
    if not home.is_chosen:
        # Imported here because most homes have one queue.
        from queue_base.queue.spreading import open_spread

        return open_spread(home, owner, uid)
    try:
        layout = open_layout(home.queue)
    except Failure as failure:
        # The number of directories is part of the queue's configuration.
        raise QueueTrouble(CONFIG, str(failure)) from failure
    return QueueWriter(home, layout, uid)


def _spread_drops(home: Home) -> Writer:
    """Return a writer to maildrop/ of all queues."""
    from queue_base.queue.spreading import SpreadWriter
    from queue_inject.drop import DropWriter

    def opener(one: Home) -> "Callable[[], Writer]":
        return lambda: DropWriter(one)

    homes = home.each()
    return SpreadWriter(homes, [opener(one) for one in homes], "maildrop")
