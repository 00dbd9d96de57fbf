"""Files of this machine, and of an object store: what is there, what is read, and what trouble is called."""

import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from queue_report.runtime.files import Entry, LocalFiles, as_os_error, local_path, open_files, store_settings

TEXT = b"0123456789" * 30_000


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(str(tmp_path))


def test_what_is_local_is_told_by_its_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_path("/srv/a b%41") == "/srv/a b%41" and local_path("file:///srv/a%20b") == "/srv/a b"
    assert local_path("file:/srv") == "/srv"
    assert local_path("hdfs:///srv") is local_path("s3a://bucket/x") is None
    monkeypatch.chdir(tmp_path)
    assert local_path("srv") == f"{tmp_path}/srv"
    assert open_files("file:///srv").root == "/srv"


def test_a_scheme_that_nobody_knows_is_an_error_of_one_line() -> None:
    with pytest.raises(OSError) as failed:
        open_files("gopher://host/logs")
    assert "\n" not in str(failed.value) and "\x1b" not in str(failed.value)


def test_settings_of_a_store_are_told_from_spark_s_own() -> None:
    given = {"spark.queueReport.store.AWS_REGION": "eu", "spark.master": "local", "spark.queueReport.store.a.b": "c"}
    assert store_settings(given) == {"AWS_REGION": "eu", "a.b": "c"}


def test_a_directory_is_listed_with_sizes(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "current").write_bytes(TEXT)
    (tmp_path / os.fsdecode(b"\xff")).touch()
    (tmp_path / "gone").symlink_to("nowhere")
    for path in (tmp_path / "current", tmp_path / os.fsdecode(b"\xff")):
        os.utime(path, ns=(1, 7))
    assert files.list() == [
        Entry("a", True, 0), Entry("current", False, len(TEXT), 7), Entry(os.fsdecode(b"\xff"), False, 0, 7)
    ]  # fmt: skip
    assert files.list("current") == [Entry("", False, len(TEXT), 7)]


def test_a_file_is_read_from_any_place(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "current").write_bytes(TEXT)
    assert files.read("current") == TEXT
    with files.open("current") as file:
        file.seek(299_998)
        assert file.read(10) == b"89" and file.read(10) == b""


def test_an_open_file_is_the_same_until_its_name_is_another_one_s(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "current").write_bytes(b"one")
    with files.open("current") as file:
        assert files.is_same(file, "current")
        (tmp_path / "current").rename(tmp_path / "@1.s")
        assert not files.is_same(file, "current") and files.is_same(file, "@1.s")
        (tmp_path / "current").write_bytes(b"two")
        assert not files.is_same(file, "current") and file.read() == b"one"


def test_files_are_written_once_and_removed(files: LocalFiles, tmp_path: Path) -> None:
    files.write("a/b/x", memoryview(b"one"))
    with pytest.raises(FileExistsError):
        files.write("a/b/x", b"two")
    assert (tmp_path / "a" / "b" / "x").read_bytes() == b"one"
    for _ in range(2):
        files.remove("a/b/x")
    assert files.list("a/b") == []


def test_a_file_for_which_there_is_no_room_is_not_there() -> None:
    """A limit of the size of files is met as a full disk is: in the middle of a write."""
    script = (
        "import os, resource, signal, tempfile; from queue_report.runtime.files import LocalFiles\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "with tempfile.TemporaryDirectory() as top:\n"
        "    try: LocalFiles(top).write('a/x', bytes(100_000))\n"
        "    except OSError as error: print(error.errno, os.listdir(top + '/a'))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == f"{errno.EFBIG} []\n", done


def test_what_is_missing_is_told_from_what_is_in_trouble(files: LocalFiles, tmp_path: Path) -> None:
    for read in (files.read, files.open, files.list):
        with pytest.raises(FileNotFoundError):
            read("missing")
    (tmp_path / "directory").mkdir()
    with pytest.raises(IsADirectoryError):
        files.read("directory")


def test_files_and_then_the_directories_that_name_them_are_synced(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write("a/b/x", b"one")
    files.write("a/c/y", b"two")
    seen: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda open_as: seen.append(os.readlink(f"/proc/self/fd/{open_as}")))
    files.sync(["a/b/x", "a/c/y"])
    found = [os.path.relpath(path, tmp_path) for path in seen]
    assert found == ["a/b/x", "a/c/y", "a/c", "a/b", "a", "."]
    with pytest.raises(FileNotFoundError):
        files.sync(["a/z"])


def test_they_come_to_executors_as_they_are(tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(open_files(str(tmp_path))))
    again.write("x", b"one")
    assert (tmp_path / "x").read_bytes() == b"one"


def test_an_error_of_delta_rs_is_the_system_s_or_one_line() -> None:
    full = as_os_error(ValueError("Generic error\n \x1b[31m↳\x1b[0m No space left on device (os error 28)"))
    assert full.errno == errno.ENOSPC
    other = as_os_error(ValueError("\x1b[31mGeneric S3 error\x1b[0m: no\n\n  Caused by: none"))
    assert (str(other), other.errno) == ("Generic S3 error: no", None)
    assert as_os_error(full) is full
