"""The programs that instructions of .qmail files call: preline, forward, condredirect, bouncesaying and except.

They work as in qmail's manual pages, with the message on fd 0 and the environment of queue_local.environment. Exit
codes are those of qmail-command(8): 0 continues, 99 stops with success, 100 fails, 111 defers. If a program cannot be
run, they defer, where qmail's may fail. Mail is forwarded by queue-enqueue, as the user, and is durable on success.
"""

import os
import signal
import sys

from queue_base.daemon.processes import command
from queue_base.daemon.signals import keep_children
from queue_base.durable import write_all
from queue_base.errors import PERMANENT, TEMPORARY, Failure, Permanent, Temporary, Usage, complain, reason
from queue_base.home import find_home, take_help
from queue_wire.files.envelope import pack_enqueue

_STOP = 99
_CHUNK = 1 << 16
_USAGES = {
    "preline": "preline [-dfr] PROGRAM [ARGUMENT ...]\n"
    "Runs a program on the message with From, Return-Path and Delivered-To lines before it; -f, -r, -d leave each out.",
    "forward": "forward ADDRESS ...\nForwards the message, as NEWSENDER, with the Delivered-To line DTLINE.",
    "condredirect": "condredirect ADDRESS PROGRAM [ARGUMENT ...]\n"
    "Forwards the message where the program exits 0, and ends the .qmail file then; 111 defers, others go on.",
    "bouncesaying": "bouncesaying TEXT [PROGRAM [ARGUMENT ...]]\n"
    "Fails with a text, where the program exits 0 or there is none; 111 defers, others go on.",
    "except": "except PROGRAM [ARGUMENT ...]\nFails where the program exits 0; 111 defers, others go on.",
}


def _synopsis(name: str) -> str:
    return _USAGES[name].partition("\n")[0]


def _start(words: list[str], descriptors: tuple[int, ...] = ()) -> int:
    """Start a program, `descriptors` being its 0 and so on; return its pid. Raises Temporary."""
    actions = [(os.POSIX_SPAWN_DUP2, handle, number) for number, handle in enumerate(descriptors)]
    try:
        # Python ignores SIGPIPE, and a child would inherit that.
        return os.posix_spawnp(words[0], words, os.environ, file_actions=actions, setsigdef=[signal.SIGPIPE])
    except OSError as error:
        raise Temporary(f"unable to run {words[0]}: {reason(error)}") from error


def _wait(pid: int, name: str) -> int:
    """Return the exit code of a program. Raises Temporary if a signal killed it."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code < 0:
        raise Temporary(f"unable to go on: signal {-code} killed {name}")
    return code


def _succeeds(words: list[str]) -> bool:
    """Return whether a program on the same message exits 0. Raises Temporary if it exits 111."""
    code = _wait(_start(words), words[0])
    if code == TEMPORARY:
        raise Temporary(f"unable to go on: {words[0]} exited {code}")
    return code == 0


def _copy(head: bytes, to: int) -> None:
    """Write `head` and the message, and close. A program need not read all of it."""
    try:
        write_all(to, head)
        while data := os.read(0, _CHUNK):
            write_all(to, data)
    except BrokenPipeError:
        pass
    finally:
        os.close(to)


def preline(words: list[str]) -> int:
    """Run a program with the lines and the message on its stdin; return its exit code."""
    lines = {"f": b"UFLINE", "r": b"RPLINE", "d": b"DTLINE"}
    while words and words[0].startswith("-") and len(words[0]) > 1:
        word = words.pop(0)
        if word.startswith("--") and len(word) > 2:
            raise Usage(f"{word} is not an option; usage: {_synopsis('preline')}")
        for letter in word[1:]:
            if letter not in "frd":
                raise Usage(f"-{letter} is not an option; usage: {_synopsis('preline')}")
            lines.pop(letter, None)
    _need(words, 1, "preline")
    reader, writer = os.pipe()
    pid = _start(words, (reader,))
    os.close(reader)
    _copy(b"".join([os.environb.get(name, b"") for name in lines.values()]), writer)
    return _wait(pid, words[0])


def forward(addresses: list[str]) -> int:
    """Forward the message to the addresses; return 0."""
    _need(addresses, 1, "forward")
    _forward(addresses, "forward")
    return 0


def _forward(addresses: list[str], name: str) -> None:
    """Forward the message, and report it as the program `name`. Raises Temporary, Permanent."""
    head, sender = os.environb.get(b"DTLINE"), os.environb.get(b"NEWSENDER")
    if head is None or sender is None:
        raise Permanent("unable to forward message: DTLINE or NEWSENDER is not set; run it from a .qmail file")
    message, to_message = os.pipe()
    names, to_names = os.pipe()
    pid = _start(command("queue-enqueue", find_home()), (message, names))
    os.close(message)
    os.close(names)
    _copy(head, to_message)
    # The end of the envelope queues the message, so nothing is queued if this process is killed before.
    envelope = pack_enqueue(sender, map(os.fsencode, addresses))
    try:
        write_all(to_names, envelope)
    except BrokenPipeError:
        pass
    os.close(to_names)
    code = _wait(pid, "queue-enqueue")
    if code:
        kind = Permanent if 11 <= code <= 40 else Temporary
        raise kind(f"unable to forward message: queue-enqueue exited {code}")
    write_all(1, b"%s: qp %d\n" % (name.encode(), pid))


def condredirect(words: list[str]) -> int:
    """Forward the message to words[0] and return 99 if the program in the other words exits 0; else return 0."""
    _need(words, 2, "condredirect")
    if not _succeeds(words[1:]):
        return 0
    os.lseek(0, 0, os.SEEK_SET)
    _forward(words[:1], "condredirect")
    return _STOP


def bouncesaying(words: list[str]) -> int:
    """Print words[0] and return 100 if the program in the other words exits 0, or there is none; else return 0."""
    _need(words, 1, "bouncesaying")
    if words[1:] and not _succeeds(words[1:]):
        return 0
    write_all(1, os.fsencode(words[0]) + b"\n")
    return PERMANENT


def except_(words: list[str]) -> int:
    """Return 100 if the program exits 0, else 0."""
    _need(words, 1, "except")
    return PERMANENT if _succeeds(words) else 0


def _need(words: list[str], count: int, name: str) -> None:
    if len(words) < count:
        missing = "too few arguments" if words else "no arguments"
        raise Usage(f"{missing}; usage: {_synopsis(name)}")


_COMMANDS = {
    "preline": preline,
    "forward": forward,
    "condredirect": condredirect,
    "bouncesaying": bouncesaying,
    "except": except_,
}


def main(argv: list[str]) -> int:
    """Return an exit code of qmail-command(8); the program is chosen by its name."""
    name = os.path.basename(argv[0])
    keep_children()
    try:
        if take_help(argv[1:], f"usage: {_USAGES[name]}\n", short=False):
            return 0
        return _COMMANDS[name](argv[1:])
    except Failure as error:
        complain(name, f"fatal: {error}")
        return error.exit_code
    except OSError as error:
        complain(name, f"fatal: unable to copy message: {reason(error)}")
        return TEMPORARY
    except BaseException as error:
        # A bug must not bounce mail.
        sys.excepthook(type(error), error, error.__traceback__)
        return TEMPORARY
