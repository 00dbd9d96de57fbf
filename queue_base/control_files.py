"""The control files of a daemon, read together and used together.

A file that cannot be used never changes what a running daemon does: the values of the last reading that succeeded stay.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from queue_base.control import check_modes, me_in, read_control, unable_to_parse
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_wire.admin.settings import InForce, in_force
from queue_wire.control.control_file import LINE, ControlFile
from queue_wire.control.lines import lines_without_colon
from queue_wire.control.registry import (
    EMPTY_LOCALS,
    ENVNOATHOST,
    FILES,
    LOCALS,
    ME,
    NO_COLON,
    PERCENTHACK,
    VIRTUALDOMAINS,
    describe_changes,
)
from queue_wire.control.rewrite import Rules, rule_key
from queue_wire.format_error import FormatError, LineError

Value = TypeVar("Value")
Config = TypeVar("Config")
# What takes the name of a file that cannot be used, and why; it may raise that.
Trouble = Callable[[str, Temporary], object]


def kept_by(program: str) -> tuple[ControlFile[Any], ...]:
    """Return the control files of which a daemon keeps what it has read; also `me`, if another needs it."""
    found = [file for file in FILES if file.is_kept_by(program)]
    return (ME, *found) if [file for file in found if file.follows_me] else tuple(found)


def fail(name: str, error: Temporary) -> None:
    """Raise the reason why a control file cannot be used."""
    raise error


class ControlValues:
    """The values of one reading of control files; `contents` is what each had, None for one that does not exist."""

    __slots__ = ("_values", "contents", "home", "me")

    def __init__(
        self, home: Home, files: Sequence[ControlFile[Any]], contents: dict[str, bytes | None], trouble: Trouble = fail
    ) -> None:
        """Unpack the contents. If `trouble` does not raise, what counts without the file is used."""
        self.home = home
        self.contents = contents
        self.me = me_in(home, contents["me"]) if ME in files else b""
        self._values: dict[str, Any] = {}
        for file in files:
            try:
                value = file.value(contents[file.name])
            except FormatError as error:
                trouble(file.name, self.unable_to_parse(file, error))
                value = file.value(None)
            if contents[file.name] is None and file.shape == LINE and file.follows_me:
                value = self.me
            self._values[file.name] = value

    def __getitem__(self, file: ControlFile[Value]) -> Value:
        """Return the value of a file that was read."""
        value: Value = self._values[file.name]
        return value

    def parsed(self, file: ControlFile[Any], unpack: Callable[[bytes], Value]) -> Value | None:
        """Return what a parser of the program's own makes of a file, None without it. Raises Temporary."""
        data = self.contents[file.name]
        try:
            return None if data is None else unpack(data)
        except FormatError as error:
            raise self.unable_to_parse(file, error) from error

    def unable_to_parse(self, file: ControlFile[Any], error: FormatError) -> Temporary:
        """Return the failure for a file that cannot be parsed."""
        return unable_to_parse(self.home, file.name, error)


def read_contents(
    home: Home, files: Sequence[ControlFile[Any]], trouble: Trouble = fail
) -> dict[str, bytes | None]:
    """Return what the files have; None for one that does not exist, or cannot be read if `trouble` does not raise."""
    found: dict[str, bytes | None] = {}
    for file in files:
        try:
            found[file.name] = read_control(home, file.name)
        except Temporary as error:
            trouble(file.name, error)
            found[file.name] = None
    return found


def find_slips(contents: Mapping[str, bytes | None]) -> list[tuple[str, LineError]]:
    """Return what qmail takes and is probably a mistake, with the name of its file.

    It is what a write to a full disk, or a slip, leaves.
    """
    found = []
    for name in ("smtproutes", "virtualdomains"):
        found += [(name, LineError(number, NO_COLON)) for number in lines_without_colon(contents.get(name) or b"")[:1]]
    hosts = contents.get("locals")
    if hosts is not None and not hosts.strip():
        found.append(("locals", LineError(1, EMPTY_LOCALS)))
    return found


def refuse_slips(home: Home, contents: Mapping[str, bytes | None]) -> None:
    """Raise Temporary for the first slip."""
    for name, error in find_slips(contents):
        raise unable_to_parse(home, name, error)


def rules_of(values: ControlValues) -> Rules:
    """Return the rules of classification (qmail-send(8)), for what has read the files that queue-todo keeps."""
    hosts = values[LOCALS]
    return Rules(
        envnoathost=values[ENVNOATHOST],
        locals=frozenset(map(rule_key, [values.me] if hosts is None else hosts)),
        percenthack=frozenset(map(rule_key, values[PERCENTHACK])),
        virtualdomains=values[VIRTUALDOMAINS],
    )


def read_rules(home: Home) -> Rules:
    """Return the rules of classification. Raises Temporary, naming the file."""
    files = kept_by("queue-todo")
    return rules_of(ControlValues(home, files, read_contents(home, files)))


class ControlFiles(Generic[Config]):
    """The control files of a daemon as they were read last.

    `current` is what `make` has made of them, None until they could be read. `fault` is why the last reading failed,
    empty if it did not.
    """

    def __init__(
        self,
        home: Home,
        files: Sequence[ControlFile[Any]],
        make: Callable[[ControlValues], Config],
        trouble: Trouble = fail,
    ) -> None:
        self._home = home
        self._files = files
        self._make = make
        self._trouble = trouble
        self._contents: dict[str, bytes | None] = {}
        self.current: Config | None = None
        self.fault = ""

    def read(self, again: bool = False) -> list[str]:
        """Read the files; return a line for each that has changed. Raises Temporary, and then the old values stay.

        The first reading takes slips, as qmail does. `again`: `current` is made anew though no file has changed.
        """
        try:
            contents = read_contents(self._home, self._files, self._trouble)
            if self.current is not None:
                if not again and contents == self._contents:
                    self.fault = ""
                    return []
                check_modes(self._home)
                refuse_slips(self._home, contents)
            made = self._make(ControlValues(self._home, self._files, contents, self._trouble))
        except Temporary as failure:
            self.fault = str(failure)
            raise
        changes = [] if self.current is None else describe_changes(self._contents, contents)
        self.current, self._contents, self.fault = made, contents, ""
        return changes

    def slips(self) -> list[str]:
        """Return what the first reading took, as texts for the log."""
        return [f"unable to use {self._home.control}/{name} {error}" for name, error in find_slips(self._contents)]

    def in_force(self) -> InForce:
        """Return what is in force, and why the last reading was refused, if it was."""
        return in_force(self._contents, self.fault)
