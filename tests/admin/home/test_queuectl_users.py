"""queuectl users find where the suite runs as another user; transcripts/users.txt has what else it prints."""

import os
from pathlib import Path

import pytest

from queue_base.home import Home
from support.local.assigned import assign
from support.processes.forked import run_program
from support.tools import need_root

UID, GID = os.geteuid() or 12345, os.getegid()


def find(home: Home, *addresses: str) -> tuple[int, list[str], str]:
    """Return the exit code, the lines on stdout and what is on stderr."""
    done = run_program("queuectl", "--home", home.path, "users", "find", *addresses)
    return done.returncode, done.stdout.decode().splitlines(), done.stderr.decode()


@pytest.fixture
def joe(home: Home, tmp_path: Path) -> Path:
    """Assign joe- to a home with a .qmail-list-default; return that home."""
    place = tmp_path / "joe"
    place.mkdir()
    (place / ".qmail-list-default").write_text("./Maildir/\n")
    assign(home, f"+joe-:joe:{UID}:{GID}:{place}:-::\n=adm:root:0:0:/root:::\n=gone:joe:{UID}:{GID}:{place}/no:::\n")
    return place


def test_where_the_suite_runs_as_a_user_the_mail_of_others_is_told_as_a_deferral(home: Home, joe: Path) -> None:
    need_root()
    Path(home.alias, ".qmail-default").write_text("./Maildir/\n")
    for path in (home.queue, home.alias):
        os.chown(path, 12346, 12346)
    # Not account `queue`, for which root would start the suite.
    code, lines, _ = find(home, "joe-x")
    assert code == 111 and lines[-1] == "  deferral: queue-local runs as uid 12346, who cannot deliver to others"
    assert find(home, "info")[0] == 0
