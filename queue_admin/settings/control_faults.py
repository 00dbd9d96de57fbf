"""What is wrong in control/: values that cannot be used, lines without effect, unknown names and classes, modes.

The daemons' own readers decide. Those of queue-remote are asked by `queue-remote --check`.
"""

import itertools
import os
import pwd
import re
import stat
import subprocess
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

from queue_admin.messages.admin_client import OnDemandClient, runs
from queue_base.accounts import SMTPD_ACCOUNT, Owner, queue_owner
from queue_base.control import find_open_modes, read_control, read_limit_lines, read_me, read_value
from queue_base.control_files import read_rules
from queue_base.daemon.processes import command as program
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_base.queue.class_trees import read_classes
from queue_base.secret_files import read_srs_secrets
from queue_base.server_certificates import ServerCertificates, read_named_files
from queue_wire.control.control_file import ONE_VALUE, check
from queue_wire.control.destinationlimits import warn_of
from queue_wire.control.hostmap import host_key
from queue_wire.control.lines import numbered_lines
from queue_wire.control.listeners import IMPLICIT_TLS, ON_DEMAND, unpack_listener
from queue_wire.control.localroutes import matches_nothing
from queue_wire.control.ondemand import on_demand_routes, unpack_on_demand_users, unpack_ondemand
from queue_wire.control.registry import (
    BY_NAME,
    CHECKPASSWORD,
    FILES,
    LOCALROUTES,
    OF_QMAIL,
    ONDEMAND,
    PROXYCLIENTS,
    SMTPD,
    SMTPDUSERS,
    SMTPROUTES,
    is_copy,
    nearest_name,
)
from queue_wire.control.rewrite import LOCAL, rewrite
from queue_wire.control.smtpdcert import unpack_certificate_lines
from queue_wire.control.smtproutes import unpack_routes
from queue_wire.control.srs_domain import unpack_srs_domain
from queue_wire.format_error import FormatError, LineError, quoted

# The files whose contents only queue-remote can check.
OF_REMOTE = frozenset(("smtpauth", "dkim", "arc"))
_MAKE_SECRET = "`openssl rand -hex 32 | queuectl config set srssecrets -` makes a secret"
PATIENCE = 60.0  # Seconds for queue-remote.
# Files that name others, the first four keys and certificates, the names of which end so.
_NAMING = ("smtpdcert", "dkim", "arc", "tlspolicy", "checkpassword", "remoteprogram")
_OF_CERTIFICATES = (".pem", ".key", ".crt", ".cer")


class ControlFault(NamedTuple):
    """A mistake: the name in control/ (empty for the directory), the line or None, and what is wrong."""

    name: str
    line: int | None
    why: str

    def text(self) -> str:
        """Return it as a line for people."""
        place = f"control/{self.name}" if self.name else "control"
        return f"{place}: {self.why}" if self.line is None else f"{place} line {self.line}: {self.why}"


def find_control_faults(home: Home) -> Iterator[ControlFault]:
    """Yield all mistakes. Raises Temporary if queue-remote cannot be asked, or control/ cannot be read."""
    if not os.path.isdir(home.control):
        raise Temporary(f"unable to read {home.control}: it is not there; queuectl init makes a home")
    faulty = set()
    for path, why in find_open_modes(home):
        yield ControlFault("" if path == home.control else os.path.basename(path), None, why)
    for fault in find_unusable(home):
        faulty.add(fault.name)
        yield fault
    for file in FILES:
        if file.shape in ONE_VALUE and file.name not in faulty:
            yield from _further_lines(file.name, read_control(home, file.name) or b"")
    if "queues" not in faulty:
        yield from _missing_queues(home)
    yield from _idle_lines(home)
    if "localroutes" not in faulty:
        yield from _idle_patterns(home)
    if not faulty & {"smtpd", "smtpdcert"}:
        if (certificates := read_control(home, "smtpdcert")) is not None:
            yield from _certificate_faults(home, certificates)
        yield from _unusable_listeners(home)
    if not faulty & {"ondemand", "ondemandusers"}:
        yield from _idle_customers(home)
    if "ondemand" not in faulty:
        yield from _keeperless_queues(home)
    if not faulty & {"checkpassword", "ondemandusers", "smtpdusers"}:
        yield from _unknown_customers(home)
    yield from _unreadable_users(home)
    if "srs" not in faulty and unpack_srs_domain(read_control(home, "srs")) and (unusable := _srs_fault(home)):
        yield unusable
    if not faulty & {"ondemand", "me", "locals", "percenthack", "virtualdomains", "envnoathost"}:
        yield from _local_on_demand(home)
    if not faulty & {"ondemand", "smtproutes"}:
        yield from _routed_twice(home)
    yield from _deaf_listeners(home)
    yield from _unknown_classes(home, faulty)
    if "checkpassword" not in faulty:
        yield from _unusable_program(home)
    yield from _unknown_names(home)


