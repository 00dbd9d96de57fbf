"""The crash model allows the disks that POSIX's weakest reading allows, and no others.

Every trace here is of a real process under strace.
"""

from pathlib import Path

import pytest

from support.faults.crash.crash_disk import Unsupported
from support.faults.traced import HEAD, traced_script


def disks(root: Path, script: str) -> list[dict[str, bytes]]:
    """Return the disks that a power cut at the end of a script may leave."""
    root.mkdir(exist_ok=True)
    crashes = list(traced_script(root, HEAD + "os.chdir(sys.argv[1])\n" + script, str(root)).crashes())
    last = [{path: file.content for path, file in crash.files.items()} for crash in crashes if crash.exit_code == 0]
    return [dict(each) for each in dict.fromkeys(frozenset(disk.items()) for disk in last)]


def test_a_new_file_that_nobody_synced_may_be_missing_or_hold_any_piece(tmp_path: Path) -> None:
    found = disks(tmp_path / "r", "Commit().create('./a', b'abcd', 0o600)")

    assert sorted(found, key=repr) == sorted(
        [{}, {"a": b""}, {"a": b"ab"}, {"a": b"abcd"}, {"a": bytes(4)}],
        key=repr,
    )


def test_a_synced_file_keeps_its_contents_but_not_its_name(tmp_path: Path) -> None:
    found = disks(tmp_path / "r", "Commit().create('./a', b'abcd', 0o600); sync_path('a')")

    assert found == [{}, {"a": b"abcd"}]


def test_a_synced_directory_keeps_the_name_but_not_the_contents(tmp_path: Path) -> None:
    found = disks(tmp_path / "r", "Commit().create('./a', b'abcd', 0o600); sync_path('.')")

    assert {} not in found
    assert {"a": b""} in found


def test_a_sync_of_the_file_system_keeps_everything(tmp_path: Path) -> None:
    script = "Commit().create('./a', b'abcd', 0o600); os.rename('a', 'b'); sync_filesystem(os.open('.', os.O_RDONLY))"

    found = disks(tmp_path / "r", script)

    assert found == [{"b": b"abcd"}]


def test_a_directory_that_another_process_has_made_and_not_synced_is_kept_with_what_a_commit_puts_in_it(
    tmp_path: Path,
) -> None:
    script = """
os.mkdir('d', 0o700)
commit = Commit()
commit.directory('./d', 0o750)
commit.create('./d/a', b'abcd', 0o600)
commit.sync()
"""

    found = disks(tmp_path / "r", script)

    assert found == [{"d/a": b"abcd"}]
    assert (tmp_path / "r" / "d").stat().st_mode & 0o7777 == 0o750


def test_the_names_of_a_rename_may_change_one_without_the_other(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "a").write_bytes(b"1")

    found = disks(tmp_path / "r", "os.rename('a', 'b')")

    assert sorted(map(sorted, found)) == [[], ["a"], ["a", "b"], ["b"]]


def test_a_removal_that_nobody_synced_may_be_undone(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "a").write_bytes(b"1")

    assert disks(tmp_path / "r", "os.unlink('a')") == [{"a": b"1"}, {}]
    assert disks(tmp_path / "r", "") == [{}]


def test_a_mark_written_in_place_is_the_old_or_the_new_byte(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "a").write_bytes(b"Tx\0Ty\0")

    found = disks(tmp_path / "r", "os.pwrite(os.open('a', os.O_WRONLY), b'D', 3)")

    assert found == [{"a": b"Tx\0Ty\0"}, {"a": b"Tx\0Dy\0"}]


def test_what_was_appended_may_be_missing_or_a_piece_and_what_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "a").write_bytes(b"old")

    found = disks(tmp_path / "r", "os.write(os.open('a', os.O_WRONLY | os.O_APPEND), b'1234')")

    assert {"a": b"old"} in found
    assert {"a": b"old12"} in found
    assert all(disk["a"].startswith(b"old") for disk in found)


def test_files_in_a_directory_whose_own_name_is_lost_are_lost(tmp_path: Path) -> None:
    script = "os.mkdir('d'); Commit().create('d/a', b'1', 0o600); sync_path('d/a'); sync_path('d')"

    found = disks(tmp_path / "r", script)

    assert found == [{}, {"d/a": b"1"}]


def test_a_child_process_and_a_duplicated_descriptor_write_to_the_same_file(tmp_path: Path) -> None:
    script = """
a = os.open('a', os.O_WRONLY | os.O_CREAT)
os.write(a, b'1')
if os.fork() == 0:
    os.write(os.dup(a), b'2')
    os._exit(0)
os.wait()
os.write(a, b'3')
os.fsync(a)
sync_path('.')
"""
    assert disks(tmp_path / "r", script) == [{"a": b"123"}]


def test_many_open_choices_are_sampled_with_the_extremes(tmp_path: Path) -> None:
    found = disks(tmp_path / "r", "[Commit().create(f'./{n}', b'abcd', 0o600) for n in range(7)]")

    assert {} in found
    assert {str(number): b"abcd" for number in range(7)} in found
    assert len(found) > 500


def test_a_call_that_the_model_does_not_know_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()

    with pytest.raises(Unsupported, match="symlink"):
        disks(tmp_path / "r", "os.symlink('a', 'b')")
