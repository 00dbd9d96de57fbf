"""What is new in a directory of logs is read once, in order, whatever loggers and administrators do with its files."""

import gzip
import lzma
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO

import pytest

from queue_report.logs.streams import SourceError
from queue_report.runtime.files import Entry, LocalFiles
from support.spark.logs.log_files import lines_of, stamp, write_files
from support.spark.logs.log_looks import Looks
from support.spark.logs.log_rotating import packed

SECOND = 10**9
BEGIN = 1_700_000_000 * SECOND


def log(first: int, count: int) -> list[bytes]:
    """Return lines, one a second: `end msg N`, N from `first` on."""
    return lines_of([(BEGIN + number * SECOND, f"end msg {number}") for number in range(first, first + count)])


def name(last: int, ending: str = "s") -> str:
    """Return what a file is called whose last line is so many seconds after BEGIN."""
    return f"{stamp(BEGIN + last * SECOND + 1)}.{ending}"


def numbers(texts: list[bytes]) -> list[int]:
    return [int(text.removeprefix(b"end msg ")) for text in texts]


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """Return the directory of a queue's logs."""
    found = tmp_path / "logs" / "h" / "q"
    found.mkdir(parents=True)
    return found


@pytest.fixture
def looks(queue: Path) -> Looks:
    return Looks(queue)


def test_a_line_that_current_had_half_of_is_read_though_a_copy_of_an_older_file_sorts_before(
    queue: Path, looks: Looks
) -> None:
    older, lines = log(0, 5), log(10, 6)
    whole = b"".join(lines)
    half = whole.index(b"end msg 13") + 8
    write_files(queue, [("current", whole[:half])])
    assert numbers(looks.texts()) == [10, 11, 12]
    (queue / "current").unlink()
    write_files(queue, [(name(4), b"".join(older)), (name(15), whole), ("current", b"".join(log(16, 1)))])
    found = looks.read()
    assert [line for line in found if line.torn] == []
    assert sorted(numbers([line.text[26:] for line in found])) == [0, 1, 2, 3, 4, 13, 14, 15, 16]
    # What goes on where it was read to comes first, then the files by their names.
    assert numbers([line.text[26:] for line in found])[:3] == [13, 14, 15]


def test_the_file_whose_line_was_read_in_part_goes_on_before_others_that_have_grown(queue: Path, looks: Looks) -> None:
    """As where logs are copied from another host, file by file, and each copy was cut inside a line."""
    older, newer = b"".join(log(0, 5)), b"".join(log(10, 5))
    cuts = older.index(b"end msg 2") + 4, newer.index(b"end msg 12") + 4
    write_files(queue, [(name(4), older[: cuts[0]]), ("current", newer[: cuts[1]])])
    assert [line.text[26:] for line in looks.read() if not line.torn] == [b"end msg %d" % n for n in (0, 1, 10, 11)]
    write_files(queue, [(name(4), older), ("current", newer)])
    assert numbers([line.text[26:] for line in looks.read() if line.text[:1] == b"@"]) == [12, 13, 14, 3, 4]


def test_swapped_names_are_told_and_the_lines_are_read_in_the_order_of_their_stamps(
    queue: Path, looks: Looks
) -> None:
    contents = {4: log(5, 5), 9: log(0, 5), 14: log(10, 5)}
    write_files(queue, [(name(last), b"".join(lines)) for last, lines in contents.items()])
    assert numbers(looks.texts()) == list(range(15))
    (warning,) = looks.warnings
    assert name(4) in warning and name(9) in warning and name(14) not in warning
    assert "their names are swapped; they are read in the order of the stamps" in warning


def test_files_with_lines_of_the_same_time_are_read_in_the_order_of_their_names(queue: Path, looks: Looks) -> None:
    write_files(queue, [(name(4), b"".join(log(3, 6))), (name(9), b"".join(log(0, 5)))])
    assert numbers(looks.texts()) == [3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4]
    assert looks.warnings == []


