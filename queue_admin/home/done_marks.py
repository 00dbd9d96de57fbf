"""Applies queue/marks, before a queue goes to qmail, which does not know that file.

A run of queue-send that was killed may have left marks there: recipients of messages in todo/ that are done
(queue_wire.files.marks). They are removed from the envelopes, then the file is removed. A record counts for one
envelope only, so after an interruption those that were applied do not count any more. A message may be left without
recipients, which qmail removes as finished.
"""

import os
import stat
from collections.abc import Container

from queue_admin.home.tree import Tree, unable_to
from queue_base.durable import write_all
from queue_base.queue.layout import FILE_MODE, Layout, birth_by
from queue_base.queue.marks_file import NAME, read_seed
from queue_base.safe_open import UnsafePath, open_below, open_file_below
from queue_wire.files.envelope import drop_recipients
from queue_wire.files.marks import FILE_SIZE, EnvelopeIdentity, identify, unpack_file

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def read_marks(tree: Tree, owners: Container[int]) -> dict[EnvelopeIdentity, int]:
    """Return the bits of the recipients that are done. Raises Permanent if the file is not the queue's, Temporary."""
    with unable_to("use", f"{tree.path}/{NAME}"):
        try:
            handle = open_file_below(tree.handle, NAME, owners)
        except FileNotFoundError:
            return {}
        try:
            names = os.fstat(handle).st_nlink
            if names != 1:
                raise UnsafePath(f"it has {names} names")
            data = os.pread(handle, FILE_SIZE, 0)
        finally:
            os.close(handle)
        found: dict[EnvelopeIdentity, int] = {}
        for marks in unpack_file(data, read_seed()).values():
            found[marks.envelope] = found.get(marks.envelope, 0) | marks.done
        return found


def apply_marks(tree: Tree, layout: Layout, owners: Container[int], marks: dict[EnvelopeIdentity, int]) -> list[str]:
    """Remove recipients that are done from the envelopes, durably, then the file; return what was done.

    Raises Permanent, Temporary.
    """
    changed = 0
    for envelope, done in marks.items():
        with unable_to("change", layout.todo(envelope.message)):
            changed += _apply(tree, layout, owners, envelope, done)
    tree.sync()
    with unable_to("remove", f"{tree.path}/{NAME}"):
        removed = tree.unlink(NAME)
    lines = [f"removed recipients that are done from {changed} envelopes in todo/"] if changed else []
    return [*lines, f"removed {tree.path}/{NAME}"] if removed else lines


def _apply(tree: Tree, layout: Layout, owners: Container[int], envelope: EnvelopeIdentity, done: int) -> bool:
    """Remove recipients from one envelope; return whether it is the one of the record. Raises OSError."""
    message = envelope.message
    name = os.path.relpath(layout.todo(message), layout.queue)
    try:
        with tree.parent(os.path.relpath(layout.mess(message), layout.queue)) as (directory, last):
            birth = birth_by(os.stat(last, dir_fd=directory, follow_symlinks=False))
        handle = open_below(tree.handle, name)
    except (FileNotFoundError, UnsafePath):
        return False  # It has ended, or is no file of the queue.
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or (found.st_nlink > 1 and found.st_uid not in owners):
            return False  # Whose owner is not changed either (ownership.py).
        data = os.pread(handle, envelope.size + 1, 0)
    finally:
        os.close(handle)
    if identify(message, birth, data) != envelope:
        return False
    temporary = f"{NAME}.{message}"
    tree.unlink(f"pid/{temporary}")
    with tree.directory("pid") as pid, tree.parent(name) as (directory, last):
        new = os.open(temporary, _NEW, FILE_MODE, dir_fd=pid)
        try:
            write_all(new, drop_recipients(data, done))
            os.fchown(new, found.st_uid, found.st_gid)
            os.fchmod(new, stat.S_IMODE(found.st_mode))
            os.fsync(new)
        finally:
            os.close(new)
        os.rename(temporary, last, src_dir_fd=pid, dst_dir_fd=directory)
    return True
