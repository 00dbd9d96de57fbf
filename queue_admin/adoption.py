"""Takes a qmail home over in place: owners and modes become ours, what is missing is made.

No message's bytes, names, inode numbers or mtimes change, nor alias/ and control/, which serve both.
Every step can be repeated, and the last one gives queue/ itself to its new owner, so an adoption that
was cut off is finished, or undone, by running it again.
"""

import stat

from queue_admin.closing import ClosedQueue
from queue_admin.create import create_queue
from queue_admin.flatten import check_names, flatten, is_half_flat
from queue_admin.make import Maker
from queue_admin.modes import ALIAS_MODE, BUCKETED, EITHER, OURS, QUEUE_MODE, SENDMUTEX_MODE, TRIGGER_MODE
from queue_admin.ownership import Giver, check_directories, known_uids
from queue_admin.tree import naming
from queue_base.accounts import Owner
from queue_base.home import Home
from queue_base.layout import open_layout


def adopt(home: Home, owner: Owner) -> list[str]:
    """Give the queue to `owner`; return lines that say what was done. Raises Permanent or Temporary."""
    done: list[str] = []
    with ClosedQueue(home) as closed:
        tree = closed.tree
        maker = Maker(owner, tree=tree)
        beside = Maker(owner)
        giver = Giver(tree, known_uids(tree, owner))
        layout = open_layout(home.queue)
        # An undo was cut off in there. Flat is a layout of ours as well.
        half = [kind for kind in EITHER if is_half_flat(tree, kind, layout.split)]
        for kind in half:
            check_names(tree, kind, layout.split)
        check_directories(tree, OURS)
        closed.begin(None)
        done += [f"made {kind}/ flat: {flatten(tree, kind, layout.split)} files moved" for kind in half]
        create_queue(maker, tree, layout.split)
        beside.directory(home.alias, ALIAS_MODE)
        with naming("sync", home.path):
            beside.commit.sync()
        for kind, (directory_mode, file_mode) in OURS.items():
            giver.directory(kind, owner, directory_mode, file_mode, kind in BUCKETED)
            tree.sync()
        giver.one("lock/sendmutex", owner, SENDMUTEX_MODE)
        giver.one("lock/trigger", owner, TRIGGER_MODE, stat.S_ISFIFO)
        closed.open(owner, QUEUE_MODE)
    done += [f"made {path}" for path in maker.made + beside.made]
    known = {f"{home.queue}/{kind}" for kind in OURS}
    done += [f"left alone {path!a}: {why}" for path, why in giver.left.items() if path not in known]
    done.append(f"changed owner or mode of {giver.changed} files and directories")
    return done
