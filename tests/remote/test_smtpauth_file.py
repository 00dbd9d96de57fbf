"""control/smtpauth: what its lines say, who gets which credentials, and when the file is not used."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.errors import Temporary
from queue_base.home import Home
from queue_remote.route.order import Target
from queue_remote.route.unroutable import Unroutable
from queue_remote.smtpauth import Logins, read_logins, unpack_logins
from queue_smtp.auth import Credentials
from queue_wire.format_error import FormatError
from support.processes.refusals import value_or_refusal
from support.processes.remote_daemon import RemoteHome
from support.tools import need_root, need_shared_python

LINES = b"""# passwords
relay.example.net:ann:a:b:c
.Example.org clear:bob:pw with space
[2001:db8::1]:six:pw6
:all:pw*
"""

READ = """
import sys
from queue_remote.smtpauth import *
logins = read_logins(Home(sys.argv[1]))
try:
    logins.find(b"relay.example", False, Target(b"mx.example", "192.0.2.1", 25, False))
    print(logins.fault, "user")
except Unroutable:
    print(logins.fault, "refused")
"""


def relay(host: bytes, address: str = "192.0.2.1") -> Target:
    return Target(host, address, 25, False)


def user(logins: Logins, nexthop: bytes, relayed: bool, target: Target) -> bytes | None:
    found = logins.find(nexthop, relayed, target)
    return None if found is None else found.user


def test_passwords_may_hold_colons_and_spaces() -> None:
    assert unpack_logins(LINES) == {
        b"relay.example.net": Credentials(b"ann", b"a:b:c", False),
        b".example.org": Credentials(b"bob", b"pw with space", True),
        b"[2001:db8::1]": Credentials(b"six", b"pw6", False),
        b"": Credentials(b"all", b"pw*", False),
    }


@pytest.mark.parametrize(
    "line", [b"relay", b"relay:user", b"relay:user:", b"relay::pw", b"relay fast:u:pw", b"a b:u:pw"]
)
def test_a_line_that_says_something_else_is_refused_without_showing_it(line: bytes) -> None:
    with pytest.raises(FormatError, match="line 2") as caught:
        unpack_logins(b"# one\n" + line.replace(b"pw", b"hidden"))
    assert "hidden" not in str(caught.value)


@given(st.binary(max_size=60))
def test_no_file_raises_anything_but_a_format_error(data: bytes) -> None:
    value_or_refusal(unpack_logins, data)


def test_a_relay_is_known_by_its_name_then_by_the_nexthop_then_by_the_line_for_all() -> None:
    logins = Logins(unpack_logins(LINES))
    assert user(logins, b"mail.example.org", True, relay(b"Relay.Example.Net")) == b"ann"
    assert user(logins, b"mail.example.org", True, relay(b"other.example")) == b"bob"
    assert user(logins, b"x.example", True, relay(b"other.example")) == b"all"
    assert user(logins, b"x.example", True, relay(b"", "2001:db8::1")) == b"six"


def test_a_mail_exchanger_gets_a_password_only_by_the_nexthops_own_line() -> None:
    logins = Logins(unpack_logins(LINES))
    assert user(logins, b"mail.example.org", False, relay(b"mx.example")) == b"bob"
    assert user(logins, b"evil.example", False, relay(b"relay.example.net")) is None
    assert user(logins, b"evil.example", False, relay(b"mx.example")) is None


@pytest.fixture
def home(tmp_path: Path) -> Home:
    RemoteHome(tmp_path, smtpauth="relay.example:ann:secret")
    os.chmod(tmp_path / "control" / "smtpauth", 0o600)
    return Home(str(tmp_path))


def test_a_file_that_only_we_can_read_is_used(home: Home) -> None:
    assert user(read_logins(home), b"relay.example", False, relay(b"relay.example")) == b"ann"
    os.chmod(f"{home.control}/smtpauth", 0o640)
    assert user(read_logins(home), b"relay.example", False, relay(b"relay.example")) == b"ann"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o601, 0o660, 0o620])
def test_a_file_that_others_can_use_is_not_used_and_other_mail_goes_on(home: Home, mode: int) -> None:
    os.chmod(f"{home.control}/smtpauth", mode)
    logins = read_logins(home)
    assert f"{mode:04o}" in (logins.fault or "")
    with pytest.raises(Unroutable) as caught:
        logins.find(b"relay.example", False, relay(b"mx.example"))
    assert (caught.value.verdict[0], caught.value.scope) == (b"Z", b"m")
    assert logins.find(b"other.example", False, relay(b"mx.example")) is None


def test_a_file_of_another_owner_or_group_is_not_used(home: Home) -> None:
    need_root()
    path = f"{home.control}/smtpauth"
    os.chmod(path, 0o640)
    os.chown(path, 0, 65534)
    assert "gid 65534 can read it" in (read_logins(home).fault or "")
    os.chmod(path, 0o600)
    os.chown(path, 65534, 0)
    assert "uid 65534 owns it" in (read_logins(home).fault or "")


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (0o640, b"None user"),
        (0o600, b"we may not read it; its group should be that of queue/mess, with mode 0640 refused"),
    ],
)
def test_the_account_that_delivers_reads_a_file_of_roots_by_its_group_or_not_at_all(mode: int, said: bytes) -> None:
    need_root()
    python = need_shared_python()
    group = 54321
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        RemoteHome(home, smtpauth="relay.example:ann:secret")
        home.chmod(0o755)
        os.chown(home / "queue" / "mess", 0, group)
        path = home / "control" / "smtpauth"
        os.chown(path, 0, group)
        path.chmod(mode)
        paths = ":".join([str(Path(__file__).parents[2]), *sys.path])
        done = subprocess.run(
            [python, "-c", READ, directory],
            user=54322,
            group=group,
            extra_groups=[],
            env={"PYTHONPATH": paths},
            capture_output=True,
            timeout=30,
        )
    assert (done.stdout, done.stderr) == (said + b"\n", b"")


def test_no_file_means_no_auth_and_a_damaged_one_names_its_line(home: Home) -> None:
    Path(home.control, "smtpauth").write_text("nonsense secret\n")
    with pytest.raises(Temporary, match=r"control/smtpauth line 1: not nexthop:user:password$"):
        read_logins(home)
    os.unlink(f"{home.control}/smtpauth")
    assert read_logins(home).find(b"relay.example", True, relay(b"relay.example")) is None
