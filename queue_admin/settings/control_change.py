"""Changes one control file: checks the contents, replaces the file, and has the daemons take it.

The file is written aside and renamed, with its owner and mode kept, so that a daemon reads the old or the new one.
The daemons of the suite reread at the order `reread` on lock/control, queue-smtpd at one on its status socket. Both are
answered when they have, with what is in force then. Without queue-send the file is read at the next start. What others
read is not confirmed, and the text says when they read it.
"""

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from queue_admin.home.maker import Maker
from queue_admin.home.modes import CONTROL_FILE_MODE
from queue_admin.home.tree import unable_to
from queue_admin.messages.admin_client import connect
from queue_admin.metrics.smtpd_client import ask_settings
from queue_admin.printable import visible
from queue_admin.settings.control_faults import check_new, lacks_keeper
from queue_admin.settings.control_values import running_in
from queue_base.accounts import Owner
from queue_base.control import read_control
from queue_base.errors import Failure, Permanent, Temporary, Usage
from queue_base.home import Home
from queue_base.safe_open import READ_DIRECTORY, open_given, resolve_given
from queue_base.secret_files import SECRET_MODE, smtpd_group
from queue_wire.admin.socket import REREAD, TROUBLE, Request
from queue_wire.control.control_file import (
    CONNECTION,
    FORWARD,
    HUP,
    MESSAGE,
    NEXT_AUTH,
    SECOND,
    START,
    START_SMTPD,
    TERM,
    ControlFile,
    fingerprint,
)
from queue_wire.control.registry import BY_NAME
from queue_wire.format_error import FormatError

_LATER = {
    START: "not in force yet; queue-start reads it when it starts the suite again",
    MESSAGE: "each program that injects reads it before its next message",
    TERM: "queue-local reads it at the next stop",
    FORWARD: "in force; queue-local reads it for each forward",
    f"{MESSAGE}, {SECOND}": "each program that injects reads it before its next message, queue-intake within a second",
    f"{MESSAGE}, {START}": "each program that injects reads it before its next message; "
    "queue-todo and queue-send when the suite is started again",
    NEXT_AUTH: "queue-smtpd reads it at the next AUTH",
    START_SMTPD: "not in force yet; queue-smtpd reads it when it starts",
}
_NO_SERVER = (
    "no queue-smtpd that runs as a daemon is found here; it reads the file when it starts and on HUP, and under a "
    "super-server for its next connection"
)
# The readers that run in the suite of a queue. `all` are these and queue-smtpd.
_SUITE = frozenset(
    ("all", "queue-send", "queue-todo", "queue-remote", "queue-local", "queue-ondemand", "queue-intake")
)


def change_control(home: Home, name: str, data: bytes | None) -> str:
    """Give a control file new contents, None to remove it; return when it is in force, as a text.

    Raises Usage if the contents cannot be used, and then nothing was changed; Temporary if the file was changed, and
    the daemons did not take it.
    """
    file = BY_NAME[name]
    if data is None and name == "me":
        raise Usage("unable to remove control/me: it has no default")
    if data is not None and (fault := check_new(home, name, data)) is not None:
        allowed = f" (allowed: {file.range})" if file.range else ""
        raise Usage(f"unable to set {fault.text()}{allowed}; nothing was changed")
    write_control(home, name, data)
    return _take(home, file)


def write_control(home: Home, name: str, data: bytes | None) -> None:
    """Replace or remove a control file, durably. Raises Permanent, Temporary."""
    edit_control(home, name, lambda old: data)


def edit_control(home: Home, name: str, edit: Callable[[bytes | None], bytes | None]) -> None:
    """Replace a control file by what `edit` makes of it, durably; None is no file. Nobody else changes it meanwhile.

    Raises Permanent, Temporary, and what `edit` raises; nothing is changed then.
    """
    named = f"{home.control}/{name}"
    with unable_to("change", named):
        # control/ may be another account's: then its links lead nowhere.
        path = resolve_given(named)
    with unable_to("change", path), _locked(os.path.dirname(path)) as directory:
        data, secret = edit(read_control(home, name)), BY_NAME[name].secret
        if data is None:
            _remove(home, name)
            return
        try:
            found = os.stat(os.path.basename(path), dir_fd=directory, follow_symlinks=False)
            owner, mode = Owner(found.st_uid, found.st_gid), stat.S_IMODE(found.st_mode)
            if not stat.S_ISREG(found.st_mode):
                raise Permanent(f"unable to change {path}: it is not a regular file")
            if secret:
                mode &= SECRET_MODE
        except FileNotFoundError:
            above = os.stat(home.control)
            owner = Owner(above.st_uid, _reading_group(home, name, above.st_gid))
            mode = SECRET_MODE if secret else CONTROL_FILE_MODE
        maker = Maker(owner)
        maker.replace(path, data, mode)
        maker.commit.sync()


