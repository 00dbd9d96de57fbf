"""Makes a home, or what is missing in one. Existing files and directories are not changed."""

import os
import stat

from queue_admin.home.maker import Maker, is_there
from queue_admin.home.modes import (
    ALIAS_MODE,
    BUCKETED,
    CONTROL_FILE_MODE,
    CONTROL_MODE,
    HOME_MODE,
    MAY_BE_FLAT,
    OURS,
    QUEUE_MODE,
    RUN,
    SENDMUTEX_MODE,
    TRIGGER_MODE,
    USERS_MODE,
)
from queue_admin.home.tree import Tree, unable_to
from queue_base.accounts import Owner
from queue_base.errors import Permanent, Temporary, Usage
from queue_base.home import Home
from queue_base.queue.layout import HASHED, count_buckets, is_directory
from queue_base.safe_open import read_given
from queue_wire.control.lines import unpack_line, unpack_set
from queue_wire.ids import is_prime, nearest_primes

_THIS_HOST = "localhost"
DEFAULT_SPLIT = 23
SPLIT_MAX = 100_000


def create_home(
    home: Home,
    owner: Owner,
    top: Owner,
    *,
    me: str | None = None,
    local: tuple[str, ...] = (),
    split: int | None = None,
    alias: Owner | None = None,
    file_system: str = "",
) -> list[str]:
    """Make what is missing in a home, durably, and return the paths that were made.

    `owner` owns queue/, `alias` (by default the same) alias/, `top` the home, control/ and users/. `me` is required if
    control/me is missing. `split` must agree with what exists; control files that exist stay. `file_system` is the kind
    that control/queuefilesystem is to accept. Where control/queues names several queues, all are made, or the one that
    was chosen. Raises Usage, Permanent, Temporary.
    """
    check_split(home, split)
    above = Maker(top)
    above.directory(home.path, HOME_MODE)
    above.directory(home.control, CONTROL_MODE)
    names = _own_name(home, me)
    # Mail to this host itself, such as bounces to its users, must not go to a relay.
    accepted = (file_system,) if file_system else ()
    # So must mail to root@localhost, as programs of this host address their alerts.
    locals_lines = dict.fromkeys((*names, *local, _THIS_HOST)) if me or local else ()
    for name, lines in (("me", names), ("locals", locals_lines), ("queuefilesystem", accepted)):
        if lines:
            above.file(f"{home.control}/{name}", "".join(f"{line}\n" for line in lines).encode(), CONTROL_FILE_MODE)
    above.directory(home.users, USERS_MODE)
    alias_maker = Maker(alias or owner, above.commit)
    alias_maker.directory(home.alias, ALIAS_MODE)
    queue_maker = Maker(owner, above.commit)
    made: list[str] = []
    if home.several:
        queue_maker.directory(home.run, QUEUE_MODE)
        with Tree(home.run) as tree:
            below = Maker(owner, tree=tree)
            for kind, mode in RUN.items():
                below.directory(f"{home.run}/{kind}", mode)
            tree.sync()
        made += below.made
    for one in home.each():
        queue_maker.directory(one.queue, QUEUE_MODE)
        # If queue/ is a link, only an administrator can have made it, since only they can write HOME.
        with Tree(one.queue, follow=True) as tree:
            below = Maker(owner, tree=tree)
            create_queue(below, tree, _choose_split(one, split))
            tree.sync()
        made += below.made
    with unable_to("sync", home.path):
        above.commit.sync()
    return above.made + alias_maker.made + queue_maker.made + made


def create_queue(maker: Maker, tree: Tree, split: int) -> None:
    """Make what is missing in queue/, which is `tree`. Existing flat todo/ and intd/ stay flat."""
    for kind, (mode, _) in OURS.items():
        path = f"{tree.path}/{kind}"
        flat = kind in MAY_BE_FLAT and tree.is_directory(kind) and not tree.is_directory(f"{kind}/0")
        maker.directory(path, mode, split if kind in BUCKETED and not flat else 0)
    maker.file(f"{tree.path}/lock/sendmutex", b"", SENDMUTEX_MODE)
    maker.fifo(f"{tree.path}/lock/trigger", TRIGGER_MODE)


def check_split(home: Home, split: int | None) -> None:
    """Raise Usage, Permanent or Temporary if the queues cannot be made, with this split; change nothing."""
    for one in home.each():
        _check_place(one, not home.is_chosen)
        _choose_split(one, split)


def other_names(home: Home, me: str | None, local: tuple[str, ...]) -> list[str]:
    """Return a remark for each control file that lacks names of the options; it stays. Raises Permanent, Temporary."""
    remarks = []
    for name, wanted in (("me", {me} if me else set()), ("locals", set(local))):
        path = f"{home.control}/{name}"
        if not wanted or not is_there(path, stat.S_ISREG, "file"):
            continue
        with unable_to("read", path):
            data = read_given(path)
        found = {unpack_line(data)} if name == "me" else set(unpack_set(data))
        lacks = wanted - {each.lower().decode("ascii", "replace") for each in found}
        if lacks:
            remarks.append(f"{path} stays as it is, without {', '.join(sorted(lacks))}")
    return remarks


def _check_place(home: Home, with_others: bool) -> None:
    """Check that a queue that is not there may be made. Raises Temporary.

    If it has run before, its disk is not mounted. An empty queue below the mount point would take mail, and be hidden
    when the disk is back; so it has to be asked for by name.
    """
    if os.path.lexists(home.queue):
        return
    if with_others and os.path.lexists(f"{home.run}/lock/{home.name}.running"):
        why = f"queue {home.name} has run before, so its disk is not mounted"
        raise Temporary(f"unable to make {home.queue}: {why}; mount it, or --queue {home.name} makes an empty queue")
    above = os.path.dirname(home.queue)
    if home.several and not os.path.isdir(above):
        raise Temporary(f"unable to make {home.queue}: {above} is not there; mount its disk, or make that directory")


def _own_name(home: Home, me: str | None) -> tuple[str, ...]:
    """Return this host's name, from the option or from control/me; empty if neither has it."""
    path = f"{home.control}/me"
    if me or not is_there(path, stat.S_ISREG, "file"):
        return (me,) if me else ()
    with unable_to("read", path):
        found = unpack_line(read_given(path)).decode("ascii", "replace").lower()
    return (found,) if found else ()


def _choose_split(home: Home, wanted: int | None) -> int:
    if wanted is not None and not is_prime(wanted):
        below, above = nearest_primes(wanted)
        nearest = f"the nearest are {below} and {above}" if below != above else f"the nearest is {above}"
        raise Usage(f"unable to use split {wanted}: it is not prime; {nearest}")
    found = next((count for kind in HASHED if (count := _buckets(home, kind))), None)
    if wanted is not None and found not in (None, wanted):
        raise Permanent(f"unable to use split {wanted}: {home.queue} has split {found}, which never changes")
    return found or wanted or DEFAULT_SPLIT


def _buckets(home: Home, kind: str) -> int:
    return count_buckets(home.queue, kind) if is_directory(f"{home.queue}/{kind}") else 0
