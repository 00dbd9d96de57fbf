"""Disks of a bench's own: ext4 on loop devices, mounted in a namespace of its own, which ends with the bench."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from support.tools import need
from usage import TEMPORARY

_INSIDE = "QUEUE_BENCH_INSIDE"


def enter_private_mounts() -> None:
    """Go on in a mount namespace of our own: this program begins anew there. It needs root."""
    if not os.environ.get(_INSIDE):
        words = [need("unshare"), "--mount", "--propagation", "private", sys.executable, *sys.argv]
        os.execve(words[0], words, {**os.environ, _INSIDE: "1"})


def do(*words: str) -> str:
    """Run a command to its end; return what it printed. Ends the bench if it fails."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})
    if done.returncode:
        name = os.path.basename(sys.argv[0])
        sys.stderr.write(f"bench/{name}: fatal: unable to run {' '.join(words)}: {done.stderr.strip()}\n")
        sys.exit(TEMPORARY)
    return done.stdout


def mount_ext4(image: Path, place: Path, size: str) -> str:
    """Make a new ext4 in a file, and mount it; return the loop device."""
    place.mkdir(exist_ok=True)
    do("truncate", "-s", size, str(image))
    do("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image))
    loop = do("losetup", "--find", "--show", str(image)).strip()
    do("mount", loop, str(place))
    return loop


def unmount(loop: str, place: Path) -> None:
    """Unmount a disk, and free its loop device."""
    do("umount", str(place))
    do("losetup", "--detach", loop)


@contextlib.contextmanager
def new_ext4(image: Path, place: Path, size: str) -> Iterator[Path]:
    """Give a directory with a new ext4, and remove both."""
    loop = mount_ext4(image, place, size)
    try:
        yield place
    finally:
        unmount(loop, place)
        image.unlink()
        place.rmdir()