def find_unusable(home: Home, names: Collection[str] = BY_NAME) -> Iterator[ControlFault]:
    """Yield a fault of each of these files that cannot be used. Raises Temporary if queue-remote cannot be asked."""
    faulty = set()
    there = set()
    for file in FILES:
        if file.name not in names:
            continue
        try:
            data = read_control(home, file.name)
            if data is not None:
                there.add(file.name)
                check(file, data)
        except FormatError as error:
            faulty.add(file.name)
            yield _fault(file.name, error)
        except Temporary as error:
            faulty.add(file.name)
            yield _unreadable(file.name, error)
    if "me" in names and "me" not in faulty:
        try:
            read_me(home)
        except Temporary:
            faulty.add("me")
            yield ControlFault("me", None, "it is missing or empty; write this host's name into it")
    # It is a program to start.
    for name, why in ask_remote(home) if there & OF_REMOTE else ():
        if name in names and name not in faulty:
            faulty.add(name)
            line = re.match(r"line ([0-9]+): ", why)
            yield ControlFault(name, int(line[1]) if line else None, why[line.end() :] if line else why)


def _fault(name: str, error: FormatError) -> ControlFault:
    if isinstance(error, LineError):
        return ControlFault(name, error.line, error.why)
    return ControlFault(name, None, str(error))


def _unreadable(name: str, error: Temporary) -> ControlFault:
    """Return the fault for what a reader has said; the file is named once."""
    if isinstance(error.__context__, FormatError):
        return _fault(name, error.__context__)
    if isinstance(error.__context__, OSError):
        return ControlFault(name, None, f"unable to read it: {reason(error.__context__)}")
    return ControlFault(name, None, str(error))


def _further_lines(name: str, data: bytes) -> Iterator[ControlFault]:
    """Yield the first line behind that of a file with one value, which nobody reads, unless it is a comment."""
    for number, _ in [found for found in numbered_lines(data) if found[0] > 1][:1]:
        yield ControlFault(name, number, "only the first line of this file counts; remove this one")


def _missing_queues(home: Home) -> Iterator[ControlFault]:
    """Yield the lines of control/queues whose queue is not there. Its service does not start, and it takes no mail."""
    if home.several and not os.path.isdir(home.run):
        yield ControlFault("queues", None, f"{home.run} is not there; queuectl init makes it")
    lines = numbered_lines(read_control(home, "queues") or b"")
    for (number, _), (name, path) in zip(lines, home.queues.items() if lines else (), strict=True):
        what = path if not os.path.isdir(path) else f"{path}/mess"
        if not os.path.isdir(what):
            why = f"{what} is not there; mount its disk, or queuectl --queue {name} init makes it"
            yield ControlFault("queues", number, why)


def check_new(home: Home, name: str, data: bytes) -> ControlFault | None:
    """Return what is wrong with contents that are meant for a control file. Raises Temporary."""
    try:
        check(BY_NAME[name], data)
    except FormatError as error:
        return _fault(name, error)
    if BY_NAME[name].shape in ONE_VALUE and data.partition(b"\n")[2].strip():
        return ControlFault(name, 2, "this file has one line")
    if name == "srs" and unpack_srs_domain(data) and (unusable := _srs_fault(home)) is not None:
        return unusable
    if name == "smtpdcert":
        for fault in _certificate_faults(home, data):
            return fault
    for _, why in ask_remote(home, name, data) if name in OF_REMOTE else ():
        return ControlFault(name, None, why)
    return None


