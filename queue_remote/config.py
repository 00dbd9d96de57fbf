"""The values of queue-remote's control files, read together and used together (queue_remote.setup says when).

A file that does not exist has its default, except `me`. smtpauth, dkim and arc name secrets, and have modules of their
own.
"""

import os

from queue_base.control_files import ControlValues
from queue_wire.control import registry
from queue_wire.control.choices import unpack_name
from queue_wire.control.lines import lines_without_colon
from queue_wire.control.ondemand import on_demand_routes
from queue_wire.control.smtproutes import Routes
from queue_wire.control.tlspolicy import TlsPolicy
from queue_wire.format_error import FormatError, LineError

# The values of longlines.
SEND, ENCODE, FAIL = b"send", b"encode", b"fail"


class RemoteConfig:
    """What is made of the control files, all `values` together.

    `routes` are those of smtproutes and ondemand together, `on_demand` those of ondemand. `tlspolicy` is None if there
    is no file. `strays` are the numbers of lines of smtproutes without a colon, which are ignored, as in qmail.
    """

    __slots__ = ("helohost", "job_seconds", "me", "on_demand", "routes", "strays", "tlspolicy", "values")

    def __init__(self, values: ControlValues) -> None:
        """Take one reading. Raises Temporary, naming the file that cannot be parsed."""
        self.values = values
        self.me = values.me
        try:
            name = unpack_name(values.me)
        except FormatError as error:
            raise values.unable_to_parse(registry.ME, LineError(1, str(error))) from error
        helohost = values[registry.HELOHOST]
        self.helohost = helohost._replace(default=helohost.default or name)
        self.on_demand = on_demand_routes(values[registry.ONDEMAND])
        self.routes: Routes = {**values[registry.SMTPROUTES], **self.on_demand}
        self.strays = lines_without_colon(values.contents["smtproutes"] or b"")
        self.tlspolicy = _policies(values)
        # The seconds of a job, from its beginning to the reply to DATA, or until it has no further address to try.
        self.job_seconds: float = values[registry.TIMEOUTCONNECT] + values[registry.TIMEOUTREMOTE]


def _policies(values: ControlValues) -> dict[bytes, TlsPolicy] | None:
    """Return the policies by key, None if there is no file. A relative path of a CA file is relative to control/."""
    policies = values[registry.TLSPOLICY]
    if policies is None:
        return None
    control = os.fsencode(values.home.control)
    return {
        key: policy._replace(ca=os.path.join(control, policy.ca)) if policy.ca else policy
        for key, policy in policies.items()
    }
