"""What deliveries go by: one reading of the control files, and what is made from it."""

from queue_base.home import Home
from queue_remote.message.converting import Conversions
from queue_remote.message.scanning import Scans
from queue_remote.message.signing import Signing
from queue_remote.route.order import Target
from queue_remote.route.route import Route, Router
from queue_remote.settings import SEND, Settings, read_settings
from queue_remote.tls.policy import TlsPolicies
from queue_remote.tls.sts import StsCache
from queue_smtp.auth import Credentials


class Setup:
    """The settings, and the routes and TLS policies that they make."""

    __slots__ = ("conversions", "policies", "router", "scans", "settings", "signing")

    def __init__(self, settings: Settings, sts: StsCache, conversions: Conversions) -> None:
        self.settings = settings
        self.conversions = conversions
        self.router = Router(settings)
        self.policies = TlsPolicies(settings, self.router, sts)
        self.signing = Signing(settings.keyring)
        self.scans = Scans(settings.long_lines != SEND)

    def credentials(self, nexthop: bytes, route: Route, target: Target) -> Credentials | None:
        """Return what AUTH is done with at a target, None for no AUTH. Raises Unroutable where it cannot be now."""
        return self.settings.logins.find(nexthop, route.relayed, target)

    def alerts(self) -> list[str]:
        """Return what a person should know of these control files: mail is deferred, or goes astray, because of it."""
        found = [f"unable to sign for {fault}; mail of that domain is deferred" for fault in self._faults()]
        fault = self.settings.logins.fault
        if fault is not None:
            found.append(f"unable to use control/smtpauth: {fault}; mail that needs it is deferred")
        if self.settings.strays:
            # Passwords may be in it, as some patches of qmail have them.
            line = self.settings.strays[0]
            more = f" (nor have {len(self.settings.strays) - 1} more)" if self.settings.strays[1:] else ""
            what = f"has no colon{more} and counts for nothing; a relay for all mail is :relay"
            found.append(f"control/smtproutes line {line} {what}")
        return found

    def _faults(self) -> list[str]:
        return list(self.settings.keyring.faults.values())


def read_setup(home: Home, sts: StsCache, conversions: Conversions) -> Setup:
    """Return what the control files make. Raises Temporary, naming the file that cannot be read or parsed.

    MTA-STS policies outlive the control files: each counts for as long as it says. So do messages that are converted.
    """
    return Setup(read_settings(home), sts, conversions)
