"""The control files in force, and what is made of them: router, TLS policies, logins, DKIM signing, ARC seals.

qmail-remote reads its control files for each delivery. The daemon checks once a second whether one has changed, and
reads them again then, or at once after HUP. If a file cannot be read or parsed, one alert is logged, and the values of
the last reading stay in force; if there was none, every job is deferred, and each job tries again.
"""

import os
import time

from queue_base.control import read_control
from queue_base.control_files import ControlFiles, ControlValues, kept_by
from queue_base.errors import Temporary, complain
from queue_base.home import Home
from queue_remote.config import SEND, RemoteConfig
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
from queue_wire.admin.settings import pack_in_force
from queue_wire.control.registry import LOCALROUTES, LONGLINES, RESOLVER

CHECK_SECONDS = 1.0
OF_SECRETS = ("smtpauth", "dkim", "arc")

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
        resolver, local_routes = config.values[RESOLVER], config.values[LOCALROUTES]
        self.router = Router(config.me, config.routes, resolver, local_routes, config.on_demand)
        self.tls_planner = TlsPlanner(config.tlspolicy, self.router, sts)
        self.signing = Signing(keyring)
        self.sealing = Sealing(arc, config.me, self.router)
        self.scans = Scans(config.values[LONGLINES] != SEND)

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


class SetupFiles(ControlFiles[Setup]):
    """The control files of queue-remote."""

    def __init__(self, home: Home, sts: StsCache, conversions: Conversions) -> None:
        def make(values: ControlValues) -> Setup:
            """Make a setup of the files, and of those that have secrets."""
            config = RemoteConfig(values)
            arc = read_arc_key(home, config.me)
            return Setup(config, read_logins(home), read_keyring(home), arc, sts, conversions)

        def take(name: str, error: Temporary) -> None:
            """Raise an error, unless another reader says it, or at the start a domain without a relay is concerned.

            Relays that were read before must not be lost by an error. Who reads the secrets says what is wrong there,
            and queue-ondemand what is wrong in `ondemand`.
            """
            if name not in OF_SECRETS and (
                name != "ondemand" or self.current is not None or b"relay" in (read_control(home, name) or b"")
            ):
                raise error

        super().__init__(home, kept_by("queue-remote"), make, take)


def read_setup(home: Home, sts: StsCache, conversions: Conversions) -> Setup:
    """Read the control files. Raises Temporary, naming the file that cannot be read or parsed.

    `sts` and `conversions` are kept when the control files are read again.
    """
    files = SetupFiles(home, sts, conversions)
    files.read()
    assert files.current is not None
    return files.current


class CurrentSetup:
    """Keeps the setup up to date for the daemon."""

    def __init__(self, home: Home, program: str) -> None:
        self._program = program
        self.conversions = Conversions()
        self._files = SetupFiles(home, StsCache(), self.conversions)
        self._paths = [f"{home.control}/{file.name}" for file in kept_by("queue-remote")]
        self._stamps: list[_Stamp | None] = []
        # The files that control/dkim and control/arc name.
        self._keys: list[str] = []
        self._checked = 0.0
        self._complained = False

    def get(self) -> Setup:
        """Return the setup for a job. Raises Temporary, naming the file, if the files could never be read so far."""
        now = time.monotonic()
        setup = self._files.current
        if setup is not None and now - self._checked < CHECK_SECONDS:
            return setup
        self._checked = now
        stamps = [*map(_stamp, self._paths), *map(_stamp, self._keys)]
        if setup is not None and not self._files.fault and stamps == self._stamps:
            return setup
        # The stamps are taken before the files are read, so that a change during the reading is noticed.
        self._stamps = stamps
        try:
            for change in self._files.read(again=True):
                complain(self._program, f"config {change}")
        except Temporary as error:
            if setup is None:
                raise
            self._warn_of(error, "the old values stay until it is mended")
            return setup
        setup = self._files.current
        assert setup is not None
        self._complained = False
        keys = [*setup.keyring.files, *setup.arc.files]
        if keys != self._keys:
            self._keys = keys
            self._stamps = [*stamps[: len(self._paths)], *map(_stamp, keys)]
        for alert in setup.alerts():
            complain(self._program, f"alert: {alert}")
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
        return pack_in_force(self._files.in_force())

    def complain(self, error: Temporary) -> None:
        """Log that the control files cannot be read, once until they can."""
        self._warn_of(error, "mail is deferred until it can be read")

    def _warn_of(self, error: Temporary, fate: str) -> None:
        if not self._complained:
            self._complained = True
            complain(self._program, f"alert: {error}; {fate}")


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    # st_ctime changes with mode and owner, which matter for files of secrets.
    return found.st_mtime_ns, found.st_ino, found.st_size, found.st_ctime_ns
