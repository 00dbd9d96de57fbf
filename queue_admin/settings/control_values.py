"""The control files as `queuectl config` shows them: what is in force, the default, and where the value comes from."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from queue_admin.messages.admin_client import QUERY_WAIT, connect
from queue_base.control import read_control
from queue_base.errors import Failure, Temporary
from queue_base.home import Home
from queue_wire.admin.settings import unpack_in_force
from queue_wire.admin.socket import NEWS, SETTINGS, Request, Response
from queue_wire.control.lines import unpack_line
from queue_wire.control.registry import FILES, ControlFile, fingerprint, shown_value
from queue_wire.format_error import FormatError

# Of one file: the check sum and the value that each daemon which reported it has in force.
Running = dict[str, list[tuple[str, str]]]


class Setting(NamedTuple):
    """A control file and its value in force.

    `source` is `default`, `file`, or `running`: a daemon has another value in force than the file now says. `pending`
    is then the value of the file, None otherwise. `trouble` is why the file cannot be read, empty if it can.
    """

    file: ControlFile
    value: str
    source: str
    pending: str | None = None
    trouble: str = ""

    @property
    def differs(self) -> bool:
        """Whether the value is not the default."""
        return self.source != "default" or self.pending is not None

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
    if home.is_chosen:
        return _ask_queue(home)
    together: Running = {}
    whys = []
    for one in home.each():
        found, why = _ask_queue(one)
        for name, values in found.items():
            together.setdefault(name, []).extend(values)
        if why:
            whys.append(f"queue {one.name}: {why}")
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


def read_settings(home: Home, running: Running, names: Iterable[str] = ()) -> Iterator[Setting]:
    """Yield the settings of these control files, or of all if no names are given."""
    wanted = set(names)
    try:
        host = unpack_line(read_control(home, "me") or b"").decode("ascii", "backslashreplace")
    except Temporary:
        host = ""
    for file in FILES:
        if not wanted or file.name in wanted:
            yield _setting(home, file, running.get(file.name, []), host)


def _setting(home: Home, file: ControlFile, running: list[tuple[str, str]], host: str) -> Setting:
    def shown(value: str) -> str:
        if value != "default":
            return value
        return f"{host} (me)" if file.default == "`me`" and host else plain(file.default)

    trouble = ""
    try:
        data = read_control(home, file.name)
    except Temporary as error:
        data, trouble = None, str(error)
    value = "not readable" if trouble else shown(shown_value(file, data))
    for check, in_force in running:
        if not trouble and check != fingerprint(file, data):
            return Setting(file, shown(in_force), "running", value)
    source = "default" if data is None and not trouble else "file"
    return Setting(file, value, source, None, trouble)
