"""What the disk under a directory did, as the kernel counts it for the whole device: others' work as well."""

import os
from pathlib import Path
from typing import NamedTuple

_SECTOR = 512


class DiskCounts(NamedTuple):
    """Flushes of the disk's cache, and bytes written to it."""

    flushes: int
    written: int

    def __sub__(self, other: "DiskCounts") -> "DiskCounts":
        return DiskCounts(self.flushes - other.flushes, self.written - other.written)


def read_disk(place: Path) -> DiskCounts:
    """Return the counts of the disk under a path since the machine was started; zeros where it is not known."""
    device = os.stat(place).st_dev
    try:
        fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    except OSError:
        return DiskCounts(0, 0)
    return DiskCounts(int(fields[15]) if len(fields) > 15 else 0, int(fields[6]) * _SECTOR)


def in_memory(place: Path) -> bool:
    """Whether a directory is on a file system without a disk."""
    return os.major(os.stat(place).st_dev) == 0