def ask_remote(home: Home, *of: str | bytes) -> list[tuple[str, str]]:
    """Return (name, what is wrong) by queue-remote, for the home, or for a name and contents. Raises Temporary."""
    words = [os.fsencode(word) for word in program("queue-remote", home, "--check")]
    name, data = of or ("", b"")
    try:
        done = subprocess.run(
            [*words, name] if name else words, input=data, capture_output=True, check=False, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired as error:
        raise Temporary(f"unable to ask queue-remote: no answer in {PATIENCE:.0f} s; try again") from error
    except OSError as error:
        raise Temporary(f"unable to run queue-remote: {reason(error)}") from error
    if done.returncode:
        why = done.stderr.decode("utf-8", "backslashreplace").strip() or f"it ended with {done.returncode}"
        raise Temporary(f"unable to ask queue-remote: {why}")
    lines = [line.partition("\t") for line in done.stdout.decode("utf-8", "backslashreplace").splitlines()]
    return [(name, why) for name, _, why in lines]


def _idle_lines(home: Home) -> Iterator[ControlFault]:
    """Yield the lines of destinationlimits and destinationrate that can match nothing; none if a file is unusable."""
    try:
        routes = read_value(home, SMTPROUTES)
        local_routes = read_value(home, LOCALROUTES)
        found = list(warn_of(read_limit_lines(home), routes, read_rules(home), local_routes))
    except Temporary:
        return
    for where, why in found:
        name, _, number = where.partition(", ")[0].partition(" line ")
        yield ControlFault(name, int(number), f"{why}; the line has no effect")


def _idle_patterns(home: Home) -> Iterator[ControlFault]:
    """Yield the lines of localroutes with a `*` where it is none."""
    for number, line in numbered_lines(read_control(home, "localroutes") or b""):
        key = line.partition(b":")[0].strip()
        if matches_nothing(key):
            why = f"{quoted(key)} can match nothing; a pattern is name-*@domain or name+*@domain"
            yield ControlFault("localroutes", number, f"{why}, and for all names there are domain and .domain")


def _certificate_faults(home: Home, data: bytes) -> Iterator[ControlFault]:
    """Yield the lines of smtpdcert that queue-smtpd could not use, if this user has the rights with which it reads."""
    if _runs_the_server(home):
        for each in read_named_files(home, unpack_certificate_lines(data)):
            for why in ServerCertificates().take([each]):
                yield ControlFault("smtpdcert", _line_of(data, each.key), why)


def _line_of(data: bytes, key: bytes) -> int | None:
    """Return the number of the line of a file of `key:value` lines that has a key."""
    for number, line in numbered_lines(data):
        name = line.partition(b":")[0].strip()
        if key in (name, host_key(name)):
            return number
    return None


def _runs_the_server(home: Home) -> bool:
    """Return whether this user is root, or the owner of control/."""
    return os.geteuid() in (0, os.stat(home.control).st_uid)


def _unusable_program(home: Home) -> Iterator[ControlFault]:
    """Yield what keeps queue-smtpd from running the program of control/checkpassword."""
    words = read_value(home, CHECKPASSWORD)
    if not words or not _runs_the_server(home):
        return
    path = os.fsdecode(words[0])
    try:
        runs = Owner(os.geteuid(), os.getegid())
        account = "this user"
        if _smtpd_leaves_root(home):
            found = pwd.getpwnam(SMTPD_ACCOUNT)
            runs, account = Owner(found.pw_uid, found.pw_gid), f"account {SMTPD_ACCOUNT}"
        if not stat.S_ISREG(os.stat(path).st_mode):
            yield ControlFault("checkpassword", 1, f"unable to run {path}: it is not a regular file")
        elif denied := _first_denied(path, runs):
            why = "" if denied == path else f", because of {denied}"
            yield ControlFault("checkpassword", 1, f"{account} may not run {path}{why}; chmod a+x allows it")
    except OSError as error:
        yield ControlFault("checkpassword", 1, f"unable to run {path}: {reason(error)}")
    except KeyError:
        return  # Another account runs queue-smtpd.


def _first_denied(path: str, runs: Owner) -> str:
    """Return the first directory to a program, or the program, that an account may not execute; else nothing.

    Another account than this one has no groups but its own. Raises OSError.
    """
    real = os.path.realpath(path)
    parents = [real[:at] or "/" for at in range(len(real)) if real[at] == "/"]
    for each in (*parents, real):
        if runs.uid == os.geteuid():
            allowed = os.access(each, os.X_OK)
        else:
            found = os.stat(each)
            bit = 0o100 if found.st_uid == runs.uid else 0o010 if found.st_gid == runs.gid else 0o001
            allowed = bool(found.st_mode & bit)
        if not allowed:
            return path if each == real else each
    return ""


def _unusable_listeners(home: Home) -> Iterator[ControlFault]:
    """Yield the lines of control/smtpd on which nobody could send mail, since nobody can authenticate there."""
    there = {
        name
        for name in ("smtpdcert", "smtpdusers", "checkpassword", "relayclients", "ondemand", "ondemandusers")
        if os.path.exists(f"{home.control}/{name}")
    }
    for number, line in numbered_lines(read_control(home, "smtpd") or b""):
        listener = unpack_listener(line)
        role = f"role {listener.role.value}"
        if listener.role in IMPLICIT_TLS and "smtpdcert" not in there:
            yield ControlFault("smtpd", number, f"{role} needs a certificate, which control/smtpdcert would name")
        elif listener.role in ON_DEMAND and not {"ondemand", "ondemandusers"} <= there:
            why = "control/ondemandusers says who may, and control/ondemand which domains are `atrn`"
            yield ControlFault("smtpd", number, f"nobody can take mail by {role}: {why}")
        elif listener.role.for_users and (listener.role in ON_DEMAND or "relayclients" not in there):
            if "smtpdcert" not in there:
                why = "no AUTH is offered without a certificate, which control/smtpdcert would name"
            elif not there & {"smtpdusers", "checkpassword"}:
                why = "there are no users; queuectl passwd makes one"
            elif listener.noauth:
                why = "with `noauth` no AUTH is offered, and there is no control/relayclients"
            else:
                continue
            what = "nobody may take mail" if listener.role in ON_DEMAND else "only programs of this host may send"
            yield ControlFault("smtpd", number, f"{what} by {role}: {why}")


def _idle_customers(home: Home) -> Iterator[ControlFault]:
    """Yield the domains of control/ondemandusers that have no ATRN, and those with ATRN that no user has."""
    data, users = (read_control(home, name) or b"" for name in ("ondemand", "ondemandusers"))
    lines = unpack_ondemand(data)
    taken = set()
    for number, text in numbered_lines(users):
        for domain in itertools.chain.from_iterable(unpack_on_demand_users(text).values()):
            taken.add(domain)
            if domain not in lines or not lines[domain].turns:
                why = f"{quoted(domain)} has no line with `atrn` in control/ondemand, so its user gets 451"
                yield ControlFault("ondemandusers", number, why)
    for domain, line in lines.items():
        if line.turns and domain not in taken:
            why = f"{quoted(domain)} has no user in control/ondemandusers, so nobody can take its mail"
            yield ControlFault("ondemand", _line_of(data, domain), why)


def _unknown_customers(home: Home) -> Iterator[ControlFault]:
    """Yield the users of control/ondemandusers who have no password; none if a program knows the passwords."""
    found = read_value(home, SMTPDUSERS)
    if found is None or read_control(home, "checkpassword") is not None:
        return
    data = read_control(home, "ondemandusers") or b""
    for user in unpack_on_demand_users(data):
        if user not in found.users:
            why = f"there is no user {quoted(user)} in control/smtpdusers; queuectl passwd makes one"
            yield ControlFault("ondemandusers", _line_of(data, user), why)


def _unreadable_users(home: Home) -> Iterator[ControlFault]:
    """Yield that queue-smtpd may not read the users, if this user is root: it reads them as its own account."""
    try:
        found = os.stat(f"{home.control}/smtpdusers")
        account = pwd.getpwnam(SMTPD_ACCOUNT)
    except (OSError, KeyError):
        return
    if _smtpd_leaves_root(home) and not _may_read(found, Owner(account.pw_uid, account.pw_gid)):
        why = f"account {SMTPD_ACCOUNT} may not read it, so nobody can authenticate"
        mend = f"chgrp {SMTPD_ACCOUNT} and chmod 640 allow it"
        yield ControlFault("smtpdusers", None, f"{why}; {mend}")


def _may_read(found: os.stat_result, account: Owner) -> bool:
    bit = 0o400 if found.st_uid == account.uid else 0o040 if found.st_gid == account.gid else 0o004
    return bool(found.st_mode & bit)


def _srs_fault(home: Home) -> ControlFault | None:
    """Return what keeps forwards from being sent, if control/srs has a domain: the secrets are not there, or not safe.

    The forwarder reads them as the owner of the queue.
    """
    path = f"{home.control}/srssecrets"
    try:
        owner = queue_owner(home)
        if os.geteuid() not in (0, owner.uid):
            return None  # This user can tell neither.
        read_srs_secrets(home)
        if os.geteuid() != owner.uid and not _may_read(os.stat(path), owner):
            raise Temporary(f"unable to read {path}: its owner or its group should be that of queue/")
    except (OSError, Temporary) as error:
        return ControlFault("srs", None, f"with it all forwards are deferred: {error}; {_MAKE_SECRET}")
    return None


def _smtpd_leaves_root(home: Home) -> bool:
    """Return whether queue-smtpd runs under its account; not before `queuectl init` has made what queue-smtpd uses."""
    try:
        return os.geteuid() == 0 and queue_owner(home).uid != 0
    except Temporary:
        return False


def lacks_keeper(home: Home) -> bool:
    """Return whether a queue runs without the queue-ondemand that control/ondemand asks for. Raises Temporary."""
    if not read_value(home, ONDEMAND) or not runs(home):
        return False
    try:
        with OnDemandClient(home):
            return False
    except Temporary:
        return True


def _keeperless_queues(home: Home) -> Iterator[ControlFault]:
    """Yield the queues whose suite was started before control/ondemand was made; none if that cannot be told."""
    for one in home.each():
        with suppress(Temporary):
            if lacks_keeper(one):
                which = "" if home.is_chosen else f" in queue {one.name}"
                why = f"queue-ondemand does not run{which}, so nothing is stored; start the suite again"
                yield ControlFault("ondemand", None, why)


def _local_on_demand(home: Home) -> Iterator[ControlFault]:
    """Yield the domains of control/ondemand whose mail is local, and so never stored."""
    try:
        rules = read_rules(home)
    except Temporary:
        return  # No name of this host, which is a fault of its own.
    data = read_control(home, "ondemand") or b""
    for domain in unpack_ondemand(data):
        steps: list[bytes] = []
        if rewrite(b"postmaster@" + domain, rules, steps)[0] is LOCAL:
            by = steps[-1].partition(b":")[0].decode("ascii")
            why = f"{quoted(domain)} is local by control/{by}, so nothing is stored for it; remove it from one of them"
            yield ControlFault("ondemand", _line_of(data, domain), why)


def _routed_twice(home: Home) -> Iterator[ControlFault]:
    """Yield the domains that have a relay in control/ondemand, and a line of their own in control/smtproutes."""
    data = read_control(home, "smtproutes") or b""
    routes = unpack_routes(data)
    for domain in on_demand_routes(read_value(home, ONDEMAND)):
        if domain in routes:
            why = f"{quoted(domain)} has a relay in control/ondemand, so this line is not used; remove one of them"
            yield ControlFault("smtproutes", _line_of(data, domain), why)


def _deaf_listeners(home: Home) -> Iterator[ControlFault]:
    """Yield the listeners for balancers if no host may be one; none if a file is unusable."""
    try:
        read_value(home, SMTPD)
        balancers = read_value(home, PROXYCLIENTS)
    except Temporary:
        return
    for number, line in numbered_lines(read_control(home, "smtpd") or b""):
        each = unpack_listener(line)
        if each.proxy and not balancers:
            why = f"port {each.port} has option proxy, and control/proxyclients has no host; every client is refused"
            yield ControlFault("smtpd", number, why)


def _unknown_classes(home: Home, faulty: Collection[str]) -> Iterator[ControlFault]:
    """Yield the lines that give a class that control/priorities does not name; none of a file that is unusable."""
    if "priorities" in faulty:
        return
    classes = read_classes(home)
    given = []
    if "priorityrules" not in faulty:
        for number, line in numbered_lines(read_control(home, "priorityrules") or b""):
            given.append(("priorityrules", number, line.rpartition(b":")[2].decode("ascii")))
    if "smtpd" not in faulty:
        for number, line in numbered_lines(read_control(home, "smtpd") or b""):
            given.append(("smtpd", number, unpack_listener(line).priority))
    for file, number, name in given:
        if name and name not in classes:
            why = f"there is no class {name} in control/priorities, so it has no effect; the classes are"
            yield ControlFault(file, number, f"{why} {', '.join(classes)}")


def _unknown_names(home: Home) -> Iterator[ControlFault]:
    try:
        with os.scandir(home.control) as entries:
            names = sorted(entry.name for entry in entries if not entry.is_dir())
    except OSError as error:
        raise Temporary(f"unable to read {home.control}: {reason(error)}") from error
    named = _named_files(home)
    for name in names:
        path = os.path.realpath(f"{home.control}/{name}")
        if name in BY_NAME or name in OF_QMAIL or path in named or is_copy(name):
            continue
        if name.endswith(_OF_CERTIFICATES):
            yield ControlFault(name, None, f"no line of control/{', '.join(_NAMING[:3])} or {_NAMING[3]} names it")
            continue
        near = nearest_name(name)
        advice = "" if near is None else f"; the nearest name is {near}"
        yield ControlFault(name, None, f"there is no such control file{advice}")


def _named_files(home: Home) -> set[str]:
    """Return the paths that control files may name: their words, relative to control/."""
    found: set[str] = set()
    for name in _NAMING:
        try:
            data = read_control(home, name)
        except Temporary:
            continue
        words = re.split(r"[\s:=]+", os.fsdecode(data or b""))
        found.update(os.path.realpath(os.path.join(home.control, word)) for word in words)
    return found
