"""The control files of queue-todo, the rules of classification: read at start, and when queue-send passes on HUP.

A message is never classified by default rules: until the files can be read for the first time there are no rules. After
that, files that cannot be used leave the old rules in force.
"""

from queue_base.control_files import ControlFiles, kept_by, rules_of
from queue_base.home import Home
from queue_wire import logline
from queue_wire.admin.settings import InForce
from queue_wire.control.rewrite import Rules


class RuleFiles:
    """The files as they were read last; `rules` is None until they could be read."""

    def __init__(self, home: Home) -> None:
        self._files = ControlFiles(home, kept_by("queue-todo"), rules_of)

    @property
    def rules(self) -> Rules | None:
        """The rules that are in force."""
        return self._files.current

    def read(self) -> list[bytes]:
        """Read the files, and return lines for the log. Raises Temporary, and then nothing has changed.

        At the first time a line without a colon is ignored, and an empty `locals` means that no domain is local, as in
        qmail; each is an alert. Later both are refused.
        """
        first = self.rules is None
        changes = self._files.read(again=True)
        if first:
            return [logline.alert(f"queue-todo: {slip}") for slip in self._files.slips()]
        return [logline.config_change(change) for change in changes]

    def in_force(self) -> InForce:
        """Return what is in force, and why the last reading was refused, if it was."""
        return self._files.in_force()
