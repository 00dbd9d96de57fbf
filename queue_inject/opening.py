"""Which writer a user may use: the queue's, or that of maildrop/ (docs/design/injection.md), or a filter."""

import os

from queue_base.accounts import become_reader, queue_owner
from queue_base.draft import CONFIG, HOME_TROUBLE, QUEUE_TROUBLE, QueueTrouble, Writer
from queue_base.errors import Failure
from queue_base.home import Home, trusted_variable
from queue_base.layout import open_layout
from queue_base.writer import QueueWriter

FILTERS = ("QUEUE_ENQUEUE", "QMAILQUEUE")


def open_writer(home: Home, filters: bool = False) -> Writer:
    """Return the writer that this user may use; root first becomes queue/'s owner. Raises QueueTrouble.

    The injector on record stays the real user id that the program was started with. With `filters`, a program that the
    environment names gets the message instead; queue-enqueue, which such programs end by running, never asks for that.
    """
    for variable in FILTERS if filters else ():
        if program := trusted_variable(variable):
            # Imported here because it costs half as much as all the rest.
            from queue_inject.filter import FilterWriter

            return FilterWriter(home, variable, program)
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

        return DropWriter(home)
    try:
        layout = open_layout(home.queue)
    except Failure as failure:
        # How many directories there are is the queue's configuration.
        raise QueueTrouble(CONFIG, str(failure)) from failure
    return QueueWriter(home, layout, uid)
