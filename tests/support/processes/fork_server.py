"""The process that has loaded a program's modules and forks for each start of it; support.processes.forked runs it.

usage: fork_server.py ROOM SOCKET PROGRAMS MAIN [NAME=MODULE...]. SOCKET is the number of a descriptor, PROGRAMS the
directory of the programs, MAIN the module whose main() a fork runs. A fork may execute the programs NAME in turn, as
queue-start does: it then runs the main() of MODULE, with what execve() keeps of a process and without what it does not
keep. ROOM is any word; it is where the forks have their command lines in /proc, so it is to be as long.

A request is a datagram of JSON with descriptors. The answer is a pid, with a pidfd; later the exit code is written to
the last of the descriptors.
"""

import atexit
import fcntl
import functools
import gc
import importlib
import json
import mmap
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

# Pages that modules make as they are loaded, for a program and its forks: another program's are others.
_SHARED_PAGES = [("queue_local.config", "_last_alert")]
# What main() imports when it knows what is wanted.
_LATER = {
    "queue_remote.main": ["uvloop", "queue_remote.control_check", "queue_remote.daemon", "queue_remote.explain"],
}
Main = Callable[[list[str]], int | None]
_execv = os.execv
# The standard streams: number, name in sys, mode, encoding, and what is done about characters outside of it.
_STREAMS = [
    (number, name, mode, getattr(sys, name).encoding, getattr(sys, name).errors)
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))
]
# The exit code of Python where its last output could not be written.
_UNWRITTEN = 120
# The fields 48 and 49 of /proc/PID/stat (proc_pid_stat(5)), of which the first after the name is field 3.
_ARG_START, _ARG_END = 45, 46


def serve(server: socket.socket) -> dict[str, Any]:
    """Fork for each request. Returns in the forks, with the request."""
    statuses: dict[int, tuple[int, int]] = {}
    while True:
        poll = select.poll()
        for descriptor in (server.fileno(), *statuses):
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll():
            if descriptor in statuses:
                pid, status = statuses.pop(descriptor)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.write(status, b"%d" % code)
                os.close(status)
                os.close(descriptor)
                continue
            data, descriptors, _, _ = socket.recv_fds(server, 1 << 20, 100)
            if not data:
                os._exit(0)
            request = json.loads(data)
            pid = os.fork()
            if pid == 0:
                server.detach()
                become(request, descriptors)
                return dict(request)
            *others, status = descriptors
            for other in others:
                os.close(other)
            pidfd = os.pidfd_open(pid)
            statuses[pidfd] = pid, status
            socket.send_fds(server, [b"%d" % pid], [pidfd])


def become(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Take what a program is started with: descriptors, session, environment, directory, umask and arguments."""
    numbers = request["numbers"]
    high = max(*numbers, *descriptors) + 1
    for at, descriptor in enumerate(descriptors[:-1]):
        os.dup2(descriptor, high + at)
    for at, number in enumerate(numbers):
        os.dup2(high + at, number)
    close_all([number for number in open_descriptors() if number not in numbers])
    if request["session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["directory"])
    os.umask(request["umask"])
    show_words(request["words"])
    take_words(request["words"])


def take_words(words: list[str]) -> None:
    """Have these arguments, and standard streams, shared pages and random numbers as a new program has."""
    for number, name, mode, encoding, errors in _STREAMS:
        # As Python makes them: what they are of is another file now.
        lines = 1 if number == 2 or is_terminal(number) else -1
        make = functools.partial(open, number, mode, lines, encoding, errors, closefd=False)
        new = make() if is_open(number) else None
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    sys.argv[:] = words
    for module, name in _SHARED_PAGES:
        if module in sys.modules:
            setattr(sys.modules[module], name, mmap.mmap(-1, len(getattr(sys.modules[module], name))))
    if random := sys.modules.get("random"):
        random.seed()


def show_words(words: Sequence[str]) -> None:
    """Show the command line of a program in /proc/PID/cmdline, as far as there is room: our own was longer.

    Raises OSError, for a process that has changed its user.
    """
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    shown = b"\0".join(map(os.fsencode, [sys.executable, *words]))[: end - start - 1]
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(shown.ljust(end - start, b"\0"))


def is_open(number: int) -> bool:
    try:
        fcntl.fcntl(number, fcntl.F_GETFD)
    except OSError:
        return False
    return True


def is_terminal(number: int) -> bool:
    return is_open(number) and os.isatty(number)


def open_descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


def close_all(numbers: Iterable[int]) -> None:
    for number in numbers:
        os.closerange(number, number + 1)  # That of the listing is closed already.


def executes(
    mains: dict[str, Main], wrappers: dict[str, list[str]], replaced: dict[str, str]
) -> Callable[[Any, Any], NoReturn]:
    """Return an execv() that runs a main() of these programs, by their paths, in this process.

    A program that `wrappers` has words for, by its name, is executed with those words before its own, and one of
    `replaced` is executed from another path.
    """

    def execute(path: str, words: list[str]) -> NoReturn:
        name = os.path.basename(words[1]) if len(words) > 1 else ""
        if name in wrappers or name in replaced:
            command = [*wrappers.get(name, []), words[0], replaced.get(name, words[1]), *words[2:]]
            os.execv = _execv
            os.execvp(command[0], command)
        main = mains.get(words[1]) if path == sys.executable and len(words) > 1 else None
        if main is None:
            _execv(path, words)
        try:
            show_words(words[1:])
        except OSError:
            _execv(path, words)
        os.execv = _execv
        # FD_CLOEXEC is the only flag.
        close_all([each for each in open_descriptors() if is_open(each) and fcntl.fcntl(each, fcntl.F_GETFD)])
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)) and number != signal.SIGINT:
                signal.signal(number, signal.SIG_DFL)
        take_words(list(words[1:]))
        end(main)

    return execute


def end(main: Main) -> NoReturn:
    """Run a program to its end, without those of the functions that called us.

    It ends as Python does, but for the modules, which are not taken apart: in a fork that copies each of their pages,
    and takes ten times as long as the fork.
    """
    code: object
    interrupted = False
    try:
        code = main(sys.argv)
    except SystemExit as error:
        code = error.code
        if not (code is None or isinstance(code, int)):
            print(code, file=sys.stderr)
            code = 1
    except BaseException as error:
        sys.excepthook(*sys.exc_info())
        interrupted = isinstance(error, KeyboardInterrupt)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            code = _UNWRITTEN
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF if isinstance(code, int) else 0)


def load(module: str) -> Main:
    main: Main = importlib.import_module(module).main
    for other in _LATER.get(module, ()):
        importlib.import_module(other)
    return main


def run(words: list[str]) -> None:
    """Load the modules and serve; in a fork, run the program."""
    _, number, programs, module, *others = words
    sys.path[0] = programs
    main = load(module)
    names = dict(other.split("=") for other in others)
    mains = {os.path.join(programs, name): load(other) for name, other in names.items()}
    gc.freeze()
    request = serve(socket.socket(fileno=int(number)))
    if mains:
        os.execv = executes(mains, request["wrappers"], request["replaced"])
    end(main)


if __name__ == "__main__":
    run(sys.argv[1:])
