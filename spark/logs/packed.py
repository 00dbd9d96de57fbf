"""Logs that a logger's processor, or an administrator, has compressed: gzip, xz or zstd, told by their first bytes."""

import gzip
import lzma
import zlib
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple, cast

_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
SUFFIXES = (".gz", ".xz", ".zst", ".zstd")
_CHUNK = 4 << 20


class Damaged(OSError):
    """A compressed file that ends too early, or whose bytes are not what its format says."""


class Shape(NamedTuple):
    """What unpacking a file tells: its bytes, its first ones, its last ones, and those that were asked for.

    content: all, where they are few.
    """

    size: int
    head: bytes
    tail: bytes
    looks: tuple[bytes, ...] = ()
    content: bytes | None = None


def find_packing(head: bytes) -> str:
    """Return how a file is compressed that begins so; '' if it is not."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")


def base_name(name: str) -> str:
    """Return what a file was called before it was compressed."""
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)


def unpack(packing: str, raw: BinaryIO) -> BinaryIO:
    """Return what reads the content of a compressed file. Damage is an error only as it is read: see read_some."""
    if packing == "gzip":
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    if packing == "xz":
        return cast(BinaryIO, lzma.LZMAFile(raw))
    import pyarrow as pa

    return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"))


def read_some(file: BinaryIO, size: int) -> bytes:
    """Return at most `size` bytes, b'' at the end. Raises Damaged."""
    try:
        return file.read(size)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise Damaged(f"its compressed content is damaged: {error}") from error
    except OSError as error:
        if error.errno is None:  # As pyarrow tells it.
            raise Damaged(f"its compressed content is damaged: {error}") from error
        raise


def look_through(
    packing: str, raw: BinaryIO, look: int, looks: Sequence[tuple[int, int]] = (), most: int = 0
) -> Shape:
    """Return the shape of a compressed file, with `look` bytes of each end. Raises Damaged.

    looks: where bytes that are wanted begin and end, of any place. most: up to so many bytes are kept as content.
    """
    size, head, tail = 0, b"", b""
    found = [bytearray() for _ in looks]
    content: bytearray | None = bytearray()
    with unpack(packing, raw) as file:
        while chunk := read_some(file, _CHUNK):
            for wanted, (start, end) in zip(found, looks, strict=True):
                wanted += chunk[max(0, start - size) : max(0, end - size)]
            size += len(chunk)
            head = (head + chunk)[:look] if len(head) < look else head
            tail = (tail + chunk)[-look:]
            if content is not None and size <= most:
                content += chunk
            else:
                content = None
    return Shape(size, head, tail, tuple(map(bytes, found)), None if content is None else bytes(content))


def skip(file: BinaryIO, size: int) -> None:
    """Read so many bytes of a file that is unpacked, for nothing. Raises Damaged."""
    while size > 0 and (chunk := read_some(file, min(size, _CHUNK))):
        size -= len(chunk)
