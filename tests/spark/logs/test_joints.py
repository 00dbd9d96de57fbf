"""What is new in a directory of logs is read once, in order, whatever loggers and administrators do with its files."""

import errno
import gzip
import lzma
import os
from collections import Counter
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from queue_base.errors import Temporary
from spark.logs import sources
from spark.logs.plan import SourceError
from spark.logs.reader import read_lines
from spark.runtime.places import Entry, LocalPlace
from support.spark.logs.log_files import lines_of, stamp, write_files
from support.spark.logs.log_plans import Looks, lines_in

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
def looks(queue: Path, tmp_path: Path) -> Looks:
    return Looks(queue.parents[1], tmp_path / "scratch")


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


def packed(how: str, data: bytes) -> bytes:
    if how == "zst":
        return bytes(pa.compress(data, codec="zstd", asbytes=True))
    return gzip.compress(data) if how == "gz" else lzma.compress(data)


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


def test_one_host_that_cannot_be_read_does_not_stop_the_others(
    queue: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(queue, [("current", b"".join(log(0, 3)))])
    write_files(queue.parents[1] / "bad" / "q", [("current", b"".join(log(5, 3)))])
    read = LocalPlace.read

    def fail(self: LocalPlace, path: str, start: int = 0, size: int | None = None) -> bytes:
        if "/bad/" in f"{self.root}/{path}":
            raise OSError(5, "Input/output error", path)
        return read(self, path, start, size)

    with monkeypatch.context() as patch:
        patch.setattr(LocalPlace, "read", fail)
        assert numbers(looks.texts()) == [0, 1, 2]
        (warning,) = looks.warnings
        assert warning.startswith("queue q of host bad is left as it was: unable to read logs ")
        with pytest.raises(Temporary, match="input/output error"):
            sources.plan(LocalPlace(str(queue.parents[1] / "bad" / "q")), {}, LocalPlace(str(queue)))
    assert len(looks.texts()) == 3 and looks.warnings == []


def test_one_log_of_another_form_does_not_stop_the_others(queue: Path, looks: Looks) -> None:
    write_files(queue, [("current", b"".join(log(0, 3)))])
    other = queue.parents[1] / "mx9" / "q"
    write_files(other, [("mail.log", b"Jan  2 03:04:05 a postfix/smtp[1]: hello\n")])
    assert numbers(looks.texts()) == [0, 1, 2]
    assert "its lines have no TAI64N stamps" in looks.warnings[0]
    (queue / "current").unlink()
    with pytest.raises(SourceError, match="have no TAI64N stamps"):
        looks.read()


def test_a_directory_in_which_nothing_is_a_log_is_refused(tmp_path: Path) -> None:
    """As for `build /etc`: what has an empty file alone is no log that was read either."""
    write_files(tmp_path / "cron.d" / "q", [("jobs", b"* * * * * root true\n"), ("more", b"# none\n")])
    write_files(tmp_path / "empty" / "q", [(".placeholder", b"x"), ("README", b"")])
    with pytest.raises(SourceError, match="have no TAI64N stamps"):
        sources.plan(LocalPlace(str(tmp_path)), {}, LocalPlace(str(tmp_path)))


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
    assert [line.number for line in looks.read()] == [None, 6, 7, 8, 9]


@pytest.mark.parametrize("same_disk", [True, False])
def test_what_is_new_in_current_is_read_though_its_logger_renames_it_meanwhile(
    queue: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch, same_disk: bool
) -> None:
    def fail(old: str, new: str) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    if not same_disk:
        monkeypatch.setattr(os, "link", fail)
    monkeypatch.setattr(sources, "_KEPT", 0)
    monkeypatch.setattr(sources, "KEPT_MAX", 0)
    whole = b"".join(log(0, 20))
    for end in (300, len(whole)):
        (queue / "current").write_bytes(whole[:end])
        found = looks.plan()
        (queue / "current").rename(queue / "elsewhere")
        (queue / "current").write_bytes(b"".join(log(100, 20)))
        (part,) = found.streams["h", "q"]
        texts = [line.text[26:] for block in read_lines([part], Counter()) for line in lines_in(block)]
        assert numbers(texts) == list(range(8) if end == 300 else range(8, 20))
        (queue / "elsewhere").rename(queue / "current")


@pytest.mark.parametrize("moment", range(1, 14))
def test_current_that_is_renamed_as_it_is_looked_at_is_read_once_though_new_files_come_all_the_time(
    queue: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """As where an administrator compresses many files one by one. moment: how often files have come before that."""
    older, newer = log(0, 10), log(100, 30)
    write_files(queue, [("current", b"".join(older[:4]))])
    found = looks.texts()
    write_files(queue, [("current", b"".join(older))])
    listed, digested, come = LocalPlace.list, LocalPlace.digest, count(-100)

    def list_and_add(self: LocalPlace, path: str = "") -> list[Entry]:
        found = listed(self, path)
        if path == "h/q":
            number = next(come)
            write_files(queue, [(name(number), b"".join(log(number, 1)))])
        return found

    def digest_and_rotate(self: LocalPlace, path: str, start: int, size: int) -> str:
        """Rename `current` when it was found to be the file that it was."""
        found = digested(self, path, start, size)
        if path == "h/q/current" and (queue / name(moment - 101)).exists() and not (queue / name(9)).exists():
            (queue / "current").rename(queue / name(9))
            (queue / "current").write_bytes(b"".join(newer))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(LocalPlace, "list", list_and_add)
        patch.setattr(LocalPlace, "digest", digest_and_rotate)
        for _ in range(2):
            found += looks.texts()
    assert (queue / name(9)).exists()
    found += looks.texts()
    read = Counter(number for number in numbers(found) if number >= 0)
    assert read == dict.fromkeys([*range(10), *range(100, 130)], 1)
    assert looks.read() == []


def test_links_and_pipes_beside_the_hosts_are_passed_by(queue: Path, looks: Looks) -> None:
    write_files(queue, [("current", b"".join(log(0, 3)))])
    (queue.parents[1] / "loop").symlink_to("loop")
    os.mkfifo(queue.parents[1] / "fifo")
    assert numbers(looks.texts()) == [0, 1, 2]


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


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("how", ["gz", "xz", "zst"])
@pytest.mark.parametrize("ending", ["s", "s.{}", "u.{}"])
def test_a_log_that_was_read_in_part_goes_on_where_it_was_though_it_was_rotated_and_compressed_since(
    queue: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch, how: str, ending: str, kept: bool
) -> None:
    if not kept:
        monkeypatch.setattr(sources, "_KEPT", 0)
        monkeypatch.setattr(sources, "KEPT_MAX", 0)
    whole = b"".join(log(0, 20))
    half = whole.index(b"end msg 7") + 4
    write_files(queue, [("current", whole[:half])])
    assert numbers(looks.texts()) == list(range(7))
    write_files(queue, [(name(19, ending.format(how)), packed(how, whole)), ("current", b"".join(log(20, 2)))])
    found = looks.read()
    assert [line.torn for line in found] == [False] * 15
    assert numbers([line.text[26:] for line in found]) == list(range(7, 22))
    assert [line.number for line in found] == [None, *range(9, 21), 1, 2]
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


def test_a_copy_of_a_log_that_itself_goes_on_does_not_take_its_place(queue: Path, looks: Looks) -> None:
    whole = b"".join(log(0, 20))
    half = whole.index(b"end msg 7") + 4
    write_files(queue, [("current", whole[:half])])
    assert numbers(looks.texts()) == list(range(7))
    write_files(queue, [("copy.gz", gzip.compress(whole[: half + 200])), ("current", whole)])
    found = looks.read()
    assert numbers([line.text[26:] for line in found])[:13] == list(range(7, 20))


def test_a_compressed_log_is_unpacked_once_if_it_is_small(
    queue: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark.logs import packed as packing

    opened: list[str] = []
    unpack = packing.unpack

    def note(how: str, raw: object) -> object:
        opened.append(how)
        return unpack(how, raw)  # type: ignore[arg-type]

    monkeypatch.setattr(packing, "unpack", note)
    write_files(queue, [(name(9, "s.gz"), gzip.compress(b"".join(log(0, 10))))])
    assert numbers(looks.texts()) == list(range(10)) and opened == ["gzip"]


@pytest.mark.parametrize("how", ["", "gz"])
def test_the_beginning_of_a_line_without_end_is_a_bad_line_at_once(queue: Path, looks: Looks, how: str) -> None:
    content = b"".join(log(0, 3)) + b"x" * (5 << 20)
    write_files(queue, [("current", packed(how, content) if how else content)])
    found = looks.read()
    assert [(line.torn, line.number) for line in found] == [(False, 1), (False, 2), (False, 3), (True, 4)]
    assert found[-1].text == b"x" * (1 << 20) and looks.read() == []
    more = content + b"yy\n" + b"".join(log(3, 2))
    write_files(queue, [("current", packed(how, more) if how else more)])
    assert [line.text[-9:] for line in looks.read()] == [b"yy", b"end msg 3", b"end msg 4"]


def test_a_line_that_grows_too_long_over_builds_is_given_up(queue: Path, looks: Looks) -> None:
    for size in (600_000, 1_200_000):
        write_files(queue, [("current", b"".join(log(0, 1)) + b"x" * size)])
        found = looks.read()
    assert [line.torn for line in found] == [True]
