"""The home: where control/, queue/ and alias/ are. `--home`, else QUEUE_HOME, else /var/queue."""

import os

from queue_base.errors import Usage

DEFAULT_HOME = "/var/queue"


class Home:
    """Paths of one home, as str: path, control, queue, alias."""

    __slots__ = ("alias", "control", "path", "queue")

    def __init__(self, path: str) -> None:
        self.path = path
        self.control = path + "/control"
        self.queue = path + "/queue"
        self.alias = path + "/alias"


def find_home(option: str | None = None) -> Home:
    """Return the home that `--home` (or None), QUEUE_HOME or the default names; made absolute."""
    path = option or os.environ.get("QUEUE_HOME") or DEFAULT_HOME
    return Home(os.path.abspath(path))


def take_home(arguments: list[str]) -> tuple[Home, list[str]]:
    """Return the home and the arguments without a leading `--home HOME` or `--home=HOME`. Raises Usage."""
    if arguments[:1] == ["--home"]:
        if len(arguments) < 2 or not arguments[1]:
            raise Usage("--home needs a directory")
        return find_home(arguments[1]), arguments[2:]
    if arguments and arguments[0].startswith("--home="):
        if arguments[0] == "--home=":
            raise Usage("--home needs a directory")
        return find_home(arguments[0][len("--home=") :]), arguments[1:]
    return find_home(), arguments
