"""What deliveries go by: one reading of the control files, and what is made from it."""

from queue_base.home import Home
from queue_remote.order import Target
from queue_remote.route import Router
from queue_remote.settings import Settings, read_settings
from queue_remote.tls import TlsPolicies
from queue_wire.smtp_auth import Credentials


class Setup:
    """The settings, and the routes and TLS policies that they make."""

    __slots__ = ("policies", "router", "settings")

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.router = Router(settings)
        self.policies = TlsPolicies(settings, self.router)

    def credentials(self, nexthop: bytes, target: Target) -> Credentials | None:
        """Return what AUTH is done with at a target, None for no AUTH."""
        return None


def read_setup(home: Home) -> Setup:
    """Return what the control files make. Raises Temporary, naming the file that cannot be read or parsed."""
    return Setup(read_settings(home))
