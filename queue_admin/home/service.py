"""Writes what a supervisor needs: a service directory for daemontools, runit or s6, or units for systemd.

A new service directory is made under a name that begins with a dot, which svscan, runsvdir and s6-svscan ignore, and is
renamed when it is complete. An existing script or unit that differs stays, with a warning, unless `force`.
"""

import os
import shlex
import shutil
import subprocess
from typing import NamedTuple

from queue_admin.home.maker import Maker
from queue_admin.home.systemd_units import UnitFacts, command_unit, unit_name, units
from queue_admin.home.tree import Tree, unable_to
from queue_admin.system_accounts import account_uid, group_gid, myself
from queue_base.accounts import QUEUE_ACCOUNT, Owner
from queue_base.daemon.processes import program_path
from queue_base.daemon.supervisor import DESCRIPTOR
from queue_base.durable import Commit
from queue_base.errors import Permanent, complain
from queue_base.home import Home
from queue_base.safe_open import read_given
from queue_base.service_log import (
    DIRECTORY_MODE,
    MULTILOG,
    S6_LOG,
    SVLOGD,
    WEEK,
    log_script,
    logger_words,
    svlogd_config,
)

DAEMONTOOLS, RUNIT, S6, SYSTEMD = KINDS = ("daemontools", "runit", "s6", "systemd")
# The loggers of each, the first that is installed is used. svscan and runsvdir take each other's directories.
LOGGERS = {
    DAEMONTOOLS: (MULTILOG, SVLOGD),
    RUNIT: (SVLOGD, MULTILOG),
    S6: (S6_LOG,),
    SYSTEMD: (MULTILOG, SVLOGD, S6_LOG),
}
_NOTIFICATION = 3
# The part of a home with several queues that is no queue.
INTAKE = "intake"
_PATH = "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin:/command"


# The group whose members may read logs, on Debian and others.
LOG_GROUP = "adm"


class Service(NamedTuple):
    """A service. `start` is the path of queue-start, with `smtpd` of queue-smtpd, or with `words` of queuectl.

    `log` is the directory of the log, `account` the account that the logger runs as (None: the one that starts it), and
    `log_owner` its ids, with the group that may read the log. `part` is the name of the queue whose daemons it starts,
    or INTAKE, if the home has several queues. `words` are the command of queuectl, with its options.
    """

    home: Home
    start: str
    log: str
    account: str | None
    log_owner: Owner
    smtpd: bool = False
    part: str = ""
    words: tuple[str, ...] = ()

    @property
    def notifies(self) -> bool:
        """Whether it says when it is ready."""
        return self.part != INTAKE and not self.words


def part_options(part: str) -> list[str]:
    """Return the options of queue-start that start a part of a home with several queues."""
    if part == INTAKE:
        return ["--intake"]
    return ["--queue", part] if part else []


def run_script(service: Service, kind: str = DAEMONTOOLS) -> bytes:
    """Return the script `run`, which execs the program with QUEUE_HOME set and stderr sent to the log.

    queue-smtpd would serve descriptor 0 alone if that were a connection, so it gets /dev/null.
    """
    words = [f"QUEUE_HOME={shlex.quote(service.home.path)}"]
    if kind == S6 and service.notifies:
        words.append(f"{DESCRIPTOR}={_NOTIFICATION}")
    start = shlex.join([service.start, *part_options(service.part), *service.words])
    line = f"exec env {' '.join(words)} {start}{' </dev/null' if service.smtpd else ''}"
    return f"#!/bin/sh\nexec 2>&1\n{line}\n".encode()


def write_service(service: Service, directory: str, kind: str, top: Owner, force: bool) -> list[str]:
    """Make or complete what supervisor `kind` needs, and return the paths written. Raises Permanent or Temporary.

    `top` owns the scripts and units.
    """
    if kind == SYSTEMD:
        return write_units(service, directory, top, force)
    new = not os.path.lexists(directory)
    parent, name = os.path.split(directory)
    work = f"{parent}/.{name}.new" if new else directory
    maker = Maker(top)
    maker.directory(work, 0o755)
    maker.directory(f"{work}/log", 0o755)
    made = _make_log(service, maker.commit)
    scripts = [
        ("log/run", log_script(service.account, service.log, WEEK, LOGGERS[kind]), 0o755),
        ("run", run_script(service, kind), 0o755),
    ]
    if kind == S6 and service.notifies:
        scripts.append(("notification-fd", b"%d\n" % _NOTIFICATION, 0o644))
    # In a directory that an interrupted run left, scripts are replaced.
    for script, text, mode in scripts:
        _write(maker, f"{work}/{script}", text, mode, force or new)
    made = maker.made + made
    with unable_to("make", directory):
        maker.commit.sync()
        if new:
            maker.rename(work, directory)
            maker.commit.sync()
    return [directory + path.removeprefix(work) if path.startswith(work) else path for path in made]


