"""queue-smtpd started by root: it is account `queued`, and a process that stays root reads keys that only root can.

Run by tests/admin/test_accounts.py inside a mount namespace whose /etc is private, as root.
"""

import grp
import os
import pwd
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.accounts import SMTPD_ACCOUNT
from queue_base.home import Home
from support.inject.injectors import shared_home
from support.processes.suite import program, wait_until
from support.servers.certificate import make_certificate
from support.smtpd.smtpd_daemon import SmtpdDaemon


@pytest.fixture
def keys() -> Iterator[Path]:
    """Yield a directory that only root can read."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.fixture
def smtpd_home(keys: Path) -> Iterator[Home]:
    try:
        pwd.getpwnam(SMTPD_ACCOUNT)
    except KeyError:
        subprocess.run(["useradd", "--system", "--user-group", SMTPD_ACCOUNT], check=True, timeout=60)
    with shared_home() as home:
        certificate, key = make_certificate(keys)
        Path(home.control, "smtpdcert").write_text(f":{certificate} {key}\n")
        Path(home.control, "processessmtpd").write_text("2\n")
        yield home


def shows(daemon: SmtpdDaemon, name: bytes) -> bool:
    with daemon.tls() as client:
        return name in (client.getpeercert(True) or b"")


def test_a_key_that_only_root_can_read_is_used_and_the_server_is_not_root_and_has_the_groups_of_its_account(
    smtpd_home: Home, keys: Path
) -> None:
    subprocess.run(["groupadd", "--system", "filter9"], check=True, timeout=60)
    subprocess.run(["usermod", "--append", "--groups", "filter9", SMTPD_ACCOUNT], check=True, timeout=60)
    groups = set(os.getgrouplist(SMTPD_ACCOUNT, pwd.getpwnam(SMTPD_ACCOUNT).pw_gid))
    assert grp.getgrnam("filter9").gr_gid in groups
    queued = pwd.getpwnam(SMTPD_ACCOUNT).pw_uid
    with SmtpdDaemon(smtpd_home, ("submissions",)) as daemon:
        assert shows(daemon, b"raw.example")
        pid = daemon.process.pid
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        uids = [int(Path(f"/proc/{each}/status").read_text().partition("Uid:")[2].split()[0]) for each in children]
        assert sorted(uids) == [0, queued, queued]
        for child in (each for each, uid in zip(children, uids, strict=True) if uid == queued):
            found = Path(f"/proc/{child}/status").read_text().partition("Groups:")[2].partition("\n")[0]
            assert {int(word) for word in found.split()} == groups
        kept = os.stat(smtpd_home.greylist)
        assert (kept.st_uid, kept.st_mode & 0o777) == (queued, 0o700)
        new = keys / "new"
        new.mkdir()
        certificate, key = make_certificate(new, "new.example")
        assert key.stat().st_mode & 0o777 == 0o600 and keys.stat().st_mode & 0o777 == 0o700
        key.replace(keys / "key.pem")
        certificate.replace(keys / "certificate.pem")
        daemon.process.send_signal(signal.SIGHUP)
        # Both processes have it.
        wait_until(lambda: all(shows(daemon, b"new.example") for _ in range(8)), 60, "the new certificate")
        keeper = children[uids.index(0)]
        keeper_end = os.pidfd_open(keeper)
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(60) == 0
        # The pidfd of a process that has ended is readable.
        assert select.select([keeper_end], [], [], 60)[0]
        os.close(keeper_end)


def test_config_check_says_that_the_server_may_not_read_the_users(smtpd_home: Home) -> None:
    def check() -> str:
        words = [*program("queuectl"), "--home", smtpd_home.path, "config", "check"]
        return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False).stdout

    users = Path(smtpd_home.control, "smtpdusers")
    users.touch()
    users.chmod(0o640)
    os.chown(users, 0, 0)
    why = "account queued may not read it, so nobody can authenticate; chgrp queued and chmod 640 allow it"
    assert f"control/smtpdusers: {why}\n" in check()
    os.chown(users, 0, pwd.getpwnam(SMTPD_ACCOUNT).pw_gid)
    assert check() == ""
