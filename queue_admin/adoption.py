"""Takes a qmail home over in place: owners and modes become ours, what is missing is made.

No message's bytes, names, inode numbers or mtimes change, nor alias/ and control/, which serve both.
Every step can be repeated, and the last one gives queue/ itself to its new owner, so an adoption that
was cut off is finished, or undone, by running it again.
"""

from queue_admin.closing import ClosedQueue
from queue_admin.create import create_queue
from queue_admin.flatten import check_names, flatten, is_half_flat
from queue_admin.make import Maker, naming
from queue_admin.modes import ALIAS_MODE, BUCKETED, EITHER, OURS, QUEUE_MODE, SENDMUTEX_MODE, TRIGGER_MODE
from queue_admin.ownership import Giver
from queue_base.accounts import Owner
from queue_base.durable import Commit
from queue_base.home import Home
from queue_base.layout import open_layout


def adopt(home: Home, owner: Owner) -> list[str]:
    """Give the queue to `owner`; return lines that say what was done. Raises Permanent or Temporary."""
    commit = Commit()
    maker = Maker(owner, commit)
    giver = Giver(commit)
    done: list[str] = []
    with ClosedQueue(home, commit) as closed:
        layout = open_layout(home.queue)
        # An undo was cut off in there. Flat is a layout of ours as well.
        half = [kind for kind in EITHER if is_half_flat(home.queue, kind, layout.split)]
        for kind in half:
            check_names(home.queue, kind, layout.split)
        closed.begin(None)
        done += [f"made {kind}/ flat: {flatten(home.queue, kind, layout.split, commit)} files moved" for kind in half]
        create_queue(maker, home, layout.split)
        maker.directory(home.alias, ALIAS_MODE)
        for kind, (directory_mode, file_mode) in OURS.items():
            giver.tree(f"{home.queue}/{kind}", owner, directory_mode, file_mode, kind in BUCKETED)
            with naming("sync", home.queue):
                commit.sync()
        giver.one(f"{home.queue}/lock/sendmutex", owner, SENDMUTEX_MODE)
        giver.one(f"{home.queue}/lock/trigger", owner, TRIGGER_MODE)
        closed.open(owner, QUEUE_MODE)
    done += [f"made {path}" for path in maker.made]
    known = {f"{home.queue}/{kind}" for kind in OURS}
    left = [path for path in giver.left if path not in known]
    done += [f"left alone {path!a}: neither a file nor a directory of a queue" for path in left]
    done.append(f"changed owner or mode of {giver.changed} files and directories")
    return done
