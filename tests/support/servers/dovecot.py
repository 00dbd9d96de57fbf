"""A real Dovecot that takes mail by LMTP: an instance of its own in a directory of its own, as root.

    with Dovecot() as dovecot:
        home.control("localroutes", f":lmtp:{dovecot.socket}")
        ...
        assert dovecot.mailbox("joe") == [b"..."]      # contents of the mailbox, less what Dovecot put before them

Its users are joe, ann, full (whose quota takes no message) and broken (whose mailbox cannot be made), at d.example.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from support.processes.suite import wait_until
from support.servers.ports import free_port
from support.tools import need, need_file, need_root

_CONFIG = """\
base_dir = {top}/run
state_dir = {top}/run
log_path = {top}/log
protocols = lmtp
listen = 127.0.0.1
ssl = no
first_valid_uid = 1
mail_location = maildir:{top}/mail/%n
mail_plugins = quota
plugin {{
  quota = maildir:User quota
  quota_rule = *:storage=100M
}}
passdb {{
  driver = static
  args = nopassword=y
}}
userdb {{
  driver = passwd-file
  args = {top}/users
}}
service anvil {{
  client_limit = 500
}}
service lmtp {{
  unix_listener {top}/lmtp {{
    mode = 0666
  }}
  inet_listener lmtp {{
    address = 127.0.0.1
    port = {port}
  }}
}}
"""
_USERS = {"joe": "", "ann": "", "full": "userdb_quota_rule=*:bytes=10", "broken": "userdb_mail=maildir:/proc/none/x"}
_NOBODY = 65534


class Dovecot:
    """Runs from `with` on. `socket` is the path of its Unix socket, `port` its port; both take LMTP."""

    def __init__(self) -> None:
        need_root()
        need_file("/usr/lib/dovecot/lmtp")
        self._command = need("dovecot")
        # Its processes become other users, who must be able to walk there.
        self._top = Path(tempfile.mkdtemp(prefix="queue-suite-dovecot-"))
        self._top.chmod(0o755)
        for name, owner in (("run", 0), ("mail", _NOBODY)):
            (self._top / name).mkdir()
            shutil.chown(self._top / name, owner)
        self.socket = str(self._top / "lmtp")
        self.port = free_port("127.0.0.1")
        self._file = self._top / "dovecot.conf"
        self._file.write_text(_CONFIG.format(top=self._top, port=self.port))
        lines = [
            f"{name}@d.example::{_NOBODY}:{_NOBODY}::{self._top}/mail/{name}::{more}\n"
            for name, more in _USERS.items()
        ]
        (self._top / "users").write_text("".join(lines))

    def __enter__(self) -> Self:
        with (self._top / "output").open("wb") as output:
            # In the foreground: a Dovecot that goes to the background keeps its standard error open.
            self._master = subprocess.Popen(
                [self._command, "-F", "-c", str(self._file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )
        try:
            wait_until(self._listens, why="Dovecot's sockets")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        shutil.rmtree(self._top)

    def stop(self) -> None:
        """End it; its socket is gone then."""
        if self._master.poll() is None:
            # At TERM it waits up to 6 s for its processes. All are in its group, and have nothing to save.
            os.killpg(self._master.pid, signal.SIGKILL)
            self._master.wait()
        Path(self.socket).unlink(missing_ok=True)

    def _listens(self) -> bool:
        output = (self._top / "output").read_text(errors="backslashreplace")
        assert self._master.poll() is None, f"it has ended\n{output}\n{self.log()}"
        return Path(self.socket).exists() and "starting up" in self.log()

    def log(self) -> str:
        """Return its log so far."""
        path = self._top / "log"
        return path.read_text(errors="backslashreplace") if path.exists() else ""

    def mailbox(self, user: str) -> list[bytes]:
        """Return the messages in a mailbox from their Subject on, in no order."""
        found = [path.read_bytes() for path in (self._top / "mail" / user / "new").glob("*")]
        return [message[message.index(b"Subject:") :] for message in found]
