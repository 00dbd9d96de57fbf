"""The home: the directory of control/, queue/, alias/ and so on. `--home`, else QUEUE_HOME, else /var/queue.

This module also parses the two options that every program has: --home and --help.
"""

import os

from queue_base.errors import Temporary, Usage, reason

DEFAULT_HOME = "/var/queue"


class Home:
    """The paths of one home, as str."""

    __slots__ = ("alias", "control", "greylist", "path", "queue", "users")

    def __init__(self, path: str) -> None:
        self.path = path
        self.control = path + "/control"
        self.queue = path + "/queue"
        self.alias = path + "/alias"
        self.users = path + "/users"
        self.greylist = path + "/greylist"


def trusted_variable(name: str) -> str | None:
    """Return an environment variable that chooses what is read or run, None if it is empty or not to be trusted.

    As secure_getenv(3), it trusts none if the process is set-uid or set-gid: the environment is the caller's then.
    """
    if os.getuid() != os.geteuid() or os.getgid() != os.getegid():
        return None
    return os.environ.get(name) or None


def enqueue_program() -> tuple[str, str] | None:
    """Return the variable that names a program in the place of queue-enqueue, and the program; None if none does."""
    for variable in ("QUEUE_ENQUEUE", "QMAILQUEUE"):
        if program := trusted_variable(variable):
            return variable, program
    return None


def find_home(option: str | None = None) -> Home:
    """Return the home that `--home`, QUEUE_HOME or the default names, as an absolute path. Raises Usage.

    An empty name is refused: it is that of a variable that was not set, and the default may be another queue.
    """
    if option == "":
        raise Usage("unable to use '' as a home: it needs a directory")
    path = option or trusted_variable("QUEUE_HOME") or DEFAULT_HOME
    return Home(os.path.abspath(path))


def take_home(arguments: list[str]) -> tuple[Home, list[str]]:
    """Return the home, and the arguments without a leading `--home HOME` or `--home=HOME`. Raises Usage."""
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
    """Print the help text on stdout if --help, or -h if `short`, is the only argument; return whether it was.

    `arguments` are those that `take_home` returned. Raises Temporary.
    """
    if arguments != ["--help"] and not (short and arguments == ["-h"]):
        return False
    try:
        # Not sys.stdout, because the injectors exit without flushing it.
        os.write(1, text.encode("ascii"))
    except OSError as error:
        raise Temporary(f"unable to write standard output: {reason(error)}") from error
    return True


def take_daemon_home(argv: list[str], usage: str, text: str) -> Home | None:
    """Return the home of a daemon that queue-start starts, None if its help `text` was printed.

    Raises Usage for any other argument.
    """
    home, rest = take_home(argv[1:])
    if take_help(rest, text):
        return None
    if rest:
        raise Usage(f"{usage}; it is started by queue-start")
    return home
