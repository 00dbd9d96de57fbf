"""A small file system, an ext4 on a loop device or a tmpfs, that can be filled: with blocks, or with files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.faults.thin_disk import hold_mounts

_MOUNT = """
set -e
mkdir "$1/disk"
if [ "$2" = tmpfs ]; then
    mount -t tmpfs -o size=16m,nr_inodes=3000,mode=755 none "$1/disk"
else
    mount -t tmpfs -o size=64m,mode=755 none "$1"
    mkdir "$1/disk"
    truncate -s 24m "$1/image"
    mkfs.ext4 -q -F -m 0 -N 3000 -E lazy_itable_init=0,lazy_journal_init=0 "$1/image"
    mount -o loop "$1/image" "$1/disk"
fi
echo mounted
read -r end || true
umount -l "$1/disk"
"""


class FilledDisk:
    """`path` is the top directory of the file system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take_blocks(self) -> None:
        """Take each block that is left."""
        with open(self.path / "ballast", "ab", buffering=0) as file:
            for size in (1 << 16, 512):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def take_names(self) -> None:
        """Take each inode that is left; also where a directory would need a block for a name, there is none."""
        (self.path / "many").mkdir(exist_ok=True)
        number = len(os.listdir(self.path / "many"))
        try:
            while True:
                os.close(os.open(self.path / "many" / str(number), os.O_CREAT | os.O_WRONLY))
                number += 1
        except OSError:
            return


@contextmanager
def filled_disk(top: Path, kind: str) -> Iterator[FilledDisk]:
    """Give such a disk, `ext4` or `tmpfs`, in a private mount namespace; it is reached through /proc."""
    top.mkdir()
    with hold_mounts(_MOUNT.replace("$2", kind), top) as holder:
        yield FilledDisk(Path(f"/proc/{holder.pid}/root{top}/disk"))
