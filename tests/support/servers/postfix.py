"""A real Postfix that receives: an instance of its own in a directory of its own, on a loopback port, as root.

    with Postfix() as postfix:                        # no TLS, no AUTH, takes mail for everybody
        home.route_all_to(postfix.port)
        ...
        [stored] = postfix.wait_for(1)                # Stored(sender, recipient, content)
        assert "status=sent" in postfix.log()

Every recipient's mail goes into one Maildir. Options, all by name:

    certificate=PATH, key=PATH    STARTTLS with them, and implicit TLS on `tls_port`; PEM files
    users={"name": "password"}    AUTH (SCRAM, CRAM-MD5, PLAIN, LOGIN) as name@postfix.example; without it none
    size_limit=BYTES              message_size_limit; default 100 MB
    main=["name = value", ...]    further lines of main.cf, the last one counts
    master=["...", ...]           further lines of master.cf
    smtpd_options=["name=value"]  options of the service on `port` alone
    address="127.0.0.1"           what to listen at

Starting takes one to two seconds, so share one among the tests of a file (a module's fixture). Anything that it
does not relay, it takes: who is to be refused needs an access rule in `main`, such as
`smtpd_recipient_restrictions = check_recipient_access inline:{no@b.example=REJECT}, permit`.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from support.processes.suite import wait_until
from support.servers.ports import free_port
from support.tools import need, need_root

REALM = "postfix.example"

# What virtual(8) and smtpd(8) put before a message.
_ADDED = re.compile(
    rb"Return-Path: <(?P<sender>[^\n]*)>\nX-Original-To: (?P<recipient>[^\n]*)\nDelivered-To: [^\n]*\n"
    rb"Received: [^\n]*\n(?:[ \t][^\n]*\n)*"
)

# With a max_use of 100, postlogd would end and be started again by master all the time. Master logs, too: if the socket
# of postlogd is full while there is none, it might wait for what only it can start.
_MAIN = """\
compatibility_level = 3.6
queue_directory = {top}/queue
data_directory = {top}/data
maillog_file = {top}/log
maillog_file_prefixes = /
inet_interfaces = all
inet_protocols = all
myhostname = {realm}
mydestination =
alias_maps =
alias_database =
virtual_mailbox_domains = static:all
virtual_mailbox_base = {top}/mail
virtual_mailbox_maps = static:Maildir/
virtual_mailbox_limit = 0
virtual_uid_maps = static:65534
virtual_gid_maps = static:65534
local_header_rewrite_clients =
mynetworks =
smtpd_recipient_restrictions = permit
message_size_limit = {size_limit}
smtpd_client_connection_count_limit = 0
default_process_limit = 300
max_use = 1000000
max_idle = 1h
"""

_MASTER = """\
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
proxymap unix - - n - - proxymap
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
virtual unix - n n - - virtual
anvil unix - - n - 1 anvil
postlog unix-dgram n - n - 1 postlogd
"""

_TLS = """\
smtpd_tls_security_level = may
smtpd_tls_cert_file = {certificate}
smtpd_tls_key_file = {key}
smtpd_tls_loglevel = 1
smtpd_tls_received_header = yes
"""

_SASL = """\
smtpd_sasl_auth_enable = yes
smtpd_sasl_local_domain = {realm}
smtpd_sasl_security_options = noanonymous
"""


class Stored(NamedTuple):
    """One message in the Maildir: envelope as bytes, content with LF line ends, less the lines that Postfix added."""

    sender: bytes
    recipient: bytes
    content: bytes


class Postfix:
    """Runs from `with` on. `port` takes SMTP, `tls_port` SMTP under TLS (0 without a certificate)."""

    def __init__(
        self,
        *,
        certificate: Path | None = None,
        key: Path | None = None,
        users: Mapping[str, str] | None = None,
        size_limit: int = 100_000_000,
        main: Iterable[str] = (),
        master: Iterable[str] = (),
        smtpd_options: Iterable[str] = (),
        address: str = "127.0.0.1",
    ) -> None:
        need_root()
        self._command = need("postfix")
        # Its daemons become the user postfix, who must be able to walk there.
        self._top = Path(tempfile.mkdtemp(prefix="queue-suite-postfix-"))
        self._top.chmod(0o755)
        for name, owner in (("etc", "root"), ("queue", "root"), ("data", "postfix"), ("mail", "nobody")):
            (self._top / name).mkdir()
            shutil.chown(self._top / name, owner)
        self.port = free_port(address)
        self.tls_port = 0
        lines = [_MAIN.format(top=self._top, realm=REALM, size_limit=size_limit)]
        services = [f"{address}:{self.port} inet n - n - - smtpd", *[f"  -o {option}" for option in smtpd_options]]
        if certificate is not None:
            self.tls_port = free_port(address)
            lines.append(_TLS.format(certificate=certificate, key=key or certificate))
            services.append(f"{address}:{self.tls_port} inet n - n - - smtpd\n  -o smtpd_tls_wrappermode=yes")
        if users:
            lines.append(_SASL.format(realm=REALM))
            self._add_users(users)
        (self._top / "etc" / "main.cf").write_text("\n".join([*lines, *main, ""]))
        (self._top / "etc" / "master.cf").write_text("\n".join([*services, _MASTER, *master, ""]))
        self._wait_at = (address, self.port)

    def __enter__(self) -> Self:
        try:
            self._run("start")
            # master listens before it says that it has started; its greeting shows that smtpd works.
            with socket.create_connection(self._wait_at, timeout=30) as connection:
                assert connection.recv(4) == b"220 ", self.log()
            # postlogd runs as well, and reads.
            wait_until(lambda: "daemon started" in self.log(), 30, "Postfix's log")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if bad := [line for line in self.log().splitlines() if re.search(r" (fatal|panic): |throttling", line)]:
            # pytest shows it if the test has failed.
            sys.stderr.write("\n".join(["Postfix's log:", *bad[:20], ""]))
        try:
            self._run("stop", check=False)
        except subprocess.TimeoutExpired:
            # What it was told is not of interest any more.
            master = int((self._top / "queue" / "pid" / "master.pid").read_text())
            with suppress(ProcessLookupError):
                os.killpg(os.getpgid(master), signal.SIGKILL)
        shutil.rmtree(self._top)

    def log(self) -> str:
        """Return its log so far."""
        try:
            return (self._top / "log").read_text(errors="backslashreplace")
        except FileNotFoundError:
            return ""

    def messages(self) -> list[Stored]:
        """Return the messages in the Maildir, in no order."""
        return [_unpack(path.read_bytes()) for path in self._top.glob("mail/Maildir/new/*")]

    def wait_for(self, count: int, seconds: float = 60) -> list[Stored]:
        """Return the messages, once there are `count`."""
        deadline = time.monotonic() + seconds
        while len(found := self.messages()) < count:
            assert time.monotonic() < deadline, f"only {len(found)} messages\n{self.log()}"
            time.sleep(0.02)
        return found

    def settle(self, seconds: float = 60) -> list[Stored]:
        """Return the messages, once its queue is empty."""
        deadline = time.monotonic() + seconds
        while any(path.is_file() for name in ("incoming", "active", "deferred") for path in self._queued(name)):
            assert time.monotonic() < deadline, f"its queue is not empty\n{self.log()}"
            time.sleep(0.02)
        return self.messages()

    def clear(self) -> None:
        """Empty the Maildir, between tests."""
        for path in self._top.glob("mail/Maildir/new/*"):
            path.unlink()

    def _queued(self, name: str) -> list[Path]:
        return list((self._top / "queue" / name).rglob("*"))

    def _add_users(self, users: Mapping[str, str]) -> None:
        # Where Debian's Postfix looks for the application's file of Cyrus SASL.
        directory = self._top / "etc" / "sasl"
        directory.mkdir()
        database = directory / "sasldb2"
        for name, password in users.items():
            command = [need("saslpasswd2"), "-p", "-c", "-f", str(database), "-u", REALM, name]
            subprocess.run(command, input=password.encode(), check=True, capture_output=True, timeout=60)
        shutil.chown(database, "postfix")
        (directory / "smtpd.conf").write_text(
            f"pwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: {database}\n"
            "mech_list: SCRAM-SHA-256 SCRAM-SHA-1 CRAM-MD5 PLAIN LOGIN\n"
        )

    def _run(self, verb: str, check: bool = True) -> None:
        command = [self._command, "-c", str(self._top / "etc"), verb]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
        assert done.returncode == 0 or not check, f"{done.stderr!r}\n{self.log()}"


def _unpack(data: bytes) -> Stored:
    found = _ADDED.match(data)
    assert found is not None, data[:500]
    return Stored(found["sender"], found["recipient"], data[found.end() :])
