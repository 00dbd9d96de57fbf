"""Ways in which a log comes to the pipeline in pieces, cut anywhere. Each yields LOGS, once for every batch."""

import itertools
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from support.spark.logs.log_files import stamp, write_files

FIRST_NS = 1_600_000_000_000_000_000  # Before anything that is in a log, so that names sort as pieces come.


def pieces_of(log: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Return the log cut at these places (each taken modulo its length), without empty pieces."""
    places = sorted({0, len(log), *(cut % len(log) for cut in cuts)})
    return [log[one:two] for one, two in itertools.pairwise(places)]


def growing(pieces: Sequence[bytes], root: Path, place: str, rng: random.Random) -> Iterator[Path]:
    """`current` grows; now and then the logger renames it, before or after what the next batch sees is in it."""
    directory, current, count = root / place, b"", 0
    for piece in pieces:
        if current and rng.random() < 0.4:
            if rng.random() < 0.5:  # What is new came before the file was renamed; a new one holds the rest.
                place_in = rng.randrange(len(piece))
                current, piece = current + piece[:place_in], piece[place_in:]
            count += 1
            write_files(directory, [(f"{stamp(FIRST_NS + count)}.s", current)])
            current = b""
        current += piece
        write_files(directory, [("current", current)])
        yield root


def renamed(pieces: Sequence[bytes], root: Path, place: str, rng: random.Random) -> Iterator[Path]:
    """Each batch finds one more rotated file, and nothing else is new."""
    for count, piece in enumerate(pieces):
        write_files(root / place, [(f"{stamp(FIRST_NS + count)}.{rng.choice('su')}", piece)], "svlogd")
        yield root


def apart(pieces: Sequence[bytes], root: Path, place: str, rng: random.Random) -> Iterator[Path]:
    """Each batch is given a directory of its own, which then goes."""
    for count, piece in enumerate(pieces):
        write_files(root / str(count) / place, [(f"{stamp(FIRST_NS + count)}.s", piece)])
        yield root / str(count)
        shutil.rmtree(root / str(count))


WAYS = {"growing": growing, "renamed": renamed, "apart": apart}
