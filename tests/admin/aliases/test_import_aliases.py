"""queuectl import-aliases, run again and again on one alias/."""

import os
from pathlib import Path

import pytest

from queue_base.home import Home
from support.send.control import queuectl

PEOPLE = b"postmaster: root\nmailer-daemon: postmaster\nroot: Ann@far.example\n"


@pytest.fixture
def aliases(home: Home, tmp_path: Path) -> Path:
    """Return an alias file with the usual names."""
    Path(home.control, "locals").write_text("me.example.org\n")
    file = tmp_path / "aliases"
    file.write_bytes(PEOPLE)
    return file


def run(home: Home, file: Path, *words: str) -> tuple[int, str, str]:
    done = queuectl(home, "import-aliases", *words, str(file))
    return done.returncode, done.stdout, done.stderr


def names(home: Home) -> set[str]:
    return {path.name.removeprefix(".qmail-") for path in Path(home.alias).iterdir()}


def test_it_makes_replaces_and_removes_its_own_files(home: Home, aliases: Path) -> None:
    aliases.write_bytes(PEOPLE + b"info: ann@far.example\nold: x\n")
    assert run(home, aliases) == (0, f"{aliases}: 5 files written, 0 removed, 0 unchanged\n", "")
    assert names(home) == {"postmaster", "mailer-daemon", "root", "info", "old"}
    above, made = os.stat(home.alias), os.stat(f"{home.alias}/.qmail-info")
    assert (made.st_uid, made.st_gid, made.st_mode & 0o7777) == (above.st_uid, above.st_gid, 0o644)
    before = os.stat(f"{home.alias}/.qmail-root").st_ino
    aliases.write_bytes(PEOPLE + b"info: bob@far.example\n")
    assert run(home, aliases) == (0, f"{aliases}: 1 files written, 1 removed, 3 unchanged\n", "")
    assert Path(home.alias, ".qmail-info").read_bytes().endswith(b"yours\n&bob@far.example\n")
    assert names(home) == {"postmaster", "mailer-daemon", "root", "info"}
    assert os.stat(f"{home.alias}/.qmail-root").st_ino == before


def test_a_dry_run_shows_a_diff_and_changes_nothing(home: Home, aliases: Path) -> None:
    aliases.write_bytes(PEOPLE + b"info: ann\nold: x\n")
    run(home, aliases)
    aliases.write_bytes(PEOPLE + b"info: bob\nnew: carl\n")
    before = {path.name: path.read_bytes() for path in Path(home.alias).iterdir()}
    code, shown, _ = run(home, aliases, "--dry-run")
    assert code == 0 and f"{aliases}: 2 files would be written, 1 removed, 3 unchanged\n" in shown
    for line in ("--- alias/.qmail-info", "-&ann", "+&bob", "--- /dev/null", "+++ alias/.qmail-new", "-&x"):
        assert line in shown.splitlines()
    assert {path.name: path.read_bytes() for path in Path(home.alias).iterdir()} == before


def test_a_file_that_a_person_wrote_or_took_over_is_named_and_left(home: Home, aliases: Path) -> None:
    aliases.write_bytes(PEOPLE + b"info: ann\nsales: ann\n")
    Path(home.alias, ".qmail-info").write_bytes(b"&me\n")
    code, _, errors = run(home, aliases)
    assert code == 1
    assert (
        errors == f"queuectl: {home.alias}/.qmail-info was not made by import-aliases from {aliases}; left as it is\n"
    )
    taken = Path(home.alias, ".qmail-sales")
    taken.write_bytes(taken.read_bytes().partition(b"\n")[2])
    aliases.write_bytes(PEOPLE)
    assert run(home, aliases)[0] == 0
    assert names(home) >= {"info", "sales"} and Path(home.alias, ".qmail-info").read_bytes() == b"&me\n"


def test_a_link_in_alias_is_not_followed(home: Home, aliases: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"kept")
    Path(home.alias, ".qmail-root").symlink_to(other)
    code, _, errors = run(home, aliases)
    assert code == 1 and ".qmail-root was not made by import-aliases" in errors and other.read_bytes() == b"kept"


def test_what_cannot_be_expressed_is_named_by_line_and_keeps_its_file(
    home: Home, aliases: Path, tmp_path: Path
) -> None:
    members = tmp_path / "members"
    members.write_bytes(b"bob\n")
    aliases.write_bytes(PEOPLE + b"list: :include:%s\n" % bytes(members))
    assert run(home, aliases)[0] == 0
    members.unlink()
    code, shown, errors = run(home, aliases)
    assert (code, shown) == (1, f"{aliases}: 0 files written, 0 removed, 3 unchanged\n")
    assert f"queuectl: {aliases} line 4: list: unable to read {members}: no such file" in errors
    assert "list" in names(home)


def test_an_entry_for_an_account_says_where_its_mail_is_decided(home: Home, aliases: Path) -> None:
    # The assignment stands for any account that may receive mail.
    Path(home.path, "users").mkdir(exist_ok=True)
    Path(home.path, "users", "assign").write_text(f"=joe:joe:{os.geteuid() or 507}:100:/home/joe:::\n.\n")
    assert queuectl(home, "users", "build").returncode == 0
    aliases.write_bytes(PEOPLE + b"joe: \\joe, ann\n")
    code, _, errors = run(home, aliases)
    assert (code, errors) == (
        1,
        f"queuectl: {aliases} line 4: joe: its mail is account joe's: write /home/joe/.qmail; left out\n",
    )
    aliases.write_bytes(PEOPLE + b"joe: Joe\n")
    assert run(home, aliases)[::2] == (0, "")
    assert "joe" not in names(home)


def test_it_warns_of_addresses_that_nobody_reads_and_names_that_are_not_local(home: Home, aliases: Path) -> None:
    aliases.write_bytes(b"postmaster: ann\n")
    Path(home.control, "locals").write_text("other.example\n")
    code, _, errors = run(home, aliases)
    assert code == 0
    assert errors.splitlines() == [
        "queuectl: warning: nobody gets mail for mailer-daemon; give it an alias",
        "queuectl: warning: nobody gets mail for root; give it an alias",
        "queuectl: warning: addresses without a domain are not local: control/envnoathost is not in locals",
    ]


def test_without_the_file_there_is_nothing_to_import(home: Home, tmp_path: Path) -> None:
    code, _, errors = run(home, tmp_path / "none")
    assert code == 111 and f"unable to read {tmp_path}/none: no such file" in errors
