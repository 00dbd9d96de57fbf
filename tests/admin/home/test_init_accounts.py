"""queuectl init as root: the accounts that it makes, and the queues of others that it refuses."""

import grp
import pwd
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from queue_admin import system_accounts as accounts
from queue_admin.home.create import create_home
from queue_admin.system_accounts import (
    choose_owner,
    ensure_accounts,
    ensure_alias_account,
    myself,
)
from queue_base.accounts import Owner
from queue_base.errors import Permanent
from queue_base.home import Home
from support.inject.qmail_queue import our_owner


class FakeSystem:
    """passwd and group databases that groupadd and useradd, as called, add to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups: dict[str, int] = {}
        self.users: dict[str, tuple[int, int]] = {}
        self.calls: list[list[str]] = []
        monkeypatch.setattr(grp, "getgrnam", lambda name: SimpleNamespace(gr_gid=self.groups[name]))
        monkeypatch.setattr(pwd, "getpwnam", self.getpwnam)
        monkeypatch.setattr(shutil, "which", lambda name, path: f"/sbin/{name}")
        monkeypatch.setattr(subprocess, "run", self.run)

    def getpwnam(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(pw_uid=self.users[name][0], pw_gid=self.users[name][1])

    def run(self, words: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        self.calls.append(words)
        if words[0].endswith("groupadd"):
            self.groups[words[-1]] = 900 + len(self.groups)
        else:
            self.users[words[-1]] = (900 + len(self.users), self.groups[words[words.index("--gid") + 1]])
        return subprocess.CompletedProcess(words, 0, b"", b"")


def test_missing_accounts_are_made_as_system_accounts_without_home_or_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    system = FakeSystem(monkeypatch)
    owner, made = ensure_accounts()
    assert (owner.uid, owner.gid) == (900, 900)
    # The daemons look at their start who queue-smtpd is, so it has its account before anybody wants it.
    assert made == ["group queue", "account queue", "account queuer", "group queued", "account queued"]
    user = ["/sbin/useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin"]
    user += ["--home-dir", "/nonexistent", "--gid"]
    assert system.calls == [
        ["/sbin/groupadd", "--system", "queue"], [*user, "queue", "queue"], [*user, "queue", "queuer"],
        ["/sbin/groupadd", "--system", "queued"], [*user, "queued", "queued"],
    ]  # fmt: skip


def test_accounts_that_are_there_are_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    system = FakeSystem(monkeypatch)
    ensure_accounts()
    system.calls.clear()
    assert ensure_accounts()[1] == []
    assert system.calls == []


def test_alias_gets_an_account_in_a_group_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, home = FakeSystem(monkeypatch), Home(str(tmp_path / "home"))
    monkeypatch.setattr(accounts, "myself", lambda: Owner(0, 0))
    queue, _ = ensure_accounts()
    system.calls.clear()
    found, made = ensure_alias_account(home, queue)
    assert made == ["group queuea", "account queuea"] and found.uid == system.users["queuea"][0] != queue.uid
    user = ["/sbin/useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin"]
    user += ["--home-dir", home.alias, "--gid", "queuea", "queuea"]
    assert system.calls == [["/sbin/groupadd", "--system", "queuea"], user]
    assert ensure_alias_account(home, queue)[1] == []


def test_qmail_s_alias_and_a_queue_of_one_s_own_need_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, home = FakeSystem(monkeypatch), Home(str(tmp_path))
    monkeypatch.setattr(accounts, "myself", lambda: Owner(0, 0))
    queue, _ = ensure_accounts()
    # Whoever owns it, it is not account queue.
    (tmp_path / "alias").mkdir()
    assert ensure_alias_account(home, queue) == (queue, [])
    (tmp_path / "alias").rmdir()
    assert ensure_alias_account(home, Owner(4711, 4711))[1] == []
    monkeypatch.setattr(accounts, "myself", lambda: Owner(4711, 4711))
    assert ensure_alias_account(home, Owner(4711, 4711))[1] == []
    assert "queuea" not in system.users


def test_an_alias_account_that_owns_the_queue_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = FakeSystem(monkeypatch)
    monkeypatch.setattr(accounts, "myself", lambda: Owner(0, 0))
    queue, _ = ensure_accounts()
    system.groups["queuea"], system.users["queuea"] = 950, (queue.uid, 950)
    with pytest.raises(Permanent, match="account queuea: it must exist, and be neither root nor the queue's"):
        ensure_alias_account(Home(str(tmp_path)), queue)


def test_the_smtp_server_s_account_must_not_be_of_the_group_that_reads_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = FakeSystem(monkeypatch)
    queue, _ = ensure_accounts()
    assert system.users["queued"][0] != queue.uid and system.users["queued"][1] != queue.gid
    system.users["queued"] = (system.users["queued"][0], queue.gid)
    with pytest.raises(Permanent, match="unable to use account queued: its group must not be queue's"):
        ensure_accounts()


def test_an_account_with_the_wrong_group_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    system = FakeSystem(monkeypatch)
    system.groups = {"queue": 900}
    system.users = {"queue": (900, 900), "queuer": (901, 901)}
    with pytest.raises(Permanent, match="account queuer"):
        ensure_accounts()


def test_what_useradd_says_when_it_fails_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSystem(monkeypatch)
    monkeypatch.setattr(subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, 1, b"", b"no space\n"))
    with pytest.raises(Permanent, match="unable to make account queue: groupadd: no space"):
        ensure_accounts()


def test_a_queue_of_qmails_is_refused_and_adopt_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, owner = Home(str(tmp_path / "home")), our_owner()
    create_home(home, owner, myself(), me="mail.example.org")
    system = FakeSystem(monkeypatch)
    system.users = {"qmailq": (owner.uid, owner.gid)}
    with pytest.raises(Permanent, match="queuectl adopt"):
        choose_owner(home, False)


def test_a_queue_keeps_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, owner = Home(str(tmp_path / "home")), Owner(our_owner().uid, our_owner().gid)
    create_home(home, owner, myself(), me="mail.example.org")
    FakeSystem(monkeypatch)
    found, made = choose_owner(home, False)
    assert (found.uid, found.gid, made) == (owner.uid, owner.gid, [])


def test_the_queue_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(str(tmp_path / "home"))
    create_home(home, myself(), myself(), me="mail.example.org")
    FakeSystem(monkeypatch)
    monkeypatch.setattr(accounts, "myself", lambda: Owner(12345, 12345))
    with pytest.raises(Permanent, match="not to you"):
        choose_owner(home, False)
