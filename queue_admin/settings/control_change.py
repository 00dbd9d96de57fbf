"""Changes one control file: checks the contents, replaces the file, and has the daemons take it.

The file is written aside and renamed, with its owner and mode kept, so that a daemon reads the old or the new one.
queue-send, queue-todo, queue-remote and queue-local reread at the order `reread` on lock/control. It is answered when
they have. Without queue-send the file is read at the next start. What others read is not confirmed, and the text says
when they read it.
"""

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from queue_admin.home.maker import Maker
from queue_admin.home.modes import CONTROL_FILE_MODE
from queue_admin.home.tree import unable_to
from queue_admin.messages.admin_client import connect
from queue_admin.printable import visible
from queue_admin.settings.control_faults import check_new, lacks_keeper
from queue_admin.settings.control_values import ask_running, running_in
from queue_base.accounts import Owner
from queue_base.control import read_control
from queue_base.errors import Failure, Permanent, Temporary, Usage
from queue_base.home import Home
from queue_base.safe_open import READ_DIRECTORY, open_given, resolve_given
from queue_base.secret_files import SECRET_MODE, smtpd_group
from queue_wire.admin.socket import REREAD, TROUBLE, Request
from queue_wire.control.registry import (
    BY_NAME,
    CONNECTION,
    MESSAGE,
    NEXT_AUTH,
    START,
    START_SMTPD,
    TERM,
    ControlFile,
    fingerprint,
)
from queue_wire.format_error import FormatError

_SECRETS = ("smtpauth", "srssecrets")
# Secrets that queue-smtpd reads, and nobody else.
_SMTPD_SECRETS = ("smtpdusers",)
_LATER = {
    START: "not in force yet; queue-start reads it when it starts the suite again",
    MESSAGE: "each program that injects reads it before its next message",
    TERM: "queue-local reads it at the next stop",
    CONNECTION: "queue-smtpd reads it on HUP; under a super-server, for its next connection",
    NEXT_AUTH: "queue-smtpd reads it at the next AUTH",
    START_SMTPD: "queue-smtpd reads it when it starts",
}


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
        data = edit(read_control(home, name))
        if data is None:
            _remove(home, name)
            return
        try:
            found = os.stat(os.path.basename(path), dir_fd=directory, follow_symlinks=False)
            owner, mode = Owner(found.st_uid, found.st_gid), stat.S_IMODE(found.st_mode)
            if not stat.S_ISREG(found.st_mode):
                raise Permanent(f"unable to change {path}: it is not a regular file")
            if name in _SECRETS or name in _SMTPD_SECRETS:
                mode &= SECRET_MODE
        except FileNotFoundError:
            above = os.stat(home.control)
            secret = name in _SECRETS or name in _SMTPD_SECRETS
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
    if name in _SECRETS:
        # The accounts of queue-remote and of the forwarder are in the group of queue/mess.
        return os.stat(f"{home.each()[0].queue}/mess").st_gid
    # Without the account another one runs queue-smtpd.
    if name in _SMTPD_SECRETS and os.geteuid() == 0 and (group := smtpd_group()) is not None:
        return group
    return usual


@contextmanager
def _locked(directory: str) -> Iterator[int]:
    """Let no other `config set` write meanwhile: both would use the same NAME.new. Raises OSError."""
    handle = open_given(directory, READ_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _take(home: Home, file: ControlFile) -> str:
    """Have the daemons take a changed file; return when it is in force. Raises Temporary if they do not."""
    if file.read in _LATER:
        return _LATER[file.read]
    if not home.is_chosen:
        # Each queue has daemons of its own.
        found = {one.name: _take_in(one, file) for one in home.each()}
        whens = set(found.values())
        return whens.pop() if len(whens) == 1 else "; ".join(f"queue {name}: {when}" for name, when in found.items())
    return _take_in(home, file)


def _take_in(home: Home, file: ControlFile) -> str:
    """Do it for one queue."""
    try:
        client = connect(home)
        if client is None:
            return "queue-send does not run; in force at its start"
        with closing(client):
            response = client.ask(Request(REREAD, b"", []))
    except Failure as error:
        raise Temporary(f"control/{file.name} is changed, but not in force: {error}") from error
    troubles = [visible(note.text) for note in response.notes if note.letter == TROUBLE]
    if troubles:
        raise Temporary(f"control/{file.name} is changed, but not in force: {'; '.join(troubles)}")
    running, unknown = ask_running(home)
    wanted = fingerprint(file, read_control(home, file.name))
    try:
        found = running.get(file.name, []) + running_in(response).get(file.name, [])
    except FormatError as error:
        found, unknown = [], str(error)
    if unknown or not found or any(check != wanted for check, _ in found):
        why = unknown or ("a daemon has another value" if found else "no daemon says that it has it")
        raise Temporary(f"control/{file.name} is changed, but not in force: {why}")
    if file.name == "ondemand" and lacks_keeper(home):
        return "not in force yet; start the suite again, because queue-ondemand does not run"
    return "in force"
