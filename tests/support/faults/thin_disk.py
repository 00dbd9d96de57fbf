"""An ext4 on a loop device over a tmpfs that is smaller: write-back fails, as with thin provisioning."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.tools import missing, need, need_private_mounts

# The image's first part has its room: the journal, the tables and the directories can be written. Ballast keeps files
# out of it.
_MOUNT = """
set -e
mount -t tmpfs -o size=64m,mode=755 none "$1/below"
truncate -s 512m "$1/below/image"
mkfs.ext4 -q -F -b 4096 -N 4096 -J size=8,location=8m -E lazy_itable_init=0,lazy_journal_init=0 "$1/below/image"
fallocate -l 40m "$1/below/image"
mount -o loop "$1/below/image" "$1/disk"
mkdir "$1/disk/home"
sync -f "$1/disk"
echo mounted
read -r end || true
umount -l "$1/disk"
"""


class ThinDisk:
    """`path` is a directory on the ext4, `below` one on what it is on."""

    def __init__(self, root: str) -> None:
        self.path = Path(root, "disk/home")
        self.below = Path(root, "below")

    def fill(self) -> None:
        """Take all the room that is left: from now on no new block can be written."""
        with open(self.path / "ballast", "wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, 64 << 20)
        self.sync_by_another()
        with open(self.below / "other", "wb", buffering=0) as file:
            for size in (1 << 20, 4096):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def sync_by_another(self) -> int:
        """Have another process sync the whole file system, as `sync -f`; return its exit code."""
        return subprocess.run(["sync", "-f", str(self.path)], capture_output=True, check=False, timeout=60).returncode


@contextmanager
def hold_mounts(script: str, top: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a shell script in a mount namespace of its own, until its stdin ends; its first line is `mounted`.

    What it has mounted below `top` is reached through /proc. Loop devices must be there.
    """
    need_private_mounts()
    need("mkfs.ext4")
    holder = subprocess.Popen(
        [need("unshare"), "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(top)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None and holder.stderr is not None
        if holder.stdout.readline() != b"mounted\n":
            missing(f"loop devices: {holder.stderr.read().decode(errors='replace')}")
        yield holder
    finally:
        holder.communicate(timeout=60)


@contextmanager
def thin_disk(top: Path) -> Iterator[ThinDisk]:
    """Give such a disk, in a private mount namespace; it is reached through /proc."""
    (top / "below").mkdir(parents=True)
    (top / "disk").mkdir()
    with hold_mounts(_MOUNT, top) as holder:
        yield ThinDisk(f"/proc/{holder.pid}/root{top}")
