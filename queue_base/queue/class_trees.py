"""The trees of the classes of mail, queue/priority/CLASS, and the class of a message that is being injected.

Whoever writes as the owner of queue/ makes the tree of a class when the first message needs it, with the owner and the
modes of todo/. It is made under another name and renamed, so a tree that is there is complete, and two that make it
at once do no harm. Its name may not be durable yet: whoever puts an envelope into it syncs that name too
(`tree_names`). queue-todo finds it when the trigger has it scan. Where no tree can be made, mail is of the first class:
no mail is refused for its class.
"""

import os
import shutil
import time

from queue_base.control import read_value
from queue_base.durable import sync_path
from queue_base.errors import Temporary, Usage
from queue_base.home import Home
from queue_base.queue.layout import PRIORITY, Layout, is_class_tree
from queue_wire.control.priorities import (
    DEFAULT_CLASSES,
    PriorityRule,
    choose_class,
)
from queue_wire.control.registry import PRIORITIES, PRIORITYRULES

CONTROLS_SECONDS = 1.0  # Between looks at the control files.


def read_classes(home: Home) -> tuple[str, ...]:
    """Return the classes of control/priorities, the highest first. Raises Temporary."""
    return read_value(home, PRIORITIES)


def check_class(home: Home, name: str) -> str:
    """Return the name of a class that was asked for. Raises Usage if there is none, and Temporary."""
    classes = read_classes(home)
    if name not in classes:
        raise Usage(f"unable to use the priority {name!r}: there is no such class; there are {', '.join(classes)}")
    return name


def order_classes(home: Home, layout: Layout) -> tuple[str, ...]:
    """Return the lower classes that have a tree, the highest first; those that are not named any more are last."""
    try:
        classes = read_classes(home)
    except Temporary:
        classes = DEFAULT_CLASSES
    ranks = {name: rank for rank, name in enumerate(classes)}
    return tuple(sorted(layout.lower, key=lambda name: (ranks.get(name, len(ranks)), name)))


class ClassChooser:
    """Chooses the classes of messages. The control files are read again when they may have changed."""

    def __init__(self, home: Home, layout: Layout) -> None:
        self._home = home
        self._layout = layout
        self._classes: tuple[str, ...] = DEFAULT_CLASSES
        self._rules: tuple[PriorityRule, ...] = ()
        self._read_at = -1e9

    def choose(self, uid: int, sender: bytes, asked: str, may_raise: bool) -> str:
        """Return the class of a message, whose tree is there; empty for the first one."""
        now = time.monotonic()
        if now - self._read_at >= CONTROLS_SECONDS:
            self._read_at = now
            try:
                self._classes = read_classes(self._home)
                self._rules = read_value(self._home, PRIORITYRULES)
            except Temporary:
                pass  # What was read before stays. `queuectl config check` says what is wrong.
        priority = choose_class(self._classes, self._rules, uid, sender, asked, may_raise)
        if priority and priority not in self._layout.lower:
            try:
                if not is_class_tree(f"{self._layout.queue}/{PRIORITY}/{priority}"):
                    make_class_tree(self._layout, priority)
            except (OSError, Temporary):
                return ""
            self._layout.lower = tuple(sorted((*self._layout.lower, priority)))
        return priority


def tree_names(layout: Layout, priority: str) -> tuple[str, str]:
    """Return the names that lead to the tree of a class and may be new."""
    return f"{layout.queue}/{PRIORITY}", f"{layout.queue}/{PRIORITY}/{priority}"


def make_class_tree(layout: Layout, priority: str) -> None:
    """Make the tree of a class, unless it is there. Only what is in it is durable. Raises OSError."""
    top = f"{layout.queue}/{PRIORITY}"
    like = os.stat(f"{layout.queue}/todo")
    _make_directory(top, like)
    new = f"{top}/.{priority}.{os.getpid()}"
    shutil.rmtree(new, ignore_errors=True)
    try:
        for path in (new, *(f"{new}/{number}" for number in range(layout.split))):
            _make_directory(path, like)
        sync_path(new)
        try:
            os.rename(new, f"{top}/{priority}")
        except OSError:
            if not is_class_tree(f"{top}/{priority}"):
                raise
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _make_directory(path: str, like: os.stat_result) -> None:
    """Make a directory with the owner, group and mode of another one, unless it is there. Raises OSError."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    made = os.stat(path)
    if (made.st_uid, made.st_gid) != (like.st_uid, like.st_gid):
        os.chown(path, like.st_uid, like.st_gid)
    os.chmod(path, like.st_mode & 0o7777)
