"""The control files as `queuectl config` shows them: what is in force, the default, and where the value comes from."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from queue_admin.messages.admin_client import QUERY_WAIT, connect
from queue_admin.metrics.smtpd_client import ask_settings
from queue_admin.printable import visible
from queue_admin.settings.control_faults import find_unusable
from queue_base.control import read_control
from queue_base.errors import Failure, Temporary
from queue_base.home import Home
from queue_wire.admin.settings import unpack_in_force
from queue_wire.admin.socket import NEWS, SETTINGS, Request, Response
from queue_wire.control.control_file import ControlFile, fingerprint, shown_value
from queue_wire.control.lines import unpack_line
from queue_wire.control.registry import BY_NAME, FILES
from queue_wire.format_error import FormatError

# Of one file: the check sum and the value that each daemon which reported it has in force.
Running = dict[str, list[tuple[str, str]]]


class Setting(NamedTuple):
    """A control file and its value in force.

    `source` is `default`, `file`, or `running`: a daemon has another value in force than the file now says. `pending`
    is then the value of the file, None otherwise. `trouble` is why the file cannot be used, empty if it can: the value
    is then that of its last contents which a daemon has in force, else what counts without it.
    """

    file: ControlFile[Any]
    value: str
    source: str
    pending: str | None = None
    trouble: str = ""

    @property
    def differs(self) -> bool:
        """Whether the value is not the default."""
        return self.source != "default" or self.pending is not None or bool(self.trouble)

    def facts(self) -> dict[str, object]:
        """Return the object for --format json."""
        return {
            "name": self.file.name,
            "value": self.value,
            "default": plain(self.file.default),
            "range": self.file.range or None,
            "shape": self.file.shape,
            "source": self.source,
            "pending": self.pending,
            "trouble": self.trouble or None,
            "what": plain(self.file.what),
            "readers": list(self.file.readers),
            "read": self.file.read,
        }


def plain(text: str) -> str:
    """Return a text of the registry without its backquotes."""
    return text.replace("`", "")


def ask_running(home: Home) -> tuple[Running, str]:
    """Return what the running daemons have in force, of all queues, and why that is not known; empty if it is."""
    together: Running = {}
    whys = []
    for one in home.each():
        found, why = _ask_queue(one)
        for name, values in found.items():
            together.setdefault(name, []).extend(values)
        if why:
            whys.append(why if home.is_chosen else f"queue {one.name}: {why}")
    try:
        processes, silent = ask_settings(home, False)
    except Failure as error:
        processes, silent = [], [str(error)]
    for each in processes:
        for name, check, value in each.files:
            together.setdefault(name, []).append((check, value))
    whys += [visible(trouble.encode("utf-8", "surrogateescape")) for trouble in silent]
    return together, "; ".join(whys)


def _ask_queue(home: Home) -> tuple[Running, str]:
    try:
        client = connect(home, QUERY_WAIT)
        if client is None:
            return {}, "queue-send does not run; these values are in force at its start"
        try:
            response = client.ask(Request(SETTINGS, b"", []))
        finally:
            client.close()
        found = running_in(response)
    except (Failure, FormatError) as error:
        return {}, f"what is in force is not known: {error}"
    return found, ""


def running_in(response: Response) -> Running:
    """Return what the daemons have in force by a response of queue-send. Raises FormatError."""
    found: Running = {}
    for note in response.notes:
        if note.letter == NEWS:
            for name, check, value in unpack_in_force(note.text.partition(b"\n")[2]).files:
                found.setdefault(name, []).append((check, value))
    return found


def read_settings(
    home: Home, running: Running, names: Iterable[str], warn: Callable[[str], None]
) -> Iterator[Setting]:
    """Yield the settings of these control files, or of all if no names are given.

    If queue-remote cannot be asked what can be used, that is said to `warn`.
    """
    wanted = set(names) or BY_NAME.keys()
    faults = {}
    try:
        for fault in find_unusable(home, wanted):
            faults[fault.name] = fault.text()
    except Temporary as error:
        warn(str(error))
    try:
        host = unpack_line(read_control(home, "me") or b"").decode("ascii", "backslashreplace")
    except Temporary:
        host = ""
    for file in FILES:
        if file.name in wanted:
            yield _setting(home, file, running.get(file.name, []), host, faults.get(file.name, ""))


def _setting(home: Home, file: ControlFile[Any], running: list[tuple[str, str]], host: str, trouble: str) -> Setting:
    def shown(value: str) -> str:
        if value != "default":
            return value
        return f"{host} (me)" if file.default == "`me`" and host else plain(file.default)

    try:
        data = read_control(home, file.name)
    except Temporary:
        data = None
    value = shown(shown_value(file, data))
    if trouble and not running:
        # What no daemon has in force: queue-send takes the default when it starts, and others no mail.
        alone = {"queue-send", "queue-ondemand"}.issuperset(file.readers)
        return Setting(file, shown("default") if alone else "not usable", "default" if alone else "file", None, trouble)
    for check, in_force in running:
        # A daemon may have taken what is wrong at its start, without the lines that are.
        if check != fingerprint(file, data) or (trouble and data is None):
            return Setting(file, shown(in_force), "running", None if trouble else value, trouble)
    return Setting(file, value, "default" if data is None else "file", None, trouble)
