"""Two ext4 on loop devices over a tmpfs, in a mount namespace of their own: one may fail, or be taken out."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.faults.small_disks import hold_mounts

# A line on stdin is a command; each is answered by a line when it has been done.
_SERVE = """
mount -t tmpfs -o size=300m,mode=755 none "$1"
for name in first second; do
    mount_ext4 "$1/$name.image" 64m "$1/$name"
done
echo mounted
while read -r command name; do
    case $command in
        # It is busy in each moment in which a file is open for writing.
        read-only) until mount -o remount,ro "$1/$name" 2>/dev/null; do :; done ;;
        out) until umount "$1/$name" 2>/dev/null; do :; done ;;
        back) mount -o loop "$1/$name.image" "$1/$name" ;;
        abort) mount -o remount,abort "$1/$name" 2>/dev/null || true ;;
        # It goes when nobody uses it any more.
        detach) umount -l "$1/$name" ;;
        gone) while losetup -j "$1/$name.image" | grep -q .; do sleep 0.02; done ;;
        check) losetup -j "$1/$name.image" | grep -q . && exit 1; e2fsck -fy "$1/$name.image" >/dev/null 2>&1 || true ;;
    esac
    echo "$command $name"
done
umount -l "$1/first" "$1/second" || true
"""


class LoopDisks:
    """`path` is the directory with the disks `first` and `second`, and room for a home, on the tmpfs."""

    def __init__(self, holder: "subprocess.Popen[bytes]", path: Path) -> None:
        self.path = path
        self._holder = holder

    def _do(self, command: str, name: str) -> None:
        assert self._holder.stdin is not None and self._holder.stdout is not None
        self._holder.stdin.write(f"{command} {name}\n".encode())
        self._holder.stdin.flush()
        assert self._holder.stdout.readline() == f"{command} {name}\n".encode()

    def make_read_only(self, name: str) -> None:
        """Remount a disk read-only, in a moment in which no file is open for writing."""
        self._do("read-only", name)

    def take_out(self, name: str) -> None:
        """Unmount a disk."""
        self._do("out", name)

    def detach(self, name: str) -> None:
        """Unmount a disk while it is in use."""
        self._do("detach", name)

    def wait_gone(self, name: str) -> None:
        """Wait until nobody uses a disk that was detached."""
        self._do("gone", name)

    def abort(self, name: str) -> None:
        """Have a disk fail, as ext4 does when it cannot write its journal."""
        self._do("abort", name)

    def check(self, name: str) -> None:
        """Mend a disk that was unmounted."""
        self._do("check", name)

    def bring_back(self, name: str) -> None:
        """Mount a disk again."""
        self._do("back", name)


@contextmanager
def loop_disks(top: Path) -> Iterator[LoopDisks]:
    """Give such disks."""
    with hold_mounts(_SERVE, top) as found:
        yield LoopDisks(*found)
