"""queuectl users find: whose an address is, and why, as queue-local itself decides."""

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


def test_an_assignment_is_told_with_its_key_and_the_file_that_decides(home: Home, joe: Path) -> None:
    assert find(home, "Joe-LIST-x@Me.Example.org") == (
        0,
        [
            "Joe-LIST-x@Me.Example.org",
            "  locals: Me.Example.org",
            "  users/cdb: +joe-, the longest wildcard that fits",
            f"  account: joe, uid {UID}, gid {GID}, home {joe}",
            '  dash: "-", extension: "LIST-x"',
            f"  file: {joe}/.qmail-list-x: not there",
            f"  file: {joe}/.qmail-list-default: it decides",
        ],
        "",
    )


def test_what_alias_has_is_told_with_the_reason_and_a_missing_file_is_a_failure(home: Home, joe: Path) -> None:
    code, lines, _ = find(home, "no-such-user")
    assert code == 100
    why = "users/cdb has nothing for it, and no user in passwd who takes mail"
    assert lines[3] == f"  alias/: nobody else has it ({why})"
    assert lines[-1] == "  failure: no mailbox here by that name"
    Path(home.alias, ".qmail-default").write_text("./Maildir/\n")
    assert find(home, "no-such-user")[0] == 0


@pytest.mark.parametrize(
    ("address", "code", "last"),
    [
        ("adm", 111, "deferral: not allowed to perform deliveries as root"),
        ("gone", 111, "deferral: home: no such file or directory"),
        ("joe@far.example", 100, "failure: it is remote, so no user here has it"),
        ("joe-a@virtual.example", 100, "failure: no mailbox here by that name"),
        ("@me.example.org", 0, "nobody: mail for it is thrown away"),
    ],
)
def test_the_exit_code_says_what_would_become_of_mail(
    home: Home, joe: Path, address: str, code: int, last: str
) -> None:
    Path(home.control, "virtualdomains").write_text("virtual.example:joe-v\n")
    found, lines, errors = find(home, address)
    assert (found, errors) == (code, "") and lines[-1].startswith(f"  {last}"), lines


def test_an_address_that_an_lmtp_server_has_is_told_with_its_route(home: Home, joe: Path) -> None:
    Path(home.control, "virtualdomains").write_text("virtual.example:joe-v\n")
    Path(home.control, "localroutes").write_text("virtual.example:lmtp:/run/dovecot/lmtp\n")
    code, lines, errors = find(home, "ann@virtual.example")
    line = "  failure: an LMTP server takes its mail (localroutes: lmtp:/run/dovecot/lmtp), so no user here has it"
    assert (code, lines[-1], errors) == (100, line, "")
    assert find(home, "@me.example.org")[0] == 0


def test_a_damaged_users_cdb_is_a_deferral(home: Home, joe: Path) -> None:
    Path(home.users, "cdb").write_bytes(b"short")
    code, lines, _ = find(home, "joe-x")
    assert code == 111 and lines[-1].startswith("  deferral: Trouble reading users/cdb: it is damaged: it has 5 bytes")


def test_where_the_suite_runs_as_a_user_the_mail_of_others_is_told_as_a_deferral(home: Home, joe: Path) -> None:
    need_root()
    Path(home.alias, ".qmail-default").write_text("./Maildir/\n")
    for path in (home.queue, home.alias):
        os.chown(path, 12346, 12346)
    # Not account `queue`, for which root would start the suite.
    code, lines, _ = find(home, "joe-x")
    assert code == 111 and lines[-1] == "  deferral: queue-local runs as uid 12346, who cannot deliver to others"
    assert find(home, "info")[0] == 0
