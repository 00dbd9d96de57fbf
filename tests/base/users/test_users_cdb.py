"""users/cdb as a cdb file: the same bytes as others make, and nothing that a damaged one can do."""

import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_base.cdb import Cdb, make_cdb
from queue_wire.format_error import FormatError
from support.tools import need

RECORDS = [(b"!joe\0", b"joe\x00507"), (b"!joe-", b"first"), (b"!joe-", b"second"), (b"!", b""), (b"", b"-")]
MADE = make_cdb(RECORDS)
HASH_IS_0 = (b"!sojtadzy\0", b"!jgcganvt\0", b"!ajasbanp\0")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    handle = os.open(tmp_path_factory.mktemp("cdb") / "cdb", os.O_RDWR | os.O_CREAT)
    yield handle
    os.close(handle)


def opened(handle: int, data: bytes) -> Cdb:
    os.ftruncate(handle, 0)
    os.pwrite(handle, data, 0)
    return Cdb(handle)


def test_each_key_has_its_first_record(file: int) -> None:
    cdb = opened(file, MADE)
    answers = [cdb.get(key) for key in (b"!joe\0", b"!joe-", b"!", b"", b"!joe")]
    assert answers == [b"joe\x00507", b"first", b"", b"-", None]


def test_the_bytes_are_those_of_another_implementation_which_reads_them(tmp_path: Path) -> None:
    records = [(b"!user%d%s" % (n % 900, b"\0" * (n & 1)), b"u%d\0\n:->" % n) for n in range(1000)]
    lines = [b"+%d,%d:%s->%s\n" % (len(key), len(data), key, data) for key, data in [*RECORDS, *records]]
    theirs = tmp_path / "theirs"
    subprocess.run([need("cdb"), "-c", str(theirs)], input=b"".join(lines) + b"\n", check=True)
    assert make_cdb([*RECORDS, *records]) == theirs.read_bytes()


def test_records_that_the_library_would_lose_are_refused() -> None:
    with pytest.raises(FormatError, match="cannot be made with the key '!sojtadzy"):
        make_cdb([(key, b"x") for key in HASH_IS_0])


def test_records_whose_hash_is_0_are_found(tmp_path: Path, file: int) -> None:
    lines = [b"+%d,1:%s->%d\n" % (len(key), key, number) for number, key in enumerate(HASH_IS_0)]
    theirs = tmp_path / "theirs"
    subprocess.run([need("cdb"), "-c", str(theirs)], input=b"".join(lines) + b"\n", check=True)
    cdb = opened(file, theirs.read_bytes())
    assert [cdb.get(key) for key in HASH_IS_0] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("length", [0, 1, 2047, 2048, 2060])
def test_a_file_that_was_cut_short_is_damaged(file: int, length: int) -> None:
    with pytest.raises(FormatError):
        opened(file, MADE[:length]).get(b"")


def test_a_hash_table_without_an_empty_slot_ends(file: int) -> None:
    table = struct.pack("<LL", 1, 2048) * 4
    index = struct.pack("<LL", 2048, 4) * 256
    assert opened(file, index + table).get(b"key") is None


def test_a_length_of_gigabytes_takes_no_memory(file: int) -> None:
    key = b"!joe\0"
    at = MADE.index(key) - 8
    damaged = MADE[:at] + struct.pack("<LL", len(key), 0xFFFFFFF0) + MADE[at + 8 :]
    with pytest.raises(FormatError, match="it names 4294967280 bytes"):
        opened(file, damaged).get(key)


def test_a_large_file_makes_a_large_length_no_better(file: int) -> None:
    key = b"!joe\0"
    at = MADE.index(key) - 8
    opened(file, MADE[:at] + struct.pack("<LL", len(key), 1 << 30) + MADE[at + 8 :])
    os.ftruncate(file, 1 << 31)  # Sparse: nothing but a length.
    with pytest.raises(FormatError, match="it names 1073741824 bytes"):
        Cdb(file).get(key)


@settings(max_examples=400)
@given(st.data())
def test_damage_is_a_format_error_or_a_wrong_answer_but_nothing_else(file: int, data: st.DataObject) -> None:
    damaged = bytearray(MADE)
    used = [at for at in range(len(MADE)) if MADE[at]]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.one_of(st.sampled_from(used), st.integers(0, len(MADE) - 1)))
        damaged[at] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.one_of(st.just(len(MADE)), st.integers(0, len(MADE)))) :]
    try:
        cdb = opened(file, bytes(damaged))
        for key, _ in RECORDS:
            answer = cdb.get(key)
            assert answer is None or isinstance(answer, bytes)
    except FormatError:
        pass
