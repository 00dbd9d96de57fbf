"""The home: where control/, queue/, alias/ and users/ are. `--home`, else QUEUE_HOME, else /var/queue.

Here too is the other option that every program has: --help.
"""

import os

from queue_base.errors import Temporary, Usage, reason

DEFAULT_HOME = "/var/queue"


class Home:
    """Paths of one home, as str: path, control, queue, alias, users."""

    __slots__ = ("alias", "control", "path", "queue", "users")

    def __init__(self, path: str) -> None:
        self.path = path
        self.control = path + "/control"
        self.queue = path + "/queue"
        self.alias = path + "/alias"
        self.users = path + "/users"


def trusted_variable(name: str) -> str | None:
    """Return a variable that chooses what is read or run, as secure_getenv(3) does: None where a set-uid or set-gid
    program runs us, since its environment is that of whoever called it. An empty one is None too.
    """
    if os.getuid() != os.geteuid() or os.getgid() != os.getegid():
        return None
    return os.environ.get(name) or None


def find_home(option: str | None = None) -> Home:
    """Return the home that `--home` (or None), QUEUE_HOME or the default names; made absolute."""
    path = option or trusted_variable("QUEUE_HOME") or DEFAULT_HOME
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


def take_help(arguments: list[str], text: str, short: bool = True) -> bool:
    """Print a program's help on stdout if that is asked for, also as -h where `short`; return whether it was.

    `arguments` are what `take_home` has left. Raises Temporary.
    """
    if arguments != ["--help"] and not (short and arguments == ["-h"]):
        return False
    try:
        # Not through sys.stdout: the injectors end without flushing it.
        os.write(1, text.encode("ascii"))
    except OSError as error:
        raise Temporary(f"unable to write standard output: {reason(error)}") from error
    return True


def take_daemon_home(argv: list[str], usage: str, text: str) -> Home | None:
    """Return the home of a daemon that queue-start starts; None where its help `text` was asked for and printed.

    Raises Usage for any other argument.
    """
    home, rest = take_home(argv[1:])
    if take_help(rest, text):
        return None
    if rest:
        raise Usage(f"{usage}; it is started by queue-start")
    return home
