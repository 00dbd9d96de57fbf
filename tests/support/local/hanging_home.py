"""A home directory that hangs, as one on a file server that does not answer: a FUSE mount whose server says nothing."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_DETACH = 2  # MNT_DETACH


@contextmanager
def hanging(path: Path) -> Iterator[None]:
    """Whoever looks into the directory `path` hangs until it is killed. Skips the test where it cannot be made."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"needs root and /dev/fuse: {error}")
    try:
        options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % server
        if libc.mount(b"hanging", os.fsencode(path), b"fuse", 0, options):
            pytest.skip(f"needs the right to mount: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            libc.umount2(os.fsencode(path), _DETACH)
    finally:
        # Whoever still hangs gets an error now.
        os.close(server)