def write_units(service: Service, directory: str, top: Owner, force: bool) -> list[str]:
    """Write the units for systemd into a directory; return the paths written. Raises Permanent, Temporary.

    That of a command of queuectl is one alone: it logs only how it begins and ends, which the journal has.
    """
    if service.words:
        maker = Maker(top)
        maker.directory(directory, 0o755)
        command = [service.start, "--home", service.home.path, *part_options(service.part), *service.words]
        system = service.account is not None
        name, text = command_unit(service.words[0], service.home.path, service.part, command, system)
        _write(maker, f"{directory}/{name}", text, 0o644, force)
        with unable_to("sync", directory):
            maker.commit.sync()
        return maker.made
    logger = _find_logger()
    facts = UnitFacts(
        unit_name(service.home.path, service.smtpd) + (f"-{service.part}" if service.part else ""), service.home.path,
        service.start, logger_words(logger, service.log, WEEK), service.log, service.account, systemd_version(),
        service.smtpd, part_options(service.part),
    )  # fmt: skip
    facts = facts._replace(logger=[shutil.which(logger, path=_PATH) or logger, *facts.logger[1:]])
    maker = Maker(top)
    maker.directory(directory, 0o755)
    made = _make_log(service, maker.commit)
    for name, text in units(facts).items():
        _write(maker, f"{directory}/{name}", text, 0o644, force)
    with unable_to("sync", directory):
        maker.commit.sync()
    return maker.made + made


def _find_logger() -> str:
    for logger in LOGGERS[SYSTEMD]:
        if shutil.which(logger, path=_PATH):
            return logger
    raise Permanent(
        "unable to write units: there is no logger; install multilog (daemontools), svlogd (runit) or s6-log (s6)"
    )


def systemd_version() -> int:
    """Return the version of systemd, 0 if there is none."""
    try:
        done = subprocess.run(["systemctl", "--version"], capture_output=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    word = (done.stdout.split() or [b""])[1:2]
    return int(word[0]) if word and word[0].isdigit() else 0


def _make_log(service: Service, commit: Commit) -> list[str]:
    """Make the directory of the log, with svlogd's config; return the paths made."""
    above = Maker(service.log_owner, commit)
    above.directory(service.log, DIRECTORY_MODE)
    # The logger's account owns the directory, and may have put links there.
    with Tree(service.log) as tree:
        config = Maker(service.log_owner, tree=tree)
        config.file(f"{service.log}/config", svlogd_config(WEEK), 0o640)
        tree.sync()
    return above.made + config.made


def _write(maker: Maker, path: str, text: bytes, mode: int, force: bool) -> None:
    if os.path.lexists(path):
        with unable_to("read", path):
            if read_given(path) == text and (not mode & 0o100 or os.access(path, os.X_OK)):
                return
        if not force:
            complain("queuectl", f"warning: {path} differs and stays as it is; --force replaces it")
            return
    maker.replace(path, text, mode)


def find_service(
    home: Home, owner: Owner, log: str | None, *, smtpd: bool = False, part: str = "", words: tuple[str, ...] = ()
) -> Service:
    """Return the service of queue-start, of queue-smtpd, or of a command of queuectl whose words these are.

    It logs to a directory (None: the default). `part` is one of several queues, or INTAKE. Raises Permanent.
    """
    logger, log_owner = _log_account(home, owner)
    kind = "smtpd" if smtpd else words[0] if words else ""
    directory = os.path.abspath(log) if log else _log_directory(home, logger) + (f"-{kind}" if kind else "")
    directory += f"-{part}" if part else ""
    start = _program("queue-smtpd" if smtpd else "queuectl" if words else "queue-start")
    return Service(home, start, directory, logger, log_owner, smtpd, part, words)


def _program(name: str) -> str:
    """Return the path of a program of the suite, next to queuectl or on PATH. Raises Permanent."""
    beside = program_path(name)
    found = beside if os.access(beside, os.X_OK) else shutil.which(name)
    if found is None:
        raise Permanent(f"unable to find {name}: it is neither at {beside} nor on PATH; install the whole suite")
    return os.path.abspath(found)


def _log_directory(home: Home, account: str | None) -> str:
    """Return the default directory of the log: below /var/log if the system's account writes it, else in the home."""
    return f"{home.path}/log" if account is None else f"/var/log/{os.path.basename(home.path.rstrip('/')) or 'queue'}"


def _log_account(home: Home, owner: Owner) -> tuple[str | None, Owner]:
    """Return the account for the logger (None: the one that starts it) and its ids. Raises Permanent."""
    me = myself()
    if owner.uid == me.uid:
        return None, me
    if owner.uid == account_uid(QUEUE_ACCOUNT):
        return QUEUE_ACCOUNT, Owner(owner.uid, group_gid(LOG_GROUP) or owner.gid)
    raise Permanent(f"unable to write a service: {home.owned} belongs to uid {owner.uid}; let that user make it")
