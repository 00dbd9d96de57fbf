"""Which accounts the daemons run as, and whether these accounts can read the code that they run."""

import importlib.util
import os
import pwd
import sys
from typing import NamedTuple

from queue_base.accounts import (
    INSTALL_ADVICE,
    QMAIL_ACCOUNT,
    QUEUE_ACCOUNT,
    REMOTE_ACCOUNT,
    Owner,
    become,
    first_hidden,
    queue_owner,
)
from queue_base.daemon.processes import program_path
from queue_base.errors import Failure, Permanent, Temporary
from queue_base.home import Home

PROGRAMS = (
    "queue-send", "queue-todo", "queue-clean", "queue-pickup", "queue-intake", "queue-remote", "queue-enqueue",
    "queue-ondemand",
)  # fmt: skip
PACKAGES = (
    "queue_base", "queue_wire", "queue_smtp", "queue_send", "queue_todo", "queue_clean", "queue_inject",
    "queue_intake", "queue_remote", "queue_ondemand",
)  # fmt: skip
LIBRARIES = ("pyinotify", "dns", "uvloop", "psutil")


class DaemonAccounts(NamedTuple):
    """The accounts of the queue's daemons and of queue-remote; None for the account that starts them."""

    queue: Owner | None
    remote: Owner | None


def choose_accounts(home: Home) -> DaemonAccounts:
    """Return the accounts of the daemons. Raises Permanent if the process cannot become the owner of queue/."""
    owner = queue_owner(home)
    me = os.geteuid()
    if owner.uid == me:
        return DaemonAccounts(None, None)
    name = _name(owner.uid)
    if name == QMAIL_ACCOUNT:
        raise Permanent(f"unable to use {home.owned}: it is qmail's; queuectl adopt {home.path} takes it over")
    if me != 0:
        who = _name(me)
        starter = "root" if owner.uid == 0 else f"root or as {name}"
        raise Permanent(f"unable to use {home.owned}: it is {name}'s and we are {who}; start as {starter}")
    if name != QUEUE_ACCOUNT:
        raise Permanent(
            f"unable to use {home.owned}: its owner is {name}; start as {name}, or give it to account {QUEUE_ACCOUNT}",
        )
    try:
        remote = pwd.getpwnam(REMOTE_ACCOUNT)
    except KeyError as error:
        raise Permanent(f"unable to find account {REMOTE_ACCOUNT}; queuectl init {home.path} makes it") from error
    return DaemonAccounts(owner, Owner(remote.pw_uid, remote.pw_gid))


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def check_code(accounts: DaemonAccounts) -> None:
    """Raise Permanent, with the path, if an account cannot read the code."""
    paths = _code_paths()
    for account, owner in ((QUEUE_ACCOUNT, accounts.queue), (REMOTE_ACCOUNT, accounts.remote)):
        if owner is not None:
            hidden = _first_hidden(owner, paths)
            if hidden:
                raise Permanent(
                    f"unable to read {hidden} as account {account}: permission denied; {INSTALL_ADVICE}",
                )


def _code_paths() -> list[str]:
    # The interpreter and its library may be in different places.
    paths = [sys.executable, os.__file__, *(program_path(name) for name in PROGRAMS)]
    for name in (*PACKAGES, *LIBRARIES):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise Permanent(f"unable to find the Python package {name}: install the suite again with pip")
        paths.append(spec.origin)
    return paths


def _first_hidden(owner: Owner, paths: list[str]) -> str:
    """Return the first path that the account cannot read, or its directory that denies access; "" if there is none."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            become(owner)
            hidden = [first_hidden(path) for path in paths if not os.access(path, os.R_OK)]
            os.write(writer, "".join(hidden[:1]).encode()[:4000])
            os._exit(0)
        except Failure as error:
            os.write(writer, str(error).encode()[:4000])
        finally:
            os._exit(111)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        answer = answers.read().decode()
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        raise Temporary(answer or "unable to look at the code as another account")
    return answer