def _remove(home: Home, name: str) -> None:
    """Remove what has a name in control/, durably. Raises OSError."""
    control = open_given(home.control, READ_DIRECTORY)
    try:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=control)
        os.fsync(control)
    finally:
        os.close(control)


def _reading_group(home: Home, name: str, usual: int) -> int:
    """Return the group of a new control file: that of the one account that may read a secret."""
    file = BY_NAME[name]
    if not file.secret:
        return usual
    if file.readers != ("queue-smtpd",):
        # The accounts of queue-remote and of the forwarder are in the group of queue/mess.
        return os.stat(f"{home.each()[0].queue}/mess").st_gid
    # Without the account another one runs queue-smtpd.
    group = smtpd_group() if os.geteuid() == 0 else None
    return usual if group is None else group


@contextmanager
def _locked(directory: str) -> Iterator[int]:
    """Let no other `config set` write meanwhile: both would use the same NAME.new. Raises OSError."""
    handle = open_given(directory, READ_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _take(home: Home, file: ControlFile[Any]) -> str:
    """Have the daemons take a changed file; return when it is in force. Raises Temporary if they do not."""
    if file.read in _LATER:
        return _LATER[file.read]
    when = ""
    troubles: list[str] = []
    if not _SUITE.isdisjoint(file.readers):
        # Each queue has daemons of its own.
        found = {one.name: _take_in(one, file, troubles) for one in ([home] if home.is_chosen else home.each())}
        whens = set(found.values())
        when = whens.pop() if len(whens) == 1 else "; ".join(f"queue {name}: {when}" for name, when in found.items())
    if CONNECTION in file.read.split(", "):
        # It is told whether or not the others have taken it.
        served = _take_in_server(home, file, troubles)
        # Who has no queue-smtpd, or one under a super-server, waits for nothing.
        when = when or served
    if troubles:
        raise Temporary(f"control/{file.name} is changed, but not in force: {'; '.join(dict.fromkeys(troubles))}")
    return when


def _take_in(home: Home, file: ControlFile[Any], troubles: list[str]) -> str:
    """Have the suite of one queue take it; return when it is in force, or add what keeps it from that to `troubles`."""
    try:
        client = connect(home)
        if client is None:
            return "queue-send does not run; in force at its start"
        with closing(client):
            response = client.ask(Request(REREAD, b"", []))
        found = running_in(response).get(file.name, [])
    except (Failure, FormatError) as error:
        troubles.append(str(error))
        return ""
    refused = [visible(note.text) for note in response.notes if note.letter == TROUBLE]
    troubles += refused
    if refused:
        return ""
    if not found:
        return _unreported(home, file)
    if any(check != fingerprint(file, read_control(home, file.name)) for check, _ in found):
        troubles.append("a daemon has another value")
    if file.name == "ondemand" and lacks_keeper(home):
        return "not in force yet; start the suite again, because queue-ondemand does not run"
    return "in force"


def _unreported(home: Home, file: ControlFile[Any]) -> str:
    """Return when a file is in force that no daemon has said to have."""
    if "queue-ondemand" in file.readers:
        return "queue-ondemand does not run; it reads it when it starts"
    if not home.several:
        return "not in force yet; queue-start opens the ports when it starts the suite again"
    # It is a service of its own.
    return "queue-intake reads it " + ("on HUP to its service" if HUP in file.read else "within a second")


def _take_in_server(home: Home, file: ControlFile[Any], troubles: list[str]) -> str:
    """Have all processes of queue-smtpd take it; return and add as _take_in does."""
    try:
        processes, silent = ask_settings(home, True)
    except Failure as error:
        troubles.append(str(error))
        return ""
    troubles += [visible(trouble.encode("utf-8", "surrogateescape")) for trouble in silent]
    wanted = fingerprint(file, read_control(home, file.name))
    for each in processes:
        found = [check for name, check, _ in each.files if name == file.name]
        if each.error:
            troubles.append(f"queue-smtpd: {each.error}")
        elif file.name == "smtpdcert" and not found:
            troubles.append("queue-smtpd: not all of it can be used; its log says why")
        elif any(check != wanted for check in found):
            troubles.append("queue-smtpd: it has another value")
    return "in force" if processes else _NO_SERVER
