"""Logs that a logger's processor, or an administrator, has compressed: gzip, xz or zstd, told by their first bytes."""

import gzip
import lzma
import zlib
from typing import BinaryIO, cast

_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_SUFFIXES = (".gz", ".xz", ".zst", ".zstd")
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


class Damaged(OSError):
    """A compressed file that ends too early, or whose bytes are not what its format says."""


def base_name(name: str) -> str:
    """Return what a file was called before it was compressed."""
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)


def unpack(raw: BinaryIO) -> BinaryIO:
    """Return what reads a file's content: `raw` itself, from its beginning, if it is not compressed. Raises OSError.

    Damage is an error only as it is read: see read_some.
    """
    head = raw.read(6)
    raw.seek(0)
    packing = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")
    if packing == "gzip":
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    if packing == "xz":
        return cast(BinaryIO, lzma.LZMAFile(raw))
    if packing == "zstd":
        import pyarrow as pa

        return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"))
    return raw


def read_some(file: BinaryIO, size: int) -> bytes:
    """Return at most `size` bytes, b'' at the end. Raises Damaged, and OSError."""
    try:
        return file.read(size)
    except _DAMAGED as error:
        raise Damaged(f"its compressed content is damaged: {error}") from error
    except OSError as error:
        if error.errno is None:  # As pyarrow tells it.
            raise Damaged(f"its compressed content is damaged: {error}") from error
        raise
