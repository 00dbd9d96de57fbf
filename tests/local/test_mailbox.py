"""Whose mailbox an address is."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base import users
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_base.users import alias_account, find_user, passwd_entry, takes_mail
from queue_wire.mailbox import NAME_MAX, Account, break_name, find_mailbox

ALIAS = Account("alias", 7790, 2108, "/var/queue/alias")
USERS = {
    name: Account(name.decode(), 1000, 1000, f"/home/{name.decode()}") for name in (b"joe", b"joe-list", b"a" * 31)
}


def found(local: bytes) -> tuple[str, bytes, bytes]:
    mailbox = find_mailbox(local, USERS.get, lambda: ALIAS)
    return mailbox.account.name, mailbox.dash, mailbox.extension


@pytest.mark.parametrize(
    ("local", "result"),
    [
        (b"joe", ("joe", b"", b"")),
        (b"JOE", ("joe", b"", b"")),
        (b"joe-x", ("joe", b"-", b"x")),
        (b"Joe-X.Y", ("joe", b"-", b"X.Y")),
        (b"joe-", ("joe", b"-", b"")),
        (b"joe-list", ("joe-list", b"", b"")),
        (b"joe-list-a-b", ("joe-list", b"-", b"a-b")),
        (b"joe-lists", ("joe", b"-", b"lists")),
        (b"jo", ("alias", b"-", b"jo")),
        (b"Info-Desk", ("alias", b"-", b"Info-Desk")),
        (b"-joe", ("alias", b"-", b"-joe")),
        (b"-", ("alias", b"-", b"-")),
        (b"a" * 31, ("a" * 31, b"", b"")),
        (b"a" * 32, ("alias", b"-", b"a" * 32)),
        (b"joe-" + b"x" * 900, ("joe", b"-", b"x" * 900)),
    ],
)
def test_the_longest_user_name_before_a_dash_wins_and_alias_has_the_rest(
    local: bytes, result: tuple[str, bytes, bytes]
) -> None:
    assert found(local) == result


@given(st.binary(min_size=1, max_size=80))
def test_only_names_of_a_user_s_length_are_looked_up_and_each_part_is_kept(local: bytes) -> None:
    for name, dash, extension in break_name(local):
        assert 0 < len(name) <= NAME_MAX and name == name.lower()
        assert (name + dash + extension).lower() == local.lower()
        assert local.endswith(dash + extension)


def test_a_lookup_in_trouble_is_not_an_unknown_user() -> None:
    def broken(name: bytes) -> Account | None:
        raise Temporary("no directory server")

    with pytest.raises(Temporary, match="no directory server"):
        find_mailbox(b"joe", broken, lambda: ALIAS)


def test_a_user_takes_mail_only_in_a_home_of_his_own(tmp_path: Path) -> None:
    uid = tmp_path.stat().st_uid or 4711
    os.chown(tmp_path, uid, -1)
    account = Account("joe", uid, 1, str(tmp_path))
    assert takes_mail(account) is account
    assert takes_mail(Account("joe", uid + 1, 1, str(tmp_path))) is None
    assert takes_mail(Account("joe", uid, 1, f"{tmp_path}/missing")) is None
    assert takes_mail(Account("joe", uid, 1, "relative")) is None
    assert takes_mail(None) is None


def test_root_takes_no_mail() -> None:
    root = passwd_entry(b"root")
    assert root is not None and (root.uid, root.home) == (0, "/root")
    assert find_user(b"root") is None


@pytest.mark.parametrize("name", [b"no such user", b"\xff\xfe", b"../../etc", b"x" * 1000])
def test_a_name_that_nobody_has_is_nobody(name: bytes) -> None:
    assert passwd_entry(name) is None


def test_alias_belongs_to_whoever_owns_the_directory(tmp_path: Path) -> None:
    (tmp_path / "alias").mkdir()
    account = alias_account(Home(str(tmp_path)))
    status = (tmp_path / "alias").stat()
    assert (account.uid, account.gid, account.home) == (status.st_uid, status.st_gid, f"{tmp_path}/alias")


def test_a_home_without_alias_defers(tmp_path: Path) -> None:
    with pytest.raises(Temporary, match=r"Unable to find alias user.*/alias: no such file"):
        alias_account(Home(str(tmp_path)))


def test_alias_gets_nothing_while_no_user_at_all_can_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "alias").mkdir()
    monkeypatch.setattr(users, "passwd_entry", lambda name: None)
    with pytest.raises(Temporary, match="not even root is found"):
        alias_account(Home(str(tmp_path)))
