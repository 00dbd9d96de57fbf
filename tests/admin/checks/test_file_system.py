"""A queue on a network file system: init, check and queue-start refuse it, unless control/queuefilesystem names it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_admin.checks import file_system
from queue_admin.main import main

pytestmark = pytest.mark.usefixtures("usual_umask")
Mounted = Callable[[str], None]


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mounted:
    """Return a function that has the test's directory on a file system of a kind, as the kernel would say."""

    def mount(kind: str) -> None:
        table = tmp_path / "mountinfo"
        root = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        table.write_text(f"{root}30 22 0:44 / {os.path.realpath(tmp_path)} rw - {kind} server:/export rw\n")
        monkeypatch.setattr(file_system, "MOUNTS", str(table))

    return mount


def start(home: Path) -> str:
    """Run queue-start, which refuses, in a process of its own: it closes all descriptors. Return what it says."""
    code = (
        "import sys; from queue_admin.checks import file_system; from queue_admin import start;"
        "file_system.MOUNTS = sys.argv[1]; sys.exit(start.main(['queue-start', '--home', sys.argv[2]]))"
    )
    words = [sys.executable, "-c", code, file_system.MOUNTS, str(home)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 100, done
    return done.stderr


def init(home: Path, *words: str) -> int:
    return main(["queuectl", "init", str(home), "--as-me", "--me", "mail.example.org", *words])


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "vfat"])
def test_init_refuses_it_before_it_makes_anything(
    tmp_path: Path, mounted: Mounted, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    mounted(kind)
    assert init(tmp_path / "home") == 100
    error = capfd.readouterr().err
    assert f"({kind})" in error and f"{tmp_path}/home/queue" in error and "control/queuefilesystem" in error
    assert not (tmp_path / "home").exists()


def test_queue_start_refuses_it(tmp_path: Path, mounted: Mounted) -> None:
    home = tmp_path / "home"
    assert init(home) == 0
    mounted("nfs4")
    error = start(home)
    assert f"alert: cannot start: unable to use {home}/queue: it is on a network file system (nfs4)" in error
    assert f"write nfs4 into {home}/control/queuefilesystem" in error
    assert init(home) == 100


def test_init_with_network_writes_the_control_file_that_all_three_honour(
    tmp_path: Path, mounted: Mounted, capfd: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    mounted("nfs4")
    assert init(home, "--network") == 0
    assert (home / "control" / "queuefilesystem").read_text() == "nfs4\n"
    assert init(home) == 0
    capfd.readouterr()
    main(["queuectl", "check", str(home)])
    assert "file system" not in capfd.readouterr().out
    # The next check of queue-start refuses, so the daemons are not started.
    (home / "queue" / "repair").mkdir()
    assert "a repair was not finished" in start(home)

    mounted("cifs")
    assert main(["queuectl", "check", str(home)]) == 1
    assert "is on a network file system (cifs)" in capfd.readouterr().out
    assert main(["queuectl", "check", str(home), "--network"]) == 1, "the repair is found"
    assert "cifs" not in capfd.readouterr().out
    assert init(home, "--network") == 100, "the file that exists does not name it"
    assert "(cifs)" in start(home)


def test_local_file_systems_are_taken(tmp_path: Path, mounted: Mounted) -> None:
    for kind in ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs"):
        mounted(kind)
        assert init(tmp_path / "home") == 0
        assert not (tmp_path / "home" / "control" / "queuefilesystem").exists()