def test_a_clock_that_was_set_back_is_no_swap(queue: Path, looks: Looks) -> None:
    """The second file was written later, with earlier stamps: multilog then gave it a name after the first's."""
    write_files(queue, [(name(9), b"".join(log(5, 5))), (name(10), b"".join(log(0, 5)))])
    assert numbers(looks.texts()) == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]
    assert looks.warnings == []


def test_names_that_say_nothing_are_believed_all_the_same(queue: Path, looks: Looks) -> None:
    files = [(f"{stamp(SECOND + number)}.s", b"".join(log(start, 5))) for number, start in enumerate((5, 0))]
    write_files(queue, files)
    assert numbers(looks.texts()) == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("how", ["gz", "xz", "zst"])
@pytest.mark.parametrize("ending", ["s", "s.{}", "u.{}"])
def test_compressed_logs_are_read_and_may_share_a_line_with_the_next(
    queue: Path, looks: Looks, how: str, ending: str
) -> None:
    whole = b"".join(log(0, 20))
    cut = whole.index(b"end msg 7") + 4
    write_files(queue, [(name(7, ending.format(how)), packed(how, whole[:cut])), ("current", whole[cut:])])
    assert numbers(looks.texts()) == list(range(20))
    assert looks.read() == [] and looks.warnings == []


def test_a_log_that_is_compressed_after_it_was_read_is_not_new(queue: Path, looks: Looks) -> None:
    whole = b"".join(log(0, 20))
    write_files(queue, [(name(19), whole)])
    assert len(looks.texts()) == 20
    (queue / name(19)).rename(queue / "x")
    (queue / name(19, "s.gz")).write_bytes(gzip.compress((queue / "x").read_bytes()))
    (queue / "x").unlink()
    write_files(queue, [("current", b"".join(log(20, 2)))])
    assert numbers(looks.texts()) == [20, 21]
    assert looks.read() == []


