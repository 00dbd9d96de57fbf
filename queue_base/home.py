"""The home: the directory of control/, queue/, alias/ and so on. `--home`, else QUEUE_HOME, else /var/queue.

control/queues names its queues, if there are several (queue_wire.control.queues). A daemon works on one of them, which
`--queue` names; what all of them share is in run/.

This module also parses the options that many programs have: --home, --queue and --help.
"""

import os

from queue_base.durable import read_file
from queue_base.errors import Temporary, Usage, reason

DEFAULT_HOME = "/var/queue"
CONTROL_QUEUES = "queues"


class Home:
    """The paths of one home, as str, and of one of its queues, which has been chosen if there are several.

    control/queues is read when one of these is asked for, once: a change of it counts for programs that start later.
    """

    __slots__ = ("_queue", "_queues", "_wanted", "alias", "control", "greylist", "path", "users")

    def __init__(self, path: str, wanted: str = "") -> None:
        """wanted: the name of the queue that is chosen, empty for the only one."""
        self.path = path
        self.control = path + "/control"
        self.alias = path + "/alias"
        self.users = path + "/users"
        self.greylist = path + "/greylist"
        self._queue = ""
        self._queues: dict[str, str] | None = None
        self._wanted = wanted

    @property
    def queues(self) -> dict[str, str]:
        """{name: directory} of all queues, in the order of control/queues. Raises Temporary."""
        if self._queues is None:
            self._queues = _read_queues(self.path)
        return self._queues

    @property
    def queue(self) -> str:
        """The directory of the queue. Raises Usage if there are several and none was chosen, Temporary."""
        if not self._queue:
            self._queue = self._find_queue()
        return self._queue

    def _find_queue(self) -> str:
        queues = self.queues
        names = ", ".join(queues)
        if self._wanted:
            if self._wanted not in queues:
                raise Usage(f"unable to use queue {self._wanted}: {self.path} has {names}")
            return queues[self._wanted]
        if len(queues) > 1:
            raise Usage(f"unable to choose a queue: {self.path} has {names}; --queue NAME names one")
        return next(iter(queues.values()))

    @property
    def several(self) -> bool:
        """Whether there are several queues. Raises Temporary."""
        return len(self.queues) > 1

    @property
    def is_chosen(self) -> bool:
        """Whether the queue is known: there is one, or it was named. Raises Temporary."""
        return bool(self._wanted) or not self.several

    @property
    def name(self) -> str:
        """The name of the queue that was chosen, empty if there is only one, or none was. Raises Usage, Temporary."""
        if not self._wanted or not self.several:
            return ""
        self._find_queue()
        return self._wanted

    @property
    def owned(self) -> str:
        """The directory whose owner the suite runs as: that of the queue, or run/ if none was chosen.

        Raises Usage, Temporary.
        """
        return self.queue if self.is_chosen else self.run

    @property
    def run(self) -> str:
        """The directory with the sockets and locks of what all queues share: run/, or that of the only queue.

        Raises Temporary.
        """
        return self.path + "/run" if self.several else next(iter(self.queues.values()))

    @property
    def counts(self) -> str:
        """The socket on which queue-send tells its counts to whoever may search the directory, if that exists.

        Raises Usage, Temporary.
        """
        return f"{self.path}/monitor/{self.name or 'queue'}"

    def each(self) -> "list[Home]":
        """Return this home, or one for each queue if there are several and none was chosen. Raises Temporary."""
        if self.is_chosen:
            return [self]
        return [self.choose(name) for name in self.queues]

    def choose(self, name: str) -> "Home":
        """Return this home with another queue."""
        other = Home(self.path, name)
        other._queues = self._queues
        return other


def _read_queues(home: str) -> dict[str, str]:
    """Return the queues of a home. Raises Temporary.

    Who may not read control/, such as a user who leaves mail in maildrop/, knows only the one queue of most homes.
    """
    path = f"{home}/control/{CONTROL_QUEUES}"
    try:
        data = read_file(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {"queue": home + "/queue"}
    except OSError as error:
        raise Temporary(f"unable to read {path}: {reason(error)}") from error
    # Imported here because few homes have several queues.
    from queue_wire.control.lines import refuse_nul
    from queue_wire.control.queues import unpack_queues
    from queue_wire.format_error import FormatError, wrong_in

    try:
        refuse_nul(data)
        return unpack_queues(data, home)
    except FormatError as error:
        raise Temporary(f"unable to parse {wrong_in(path, error)}") from error


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


def take_queue(home: Home, arguments: list[str]) -> tuple[Home, list[str]]:
    """Return the home with the queue of a leading `--queue NAME` or `--queue=NAME`, and the arguments without it.

    Raises Usage, also if no queue has that name, and Temporary.
    """
    word, equals, name = arguments[0].partition("=") if arguments else ("", "", "")
    if word != "--queue":
        return home, arguments
    rest = arguments[1:]
    if not equals:
        name, rest = (rest or [""])[0], rest[1:]
    return named_queue(home, name), rest


def named_queue(home: Home, name: str) -> Home:
    """Return the home with the queue of this name. Raises Usage, Temporary."""
    if not name:
        raise Usage("--queue needs the name of a queue")
    found = home.choose(name)
    _ = found.queue  # Raises Usage if there is no such queue.
    return found


def take_help(arguments: list[str], text: str, short: bool = True) -> bool:
    """Print the help text on stdout if --help, or -h if `short`, is the only argument; return whether it was.

    Likewise the version of the suite if it is --version; the program's name is the second word of the text.
    `arguments` are those that `take_home` returned. Raises Temporary.
    """
    if arguments == ["--version"]:
        from queue_base.suite_version import suite_version

        text = f"{text.split()[1]} {suite_version()}\n"
    elif arguments != ["--help"] and not (short and arguments == ["-h"]):
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
    home, rest = take_queue(*take_home(argv[1:]))
    if take_help(rest, text):
        return None
    if rest:
        raise Usage(f"{rest[0]} is not an option; {usage}; it is started by queue-start")
    return home
