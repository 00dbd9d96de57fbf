"""The control files in force, and what is made of them: router, TLS policies, logins, DKIM signing, ARC seals.

qmail-remote reads its control files for each delivery. The daemon checks once a second whether one has changed, and
reads them again then, or at once after HUP. If a file cannot be read or parsed, one alert is logged, and the values of
the last reading stay in force; if there was none, every job is deferred, and each job tries again.
"""

import os
import time

from queue_base.control import check_modes, read_control, read_parsed, unable_to_parse
from queue_base.errors import Temporary, complain
from queue_base.home import Home
from queue_remote.config import FILES, SEND, RemoteConfig, read_config
from queue_remote.message.arc_key import ArcKey, read_arc_key
from queue_remote.message.conversions import Conversions
from queue_remote.message.dkim_keys import Keyring, read_keyring
from queue_remote.message.message_scan import Scans
from queue_remote.message.sealing import Sealing
from queue_remote.message.signing import Signing
from queue_remote.options import OptionChoices
from queue_remote.route.router import Router
from queue_remote.smtpauth import Logins, read_logins
from queue_remote.tls.mta_sts import StsCache
from queue_remote.tls.planner import TlsPlanner
from queue_wire.admin.settings import in_force, pack_in_force
from queue_wire.control.lines import lines_without_colon
from queue_wire.control.ondemand import unpack_ondemand
from queue_wire.control.registry import NO_COLON, describe_changes
from queue_wire.format_error import LineError

CHECK_SECONDS = 1.0

_Stamp = tuple[int, int, int, int]


class Setup:
    """One reading of the control files, and the objects made of it."""

    __slots__ = (
        *("arc", "config", "conversions", "keyring", "logins", "options", "router", "scans", "sealing", "signing"),
        "tls_planner",
    )

    def __init__(
        self,
        config: RemoteConfig,
        logins: Logins,
        keyring: Keyring,
        arc: ArcKey,
        sts: StsCache,
        conversions: Conversions,
    ) -> None:
        self.config = config
        self.logins = logins
        self.options = OptionChoices(config, logins)
        self.keyring = keyring
        self.arc = arc
        self.conversions = conversions
        self.router = Router(config.me, config.routes, config.resolver, config.local_routes, config.on_demand)
        self.tls_planner = TlsPlanner(config.tlspolicy, self.router, sts)
        self.signing = Signing(keyring)
        self.sealing = Sealing(arc, config.me, self.router)
        self.scans = Scans(config.long_lines != SEND)

    def alerts(self) -> list[str]:
        """Return what the administrator should correct in these control files."""
        faults = self.keyring.faults.values()
        found = [f"unable to sign for {fault}; mail of that domain is deferred" for fault in faults]
        if self.arc.fault is not None:
            found.append(f"unable to seal forwarded mail: {self.arc.fault}; it is sent without a seal")
        fault = self.logins.fault
        if fault is not None:
            found.append(f"unable to use control/smtpauth: {fault}; mail that needs it is deferred")
        if self.config.strays:
            # The line itself is not shown: some patches of qmail put passwords into smtproutes.
            line = self.config.strays[0]
            more = f" (nor have {len(self.config.strays) - 1} more)" if self.config.strays[1:] else ""
            what = f"has no colon{more} and has no effect; a relay for all mail is :relay"
            found.append(f"control/smtproutes line {line} {what}")
        return found


def read_setup(home: Home, sts: StsCache, conversions: Conversions) -> Setup:
    """Read the control files. Raises Temporary, naming the file that cannot be read or parsed.

    `sts` and `conversions` are kept when the control files are read again.
    """
    config = read_config(home)
    arc = read_arc_key(home, config.me)
    return Setup(config, read_logins(home), read_keyring(home), arc, sts, conversions)


class CurrentSetup:
    """Keeps the setup up to date for the daemon."""

    def __init__(self, home: Home, program: str) -> None:
        self._home = home
        self._program = program
        self.conversions = Conversions()
        self._sts = StsCache()
        self._setup: Setup | None = None
        self._contents: dict[str, bytes | None] = {}
        self._stamps: list[_Stamp | None] = []
        # The files that control/dkim and control/arc name.
        self._keys: list[str] = []
        self._checked = 0.0
        self._complained = False
        self._failed = False  # Whether the last reading failed,
        self._why = ""  # and why.

    def get(self) -> Setup:
        """Return the setup for a job. Raises Temporary, naming the file, if the files could never be read so far."""
        now = time.monotonic()
        if self._setup is None or now - self._checked >= CHECK_SECONDS:
            self._checked = now
            stamps = self._stat_files(self._keys)
            if self._setup is None or self._failed or stamps != self._stamps:
                # The stamps are taken before the files are read, so that a change during the reading is noticed.
                self._stamps = stamps
                try:
                    self._setup, self._failed = self._read(), False
                except Temporary as error:
                    self._why = str(error)
                    if self._setup is None:
                        raise
                    self._failed = True
                    self._warn_of(error, "the old values stay until it is mended")
                    return self._setup
                self._complained, self._why = False, ""
                keys = [*self._setup.keyring.files, *self._setup.arc.files]
                if keys != self._keys:
                    self._keys = keys
                    self._stamps = stamps[: len(FILES)] + self._stat_files(keys)[len(FILES) :]
                for alert in self._setup.alerts():
                    complain(self._program, f"alert: {alert}")
        return self._setup

    def _read(self) -> Setup:
        """Read the files, and print what has changed. Raises Temporary."""
        contents = {name: _contents(self._home, name) for name in FILES}
        if self._setup is not None:
            check_modes(self._home)
            if strays := lines_without_colon(contents["smtproutes"] or b""):
                # At the first reading it is ignored, with an alert, as in qmail.
                raise unable_to_parse(self._home, "smtproutes", LineError(strays[0], NO_COLON))
            # Relays that were read before must not be lost by an error.
            read_parsed(self._home, "ondemand", unpack_ondemand)
        setup = read_setup(self._home, self._sts, self.conversions)
        if self._setup is not None:
            for change in describe_changes(self._contents, contents):
                complain(self._program, f"config {change}")
        self._contents = contents
        return setup

    def reread(self) -> None:
        """Read the files now, and log a failure."""
        self._checked = -CHECK_SECONDS
        self._stamps = []
        try:
            self.get()
        except Temporary as error:
            self.complain(error)

    def in_force(self) -> bytes:
        """Return what is in force, and why the last reading was refused, if it was (queue_wire.admin.settings)."""
        return pack_in_force(in_force(self._contents, self._why))

    def complain(self, error: Temporary) -> None:
        """Log that the control files cannot be read, once until they can."""
        self._warn_of(error, "mail is deferred until it can be read")

    def _warn_of(self, error: Temporary, fate: str) -> None:
        if not self._complained:
            self._complained = True
            complain(self._program, f"alert: {error}; {fate}")

    def _stat_files(self, keys: list[str]) -> list[_Stamp | None]:
        return [_stamp(path) for path in [*(f"{self._home.control}/{name}" for name in FILES), *keys]]


def _contents(home: Home, name: str) -> bytes | None:
    """Return a control file for the comparison with the next reading; None if it cannot be read, as secrets may be."""
    try:
        return read_control(home, name)
    except Temporary:
        return None


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    # st_ctime changes with mode and owner, which matter for files of secrets.
    return found.st_mtime_ns, found.st_ino, found.st_size, found.st_ctime_ns
