"""Small file systems in a mount namespace of their own, which can be filled.

A `filled_disk` is an ext4 on a loop device, or a tmpfs: with no block left, or no inode. A `thin_disk` is an ext4 on a
loop device over a tmpfs that is smaller: write-back fails, as with thin provisioning.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.tools import missing, need, need_private_mounts

_BEGIN = """
set -e
# usage: mount_ext4 IMAGE SIZE PLACE [OPTION...], with options of mkfs.ext4
mount_ext4() {
    image=$1 place=$3
    truncate -s "$2" "$image"
    shift 3
    mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$@" "$image"
    mkdir "$place"
    mount -o loop "$image" "$place"
}
"""
_HOLD = """
echo mounted
read -r end || true
umount -l "$1/disk"
"""
_FILLED = {
    "tmpfs": """
mkdir "$1/disk"
mount -t tmpfs -o size=16m,nr_inodes=3000,mode=755 none "$1/disk"
""",
    "ext4": """
mount -t tmpfs -o size=64m,mode=755 none "$1"
mount_ext4 "$1/image" 24m "$1/disk" -m 0 -N 3000
""",
}
# The image's first part has its room: the journal, the tables and the directories can be written. Ballast keeps files
# out of it.
_THIN = """
mkdir "$1/below"
mount -t tmpfs -o size=64m,mode=755 none "$1/below"
mount_ext4 "$1/below/image" 512m "$1/disk" -b 4096 -N 4096 -J size=8,location=8m
fallocate -l 40m "$1/below/image"
mkdir "$1/disk/home"
sync -f "$1/disk"
"""


def fill(path: Path, piece: int) -> None:
    """Write to a file until no block is left; at first `piece` bytes at a time."""
    with open(path, "ab", buffering=0) as file:
        for size in (piece, 512):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


class FilledDisk:
    """`path` is the top directory of the file system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take_blocks(self) -> None:
        """Take each block that is left."""
        fill(self.path / "ballast", 1 << 16)

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


class ThinDisk:
    """`path` is a directory on the ext4, `below` one on what it is on."""

    def __init__(self, root: Path) -> None:
        self.path = root / "disk/home"
        self.below = root / "below"

    def fill(self) -> None:
        """Take all the room that is left: from now on no new block can be written."""
        with open(self.path / "ballast", "wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, 64 << 20)
        self.sync_by_another()
        fill(self.below / "other", 1 << 20)

    def sync_by_another(self) -> int:
        """Have another process sync the whole file system, as `sync -f`; return its exit code."""
        return subprocess.run(["sync", "-f", str(self.path)], capture_output=True, check=False, timeout=60).returncode


@contextmanager
def hold_mounts(script: str, top: Path) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """Run a shell script in a mount namespace of its own, until its stdin ends; its first line is `mounted`.

    `top` is made, and the script's first word. Yields the process, and the path by which all reach what is mounted
    there. Loop devices must be there.
    """
    need_private_mounts()
    need("mkfs.ext4")
    top.mkdir()
    holder = subprocess.Popen(
        [need("unshare"), "--mount", "--propagation", "private", "sh", "-c", _BEGIN + script, "sh", str(top)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None and holder.stderr is not None
        if holder.stdout.readline() != b"mounted\n":
            missing(f"loop devices: {holder.stderr.read().decode(errors='replace')}")
        yield holder, Path(f"/proc/{holder.pid}/root{top}")
    finally:
        holder.communicate(timeout=60)


@contextmanager
def filled_disk(top: Path, kind: str) -> Iterator[FilledDisk]:
    """Give such a disk, `ext4` or `tmpfs`."""
    with hold_mounts(_FILLED[kind] + _HOLD, top) as (_, root):
        yield FilledDisk(root / "disk")


@contextmanager
def thin_disk(top: Path) -> Iterator[ThinDisk]:
    """Give such a disk."""
    with hold_mounts(_THIN + _HOLD, top) as (_, root):
        yield ThinDisk(root)