def test_a_damaged_compressed_log_is_passed_by_until_it_is_whole(queue: Path, looks: Looks) -> None:
    whole = gzip.compress(b"".join(log(0, 2000)))
    write_files(queue, [(name(1999, "s.gz"), whole[: len(whole) // 2]), ("current", b"".join(log(2000, 2)))])
    assert numbers(looks.texts()) == [2000, 2001]
    assert "its compressed content is damaged" in looks.warnings[0] and "it is passed by" in looks.warnings[0]
    (queue / name(1999, "s.gz")).write_bytes(whole)
    assert len(looks.texts()) == 2000


@pytest.mark.parametrize(("ending", "is_line"), [("s", True), ("u", False)])
def test_a_whole_last_line_without_a_newline_is_a_line_in_a_file_that_its_logger_completed(
    queue: Path, looks: Looks, ending: str, is_line: bool
) -> None:
    write_files(queue, [(name(3, ending), b"".join(log(0, 4)).rstrip(b"\n")), ("current", b"".join(log(4, 2)))])
    found = looks.read()
    assert [line.torn for line in found] == [False, False, False, not is_line, False, False]
    assert [line.number for line in found] == [1, 2, 3, 4, 1, 2]


def test_a_last_line_that_was_cut_short_is_none(queue: Path, looks: Looks) -> None:
    write_files(queue, [(name(3), b"".join(log(0, 4))[:-8]), ("current", b"".join(log(4, 2)))])
    assert [line.torn for line in looks.read()] == [False, False, False, True, False, False]


def test_lines_are_numbered_in_their_files_through_all_builds(queue: Path, looks: Looks) -> None:
    whole = b"".join(log(0, 9))
    cut = len(b"".join(log(0, 4))) + 5
    write_files(queue, [("current", whole[:cut])])
    assert [line.number for line in looks.read()] == [1, 2, 3, 4]
    write_files(queue, [("current", whole)])
    # The fifth came in two builds.
    assert [line.number for line in looks.read()] == [5, 6, 7, 8, 9]


def at_each_call(patch: pytest.MonkeyPatch, step: Callable[[], None]) -> None:
    """Have something happen before and after each time that a file is opened, or the directory listed."""
    opened, listed, same = LocalFiles.open, LocalFiles.list, LocalFiles.is_same

    def open_file(self: LocalFiles, path: str) -> BinaryIO:
        step()
        try:
            return opened(self, path)
        finally:
            step()

    def list_files(self: LocalFiles, path: str = "", unread: list[OSError] | None = None) -> list[Entry]:
        step()
        found = listed(self, path, unread)
        step()
        return found

    def is_same(self: LocalFiles, file: BinaryIO, path: str) -> bool:
        found = same(self, file, path)
        step()
        return found

    patch.setattr(LocalFiles, "open", open_file)
    patch.setattr(LocalFiles, "list", list_files)
    patch.setattr(LocalFiles, "is_same", is_same)


@pytest.mark.parametrize("moment", range(1, 40))
def test_current_that_is_renamed_as_it_is_looked_at_is_read_once_though_new_files_come_all_the_time(
    queue: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """As where an administrator compresses many files one by one. moment: how often files have come before that."""
    older, newer = log(0, 10), log(100, 30)
    write_files(queue, [("current", b"".join(older[:4]))])
    found = looks.texts()
    write_files(queue, [("current", b"".join(older))])
    steps, come = count(1), count(-5000)

    def step() -> None:
        """A file comes at each step; at `moment`, `current` is renamed."""
        number = next(come)
        write_files(queue, [(name(number), b"".join(log(number, 1)))])
        if next(steps) == moment:
            (queue / "current").rename(queue / name(9))
            (queue / "current").write_bytes(b"".join(newer))

    with monkeypatch.context() as patch:
        at_each_call(patch, step)
        found += looks.texts()
        if not (queue / name(9)).exists():
            found += looks.texts()
    assert (queue / name(9)).exists()
    found += looks.texts()
    read = Counter(number for number in numbers(found) if number >= 0)
    assert read == dict.fromkeys([*range(10), *range(100, 130)], 1)
    assert looks.read() == []


@pytest.mark.parametrize("how", ["", "gz"])
@pytest.mark.parametrize("grown", [0, 100])
def test_a_line_in_three_files_is_whole_though_the_last_begins_with_the_bytes_of_the_middle_one(
    queue: Path, looks: Looks, how: str, grown: int
) -> None:
    """Its bytes are all the same, so nothing but its name tells the middle file from the new one."""
    before, after = b"".join(log(0, 3)), b"".join(log(4, 2))
    line = lines_of([(BEGIN + 3 * SECOND, "x" * 2600)])[0]
    write_files(queue, [("current", before + line[:900])])
    assert numbers(looks.texts()) == [0, 1, 2]
    (queue / "current").rename(queue / name(3))
    write_files(queue, [("current", line[900:1600])])
    assert looks.read() == []
    middle = line[900 : 1600 + grown]
    (queue / "current").unlink()
    rotated = (name(4, f"s.{how}"), packed(how, middle)) if how else (name(4), middle)
    write_files(queue, [rotated, ("current", line[1600 + grown :] + after)])
    found = looks.read()
    assert [line.text[26:] for line in found] == [b"x" * 2600, b"end msg 4", b"end msg 5"]
    assert looks.read() == []


def test_current_goes_on_though_no_stamp_of_it_was_read_and_there_is_a_new_file(queue: Path, looks: Looks) -> None:
    line = lines_of([(BEGIN + 3 * SECOND, "x" * 2600)])[0]
    write_files(queue, [("current", b"".join(log(0, 3)) + line[:900])])
    assert numbers(looks.texts()) == [0, 1, 2]
    (queue / "current").rename(queue / name(3))
    write_files(queue, [("current", line[900:1600])])
    assert looks.read() == []
    write_files(queue, [(name(-100), b"".join(log(-110, 5))), ("current", line[900:] + b"".join(log(4, 2)))])
    found = looks.read()
    assert [line.text[26:] for line in found[:3]] == [b"x" * 2600, b"end msg 4", b"end msg 5"]
    assert len(found) == 8


@pytest.mark.parametrize("how", ["gz", "xz", "zst"])
@pytest.mark.parametrize("ending", ["s", "s.{}", "u.{}"])
def test_a_log_that_was_read_in_part_goes_on_where_it_was_though_it_was_rotated_and_compressed_since(
    queue: Path, looks: Looks, how: str, ending: str
) -> None:
    whole = b"".join(log(0, 20))
    half = whole.index(b"end msg 7") + 4
    write_files(queue, [("current", whole[:half])])
    assert numbers(looks.texts()) == list(range(7))
    write_files(queue, [(name(19, ending.format(how)), packed(how, whole)), ("current", b"".join(log(20, 2)))])
    found = looks.read()
    assert [line.torn for line in found] == [False] * 15
    assert numbers([line.text[26:] for line in found]) == list(range(7, 22))
    assert [line.number for line in found] == [*range(8, 21), 1, 2]
    assert looks.read() == [] and looks.warnings == []


@pytest.mark.parametrize("how", ["", "gz"])
def test_a_log_that_was_read_in_part_goes_on_when_its_processor_has_done(
    queue: Path, looks: Looks, how: str
) -> None:
    """multilog calls it `previous` meanwhile, and `current` is another one."""
    whole = b"".join(log(0, 20))
    half = whole.index(b"end msg 7") + 4
    write_files(queue, [("current", whole[:half])])
    assert numbers(looks.texts()) == list(range(7))
    (queue / "current").rename(queue / "previous")
    write_files(queue, [("previous", whole), ("current", b"".join(log(20, 2)))])
    assert numbers(looks.texts()) == list(range(7, 22))
    (queue / "previous").unlink()
    write_files(queue, [(name(19), packed(how, whole) if how else whole), ("current", b"".join(log(20, 4)))])
    found = looks.read()
    assert numbers([line.text[26:] for line in found]) == [22, 23] and not any(line.torn for line in found)


def test_a_log_whose_beginning_was_read_and_that_svlogd_s_processor_compresses_goes_on(
    queue: Path, looks: Looks
) -> None:
    whole = b"".join(log(0, 20))
    write_files(queue, [(name(19, "u"), whole[:-5])])
    assert numbers(looks.texts()) == list(range(19))
    (queue / name(19, "u")).unlink()
    write_files(queue, [(name(19), gzip.compress(whole))])
    assert numbers(looks.texts()) == [19]


def test_a_compressed_log_that_is_unpacked_or_compressed_anew_is_not_new(queue: Path, looks: Looks) -> None:
    whole = b"".join(log(0, 20)) + b"garbage\n"
    write_files(queue, [(name(19, "s.gz"), gzip.compress(whole))])
    assert len(looks.read()) == 21
    (queue / name(19, "s.gz")).unlink()
    for ending, content in (("s", whole), ("s.xz", lzma.compress(whole)), ("s", gzip.compress(whole))):
        write_files(queue, [(name(19, ending), content)])
        assert looks.read() == [], ending
        (queue / name(19, ending)).unlink()


def test_a_compressed_log_to_which_another_is_appended_goes_on_behind_the_first(queue: Path, looks: Looks) -> None:
    first, second = b"".join(log(0, 5)), b"".join(log(5, 5))
    write_files(queue, [("old.gz", gzip.compress(first))])
    assert numbers(looks.texts()) == list(range(5))
    write_files(queue, [("old.gz", gzip.compress(first) + gzip.compress(second))])
    assert numbers(looks.texts()) == list(range(5, 10)) and looks.read() == []


@pytest.mark.parametrize("lines", [20, 90])
@pytest.mark.parametrize("ending", [0, 5])
def test_a_copy_of_a_log_that_itself_goes_on_does_not_take_its_place(
    queue: Path, looks: Looks, lines: int, ending: int
) -> None:
    whole = b"".join(log(0, lines + 1))
    half, end = whole.index(b"end msg %d" % (lines // 2)) + ending, whole.index(b"end msg %d" % lines) + ending
    write_files(queue, [("current", whole[:half])])
    assert numbers(looks.texts()) == list(range(lines // 2))
    write_files(queue, [("copy.gz", gzip.compress(whole[:half])), ("current", whole[:end])])
    assert numbers(looks.texts()) == [*range(lines // 2, lines), *range(lines // 2)]
    write_files(queue, [("another", whole[:end]), ("current", whole)])
    found = looks.read()
    # What follows is said once more, as of any file.
    assert numbers([line.text[26:] for line in found if not line.torn]) == [lines, *range(lines)]
    assert looks.read() == [] and looks.warnings == []


def test_old_files_that_are_brought_back_do_not_come_between_the_halves_of_a_line_of_current(
    queue: Path, looks: Looks
) -> None:
    whole = b"".join(log(100, 5))
    write_files(queue, [("current", whole[:100])])
    assert numbers(looks.texts()) == [100, 101]
    back = b"".join(log(0, 40))
    write_files(queue, [(name(20), back[:800]), (name(40, "s.gz"), gzip.compress(back[800:-5]))])
    found = looks.read()
    assert numbers([line.text[26:] for line in found[:-1]]) == list(range(39)) and found[-1].torn
    write_files(queue, [("current", whole)])
    assert numbers(looks.texts()) == [102, 103, 104]


@pytest.mark.parametrize("how", ["", "gz"])
def test_a_line_that_is_too_long_is_one_bad_line_when_it_ends_in_however_many_builds_it_came(
    queue: Path, looks: Looks, how: str
) -> None:
    content, found = b"".join(log(0, 3)), []
    for more in (b"x" * 600_000, b"x" * 600_000, b"x" * (5 << 20), b"yy\n" + b"".join(log(4, 2))):
        content += more
        write_files(queue, [("current", packed(how, content) if how else content)])
        found += looks.read()
        # What is kept of it has a bound.
        assert len(str(looks.state)) < 1_500_000
    assert [(line.torn, line.number) for line in found] == [(number == 4, number) for number in range(1, 7)]
    assert found[3].text == b"x" * (1 << 20) and looks.read() == []


def test_lines_behind_a_block_of_nuls_are_read_though_these_are_many(queue: Path, looks: Looks) -> None:
    """As a file reads that lost its blocks when the power failed."""
    lines = log(0, 4)
    write_files(queue, [("current", lines[0] + b"\0" * (3 << 20) + b"".join(lines[1:]))])
    found = looks.read()
    assert [line.text[-26 - 9 :].lstrip(b"\0") for line in found] == [line[:-1] for line in lines]
    assert not any(line.torn for line in found) and len(found[1].text) < 100


@pytest.mark.parametrize("seed", range(3))
def test_what_a_logger_writes_and_rotates_and_another_compresses_meanwhile_is_read_once_in_order(
    queue: Path, looks: Looks, seed: int
) -> None:
    lines = log(0, 3000)

    def work() -> None:
        rng, last = random.Random(seed), 0
        for at, line in enumerate(lines):
            with open(queue / "current", "ab", buffering=0) as current:
                cut = rng.randrange(len(line))
                current.write(line[:cut])
                current.write(line[cut:])
            if rng.random() < 0.03:
                (queue / "current").rename(queue / name(at, "u"))
                (queue / name(at, "u")).rename(queue / name(at))
                if last and rng.random() < 0.5:
                    (queue / name(last, "s.gz")).write_bytes(gzip.compress((queue / name(last)).read_bytes()))
                    (queue / name(last)).unlink()
                last = at

    found = []
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        while not working.done():
            # As a build that found new names time and again: the stream stays as it was.
            with suppress(FileNotFoundError):
                found += looks.read()
            assert looks.warnings == []
        working.result()
    found += looks.read()
    assert numbers([line.text[26:] for line in found]) == list(range(3000)) and not any(line.torn for line in found)


@pytest.mark.parametrize("moment", range(1, 30))
@pytest.mark.parametrize("ending", ["s", "s.gz"])
def test_a_file_that_is_renamed_while_it_is_read_about_is_read_before_the_next_ones(
    queue: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch, moment: int, ending: str
) -> None:
    """As svlogd calls it .u until its processor has done, and as an administrator compresses it."""
    whole = b"".join(log(0, 60))
    cut = whole.index(b"end msg 30") + 4
    write_files(queue, [(name(30, "u"), whole[:cut]), ("current", whole[cut:-30])])
    steps = count(1)

    def step() -> None:
        if next(steps) == moment:
            (queue / name(30, "u")).unlink()
            write_files(queue, [(name(30, ending), packed(ending[2:], whole[:cut]))])

    with monkeypatch.context() as patch:
        at_each_call(patch, step)
        found = looks.read()
    write_files(queue, [("current", whole[cut:])])
    found += looks.read()
    assert [line.text + b"\n" for line in found] == log(0, 60) and not any(line.torn for line in found)
    assert looks.warnings == []


@pytest.mark.parametrize("moment", range(1, 20))
def test_a_file_that_is_removed_before_it_is_read_is_told_and_the_others_are_read(
    queue: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    files = [(name(4), b"".join(log(0, 5))), (name(9), b"".join(log(5, 5))), ("current", b"".join(log(10, 5)))]
    write_files(queue, files)
    steps = count(1)

    def step() -> None:
        if next(steps) == moment:
            (queue / name(4)).unlink()

    with monkeypatch.context() as patch:
        at_each_call(patch, step)
        found = numbers(looks.texts())
    if found[0]:
        assert found == list(range(5, 15))
        assert looks.warnings in ([], [f"{queue / name(4)}: it was removed before it was read"])
    else:
        assert found == list(range(15)) and looks.warnings == []


def test_names_and_a_compressed_twin_of_a_file_are_one_file(queue: Path, looks: Looks) -> None:
    """As gzip leaves it while it is at work, its own file being half written."""
    whole = b"".join(log(0, 3000))
    twin = gzip.compress(whole)
    write_files(queue, [(name(2999), whole), (name(2999, "s.gz"), twin[: len(twin) // 2])])
    assert numbers(looks.texts()) == list(range(3000)) and looks.warnings == []
    (queue / name(2999)).unlink()
    write_files(queue, [(name(2999, "s.gz"), twin)])
    assert looks.read() == [] and looks.warnings == []


def test_a_torn_line_is_told_though_the_next_file_has_but_a_part_of_its_first_stamp_yet(
    queue: Path, looks: Looks
) -> None:
    lines = log(0, 6)
    write_files(queue, [(name(2), b"".join(lines[:3])[:-8]), ("current", lines[3][:9])])
    found = looks.read()
    write_files(queue, [("current", b"".join(lines[3:]))])
    found += looks.read()
    assert [line.torn for line in found] == [False, False, True, False, False, False]
    assert numbers([line.text[26:] for line in found[3:]]) == [3, 4, 5]


def test_a_damaged_archive_goes_on_with_a_whole_line_once_it_is_mended(
    queue: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queue_report.logs.reading.BLOCK", 1000)
    whole = gzip.compress(b"".join(log(0, 20_000)), 1)
    write_files(queue, [(name(19_999, "s.gz"), whole[: len(whole) // 2]), ("current", b"".join(log(20_000, 2)))])
    first = looks.read()
    assert "its compressed content is damaged" in looks.warnings[0] and len(first) > 100
    (queue / name(19_999, "s.gz")).write_bytes(whole)
    found = first + looks.read()
    assert not any(line.torn for line in found) and looks.warnings == []
    assert sorted(numbers([line.text[26:] for line in found])) == list(range(20_002))


def test_files_with_equal_first_stamps_and_lines_are_each_read(queue: Path, looks: Looks) -> None:
    """As where a clock steps back to where it was, and a queue says what it said."""
    first, second = log(0, 20) + log(100, 10), log(0, 20) + log(200, 10)
    write_files(queue, [(name(200), b"".join(first))])
    assert len(looks.read()) == 30
    write_files(queue, [(name(300), b"".join(second)), ("current", b"".join(log(0, 20)))])
    assert numbers(looks.texts()) == [*range(20), *range(200, 210), *range(20)]
    write_files(queue, [("current", b"".join(log(0, 20) + log(300, 2)))])
    assert numbers(looks.texts()) == [300, 301]
    assert looks.read() == []


@pytest.mark.parametrize("how", ["", "gz"])
def test_parts_of_one_long_line_are_each_read_though_they_begin_alike_and_are_long(
    queue: Path, looks: Looks, how: str
) -> None:
    line = lines_of([(BEGIN, "x" * 20_000)])[0]
    found = []
    for number, cut in enumerate(range(3000, 21_000, 3000)):
        write_files(queue, [(name(number, f"s.{how}" if how else "s"), packed(how, line[cut - 3000 : cut]))])
        found += looks.read()
    write_files(queue, [("current", line[18_000:] + b"".join(log(1, 1)))])
    found += looks.read()
    assert [len(one.text) for one in found] == [20_026, 35] and not any(one.torn for one in found)


def test_clock_steps_inside_and_across_files_change_no_order(queue: Path, looks: Looks) -> None:
    files = [(9, log(5, 5) + log(0, 3)), (10, log(3, 2) + log(20, 2)), (22, log(1, 4))]
    write_files(queue, [(name(last), b"".join(lines)) for last, lines in files])
    assert numbers(looks.texts()) == [*range(5, 10), *range(3), 3, 4, 20, 21, *range(1, 5)]
    assert looks.warnings == []


@pytest.mark.parametrize("called", ["mail.log", "current", name(5)])
def test_a_file_without_stamps_is_refused_by_its_name(queue: Path, looks: Looks, called: str) -> None:
    write_files(queue, [(called, b"Jan  2 03:04:05 a postfix/smtp[1]: hello\n" * 9)])
    with pytest.raises(SourceError, match=f"{called}: its lines have no TAI64N stamps; expected is"):
        looks.read()


def test_thousands_of_files_are_read_once_and_again_not_when_all_of_them_are_compressed(
    queue: Path, looks: Looks
) -> None:
    for number in range(3000):
        write_files(queue, [(name(number), log(number, 1)[0])])
    assert numbers(looks.texts()) == list(range(3000))
    for number in range(3000):
        (queue / name(number)).unlink()
        write_files(queue, [(name(number, "s.gz"), gzip.compress(log(number, 1)[0]))])
    write_files(queue, [("current", log(3000, 1)[0])])
    assert numbers(looks.texts()) == [3000]
    assert looks.read() == [] and looks.warnings == []


@pytest.mark.parametrize("content", [log(0, 20), [b"".join(log(0, 40))[:1010]], log(0, 60), log(5, 50)])
def test_a_log_that_became_shorter_or_another_one_is_read(queue: Path, looks: Looks, content: list[bytes]) -> None:
    write_files(queue, [("current", b"".join(log(0, 50)))])
    assert len(looks.texts()) == 50
    write_files(queue, [("current", b"".join(content))])
    assert {line.text for line in looks.read()} >= {line[:-1] for line in content if line.endswith(b"\n")} - {
        line[:-1] for line in log(0, 50)
    }
    write_files(queue, [("current", b"".join(content) + b"".join(log(200, 1)))])
    assert looks.read()[-1].text[-8:] == b" msg 200"
