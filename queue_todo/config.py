"""The control files of queue-todo, the rules of classification: read at start, and when queue-send passes on HUP.

A message is never classified by default rules: until the files can be read for the first time there are no rules. After
that, files that cannot be used leave the old rules in force.
"""

from queue_base.control import check_modes, read_control, read_rules, unable_to_parse
from queue_base.home import Home
from queue_wire import logline
from queue_wire.admin.settings import InForce, in_force
from queue_wire.control.lines import lines_without_colon
from queue_wire.control.registry import EMPTY_LOCALS, NO_COLON, describe_changes
from queue_wire.control.rewrite import Rules
from queue_wire.format_error import LineError

NAMES = ("me", "locals", "percenthack", "envnoathost", "virtualdomains")


class RuleFiles:
    """The files as they were read last; `rules` is None until they could be read."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._contents: dict[str, bytes | None] = {}
        self.rules: Rules | None = None

    def read(self) -> list[bytes]:
        """Read the files, and return lines for the log. Raises Temporary, and then nothing has changed.

        At the first time a line without a colon is ignored, and an empty `locals` means that no domain is local, as in
        qmail; each is an alert. Later both are refused: they are what a write to a full disk, or a slip, leaves.
        """
        contents = {name: read_control(self._home, name) for name in NAMES}
        faults = _find_faults(contents)
        if self.rules is None:
            self.rules, self._contents = read_rules(self._home), contents
            return [
                logline.alert(f"queue-todo: unable to use {self._home.control}/{name} {fault}")
                for name, fault in faults
            ]
        check_modes(self._home)
        for name, fault in faults:
            raise unable_to_parse(self._home, name, fault)
        rules = read_rules(self._home)
        changes = describe_changes(self._contents, contents)
        self.rules, self._contents = rules, contents
        return [logline.config_change(change) for change in changes]

    def in_force(self, error: str = "") -> InForce:
        """Return what is in force; `error` is why the last reading was refused."""
        return in_force(self._contents, error)


def _find_faults(contents: dict[str, bytes | None]) -> list[tuple[str, LineError]]:
    """Return what qmail would accept and is probably a mistake, with the name of its file."""
    strays = lines_without_colon(contents["virtualdomains"] or b"")
    faults = [("virtualdomains", LineError(number, NO_COLON)) for number in strays[:1]]
    hosts = contents["locals"]
    if hosts is not None and not hosts.strip():
        faults.append(("locals", LineError(1, EMPTY_LOCALS)))
    return faults
