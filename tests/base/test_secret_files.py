"""One rule for all files of secrets: who may own them, and who may read them."""

import os
from pathlib import Path

import pytest

from queue_base.errors import Temporary
from queue_base.home import Home
from queue_base.secret_files import read_srs_secrets
from queue_remote.message.dkim_keys import BadKey, KeyLine, read_key
from queue_remote.smtpauth import read_logins
from queue_smtpd.auth.password_file import PasswordFile
from support.queues.home import make_home
from support.servers.dkim_keys import DkimZone
from support.tools import need_root

KEY = DkimZone().ed25519("one@example.org")


def key(home: Home, path: str) -> str:
    try:
        read_key(home, path, KeyLine(b"example.org", b"one", b"key"))
    except BadKey as error:
        return str(error)
    return ""


def logins(home: Home, path: str) -> str:
    return read_logins(home).fault or ""


def passwords(home: Home, path: str) -> str:
    try:
        PasswordFile(home).refresh()
    except Temporary as error:
        return str(error)
    return ""


def srs(home: Home, path: str) -> str:
    try:
        read_srs_secrets(home)
    except Temporary as error:
        return str(error)
    return ""


READERS = {"smtpauth": logins, "smtpdusers": passwords, "srssecrets": srs, "dkim.pem": key}
CONTENTS = {"smtpauth": b"relay.example:ann:secret\n", "smtpdusers": b"", "srssecrets": b"x\n", "dkim.pem": KEY}


@pytest.mark.parametrize("name", READERS)
def test_a_file_of_secrets_is_used_only_if_nobody_else_can_use_it(tmp_path: Path, name: str) -> None:
    home = make_home(tmp_path / "home")
    path, fault = Path(home.control, name), READERS[name]
    path.write_bytes(CONTENTS[name])
    for mode in (0o600, 0o400, 0o640, 0o440, 0o700):
        path.chmod(mode)
        assert fault(home, str(path)) == "", oct(mode)
    for mode in (0o644, 0o604, 0o602, 0o601):
        path.chmod(mode)
        assert f"everybody can use it (mode {mode:04o}); chmod o= takes that away" in fault(home, str(path))
    for mode in (0o660, 0o620, 0o650):
        path.chmod(mode)
        assert f"its group can change it (mode {mode:04o}); chmod g-wx takes that away" in fault(home, str(path))


@pytest.mark.parametrize("name", READERS)
def test_a_file_of_secrets_belongs_to_us_and_to_a_group_of_ours(tmp_path: Path, name: str) -> None:
    need_root()
    home = make_home(tmp_path / "home")
    path, fault = Path(home.control, name), READERS[name]
    path.write_bytes(CONTENTS[name])
    path.chmod(0o640)
    os.chown(path, 0, 54321)
    said = fault(home, str(path))
    assert "gid 54321 can read it (mode 0640); its group should be that of queue/mess, or chmod g=" in said
    os.chown(f"{home.queue}/mess", -1, 54321)
    assert fault(home, str(path)) == ""
    path.chmod(0o600)
    os.chown(path, 54321, 0)
    assert "uid 54321 owns it; it should be root's, or that of the owner of control/" in fault(home, str(path))
    os.chown(home.control, 54321, -1)
    assert fault(home, str(path)) == ""


@pytest.mark.parametrize("name", READERS)
def test_the_group_of_queue_smtpd_may_read_its_users_and_no_other_secret(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_root()
    home = make_home(tmp_path / "home")
    path = Path(home.control, name)
    path.write_bytes(CONTENTS[name])
    path.chmod(0o640)
    os.chown(path, 0, 54321)
    monkeypatch.setattr("queue_base.secret_files.smtpd_group", lambda: 54321)
    assert ("gid 54321 can read it" in READERS[name](home, str(path))) is (name != "smtpdusers")
