"""The control files: which there are, who reads them, their defaults and ranges, and what they do in one line.

The readers of numbers take their ranges and defaults from the same table (queue_wire.control.lines.NUMBERS and SIZES).
`check` says whether the contents of a file can be used. Formats that only queue-remote knows are checked by
`queue-remote --check`. Pure.
"""

import zlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from queue_wire.control.destinationlimits import unpack_limits, unpack_rates
from queue_wire.control.hostmap import refuse_impossible
from queue_wire.control.lines import (
    NUMBERS,
    SIZES,
    lines_without_colon,
    numbered_lines,
    unpack_line,
    unpack_lines,
    unpack_number,
    unpack_size,
)
from queue_wire.control.locallimits import unpack_local_limits
from queue_wire.control.localroutes import unpack_local_routes
from queue_wire.control.ondemand import unpack_on_demand_users, unpack_ondemand
from queue_wire.control.priorities import unpack_priorities, unpack_priority_rules
from queue_wire.control.relayrecipients import unpack_relay_recipients
from queue_wire.control.schedule import unpack_ages, unpack_schedule
from queue_wire.control.smtproutes import unpack_routes
from queue_wire.control.srs_domain import unpack_srs_domain
from queue_wire.format_error import InLine, LineError, quoted
from queue_wire.logline import escape

# Shapes. A LINE is the first line of the file; a LIST has an entry a line; a MAP has `key:value` lines; a TABLE has
# lines of a form of its own; a TEXT counts as a whole.
NUMBER = "number"
SIZE = "size"
LINE = "line"
LIST = "list"
MAP = "map"
TABLE = "table"
TEXT = "text"
ONE_VALUE = (NUMBER, SIZE, LINE)

# When a change takes effect.
HUP = "HUP"
SECOND = "second"
MESSAGE = "message"
DELIVERY = "delivery"
FORWARD = "forward"
TERM = "TERM"
CONNECTION = "smtpd"
NEXT_AUTH = "AUTH"
START_SMTPD = "smtpd start"
START = "start"


class ControlFile(NamedTuple):
    """One control file. `readers` are programs, `read` says when they read it, `default` is text for people.

    `page` is where docs/ describes it. `secret` is true if its lines may not be shown.
    """

    name: str
    shape: str
    default: str
    what: str
    readers: tuple[str, ...]
    read: str
    page: str
    secret: bool = False

    @property
    def range(self) -> str:
        """What is allowed, for people; empty if there is nothing to say beyond the shape."""
        found = {**NUMBERS, **SIZES}.get(self.name)
        return _RANGES.get(self.name, "") if found is None else f"{found[1]} to {shown_size(self, found[2])}"


def shown_size(file: ControlFile, number: int) -> str:
    """Return a number of a control file as people write it: a size with its unit, such as 16M."""
    if file.shape == SIZE:
        for unit, factor in (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
            if number and number % factor == 0:
                return f"{number // factor}{unit}"
    return str(number)


_RANGES = {
    "longlines": "send, encode, fail",
    "headerfaults": "accept, copy, hold, refuse",
}
_SEND, _TODO, _REMOTE, _LOCAL = ("queue-send",), ("queue-todo",), ("queue-remote",), ("queue-local",)
_SENDERS = ("queue-send", "queue-ondemand")
_INJECTORS, _SMTPD = ("injectors",), ("queue-smtpd",)


def _number(name: str, what: str, readers: tuple[str, ...], read: str, page: str) -> ControlFile:
    default = NUMBERS[name][0]
    unit = " s" if name in _SECONDS else " %" if name in ("retryjitter", "bulkshare") else ""
    return ControlFile(name, NUMBER, f"{default}{unit}", what, readers, read, page)


_SECONDS = frozenset(
    ("classifyafter", "queuelifetime", "bouncelifetime", "timeoutconnect", "timeoutremote", "connectionidle",
     "timeoutprogram", "localtimeout", "timeoutlocal", "localstoptimeout", "etrninterval")
)  # fmt: skip

FILES: tuple[ControlFile, ...] = (
    ControlFile("me", LINE, "none; required", "this host's name", ("all",), f"{HUP}, {CONNECTION}", "below"),
    ControlFile(
        "locals", LIST, "`me`", "domains delivered on this host", (*_TODO, *_SMTPD), f"{HUP}, {CONNECTION}", "below"
    ),
    ControlFile(
        "virtualdomains", MAP, "none", "prefix, by domain or user", (*_TODO, *_SEND, *_SMTPD),
        f"{HUP}, {CONNECTION}", "local",
    ),
    ControlFile(
        "percenthack", LIST, "none", "domains where `user%host` is rewritten", (*_TODO, *_SMTPD),
        f"{HUP}, {CONNECTION}", "below",
    ),
    ControlFile(
        "envnoathost", LINE, "`me`", "domain of a recipient without `@`", (*_TODO, *_SMTPD),
        f"{HUP}, {CONNECTION}", "below",
    ),
    ControlFile("defaulthost", LINE, "`me`", "host of an address without `@`", _INJECTORS, MESSAGE, "sending"),
    ControlFile("defaultdomain", LINE, "`me`", "domain of a host without a dot", _INJECTORS, MESSAGE, "sending"),
    ControlFile("plusdomain", LINE, "`me`", "domain of a host that ends in `+`", _INJECTORS, MESSAGE, "sending"),
    ControlFile("idhost", LINE, "`me`", "host in Message-ID", _INJECTORS, MESSAGE, "sending"),
    ControlFile(
        "queueminfree", SIZE, "`16M`", "free space that the disk needs", (*_INJECTORS, "daemons"), MESSAGE,
        "operating",
    ),
    ControlFile(
        "databytes", SIZE, "`0`, none", "largest message", ("queue-intake", *_SMTPD),
        f"{SECOND}, {CONNECTION}", "receiving",
    ),
    ControlFile(
        "intake", TABLE, "none", "where hosts of the network hand in mail", ("queue-intake", "queue-start"), HUP,
        "receiving",
    ),
    ControlFile("smtpd", TABLE, "`*:25 mx`", "where queue-smtpd listens, and for whom", _SMTPD, START_SMTPD, "SMTP"),
    _number("concurrencyincoming", "connections of clients at once", _SMTPD, CONNECTION, "SMTP"),
    ControlFile(
        "smtpdlimits", TABLE, "`connections 60`, ...", "what strangers may do", _SMTPD, CONNECTION, "SMTP"
    ),
    ControlFile("dnslists", TABLE, "none", "DNS lists of clients that are refused", _SMTPD, CONNECTION, "SMTP"),
    ControlFile("greylist", TABLE, "none", "how strangers are greylisted", _SMTPD, CONNECTION, "SMTP"),
    _number("processessmtpd", "processes of queue-smtpd", _SMTPD, START_SMTPD, "SMTP"),
    ControlFile("smtpdcert", TABLE, "none, no TLS", "certificates, by name", _SMTPD, CONNECTION, "SMTP"),
    ControlFile(
        "smtpdusers", TABLE, "none, no AUTH", "users of AUTH, and hashes of their passwords", _SMTPD, NEXT_AUTH, "SMTP",
        True,
    ),
    ControlFile("checkpassword", LINE, "none", "program that knows the passwords", _SMTPD, CONNECTION, "SMTP"),
    ControlFile(
        "submitters", MAP, "none, each user all", "senders that each user of AUTH may have", _SMTPD, CONNECTION, "SMTP"
    ),
    ControlFile("rcpthosts", LIST, "domains delivered here", "domains that take mail from everybody", _SMTPD,
                CONNECTION, "SMTP"),
    ControlFile("relayrecipients", LIST, "all", "recipients that exist in relayed domains", _SMTPD, CONNECTION, "SMTP"),
    _number("checkrcpt", "whether local recipients are looked up at RCPT; 0: no", _SMTPD, CONNECTION, "SMTP"),
    ControlFile("badmailfrom", LIST, "none", "senders whose mail is refused", _SMTPD, CONNECTION, "SMTP"),
    ControlFile("relayclients", LIST, "this host", "networks that may send to everybody", _SMTPD, CONNECTION, "SMTP"),
    ControlFile("proxyclients", LIST, "none", "load balancers, with the PROXY protocol", _SMTPD, CONNECTION, "SMTP"),
    ControlFile("xclients", LIST, "none", "proxies that may use XCLIENT", _SMTPD, CONNECTION, "SMTP"),
    ControlFile("milters", TABLE, "none", "milters that look at mail that comes in", _SMTPD, CONNECTION, "SMTP"),
    ControlFile("headerfaults", LINE, "`accept`", "mail with broken headers", _SMTPD, CONNECTION, "SMTP"),
    ControlFile(
        "priorities", LIST, "`normal`, `bulk`", "classes", (*_INJECTORS, *_TODO, *_SEND),
        f"{MESSAGE}, {START}", "operating",
    ),
    ControlFile(
        "priorityrules", TABLE, "none", "classes by user and sender", _INJECTORS, f"{MESSAGE}, {SECOND}", "operating"
    ),
    _number("bulkshare", "places of lower classes while the first waits", _SEND, HUP, "operating"),
    _number("classifyafter", "when waiting new mail is classified", _SEND, HUP, "operating"),
    _number("concurrencylocal", "local deliveries at once; 0: none", _SEND, HUP, "operating"),
    _number("concurrencyremote", "remote deliveries at once; 0: none", _SEND, HUP, "operating"),
    _number("processesremote", "queue-remotes that run", ("queue-start",), START, "operating"),
    ControlFile(
        "queuefilesystem", LIST, "none", "network file systems that the queue may be on", ("queue-start",), START,
        "operating",
    ),
    ControlFile("queues", TABLE, "`queue`", "directories of the queues", ("all",), START, "queues"),
    _number("activelimit", "messages in memory, for each channel", _SEND, HUP, "operating"),
    _number("queuelifetime", "how long a message is tried", _SEND, HUP, "operating"),
    _number("bouncelifetime", "how long a bounce is tried", _SEND, HUP, "operating"),
    ControlFile("delaywarning", TABLE, "none", "ages at which the sender is told of a delay", _SEND, HUP, "operating"),
    ControlFile(
        "retryschedule", LINE, "`quadratic`", "when a deferred message is tried again", _SEND, HUP, "operating"
    ),
    _number("retryjitter", "by how much retries are spread; 0 for quadratic", _SEND, HUP, "operating"),
    _number("destinationrecipients", "recipients in one job", _SEND, HUP, "operating"),
    _number("destinationinitial", "jobs at once to a nexthop, at first", _SEND, HUP, "operating"),
    _number("destinationconcurrency", "jobs to a nexthop", _SENDERS, HUP, "operating"),
    _number("destinationcohorts", "failed windows until a nexthop is dead", _SEND, HUP, "operating"),
    ControlFile("destinationlimits", TABLE, "none", "limits of single destinations", _SENDERS, HUP, "operating"),
    ControlFile("destinationrate", TABLE, "none", "`name:messages/seconds` lines", _SENDERS, HUP, "operating"),
    ControlFile(
        "bouncefrom", LINE, "`MAILER-DAEMON`", "author of bounces, local part", _SENDERS, HUP, "operating"
    ),
    ControlFile("bouncehost", LINE, "`me`", "author of bounces, domain", _SENDERS, HUP, "operating"),
    ControlFile(
        "doublebounceto", LINE, "`postmaster`", "local part for double bounces", _SENDERS, HUP, "operating"
    ),
    ControlFile("doublebouncehost", LINE, "`me`", "domain for double bounces", _SENDERS, HUP, "operating"),
    ControlFile(
        "smtproutes", MAP, "none", "relays", (*_REMOTE, *_SEND, *_SMTPD), f"{SECOND}, {HUP}, {CONNECTION}",
        "routing", True,
    ),
    ControlFile(
        "localroutes", MAP, "none", "LMTP servers", (*_REMOTE, *_SEND, *_SMTPD),
        f"{SECOND}, {HUP}, {CONNECTION}", "routing",
    ),
    ControlFile(
        "ondemand", MAP, "none", "stored mail", (*_SEND, "queue-ondemand", *_REMOTE, *_SMTPD),
        f"{HUP}, {CONNECTION}", "stored",
    ),
    ControlFile("ondemandusers", MAP, "none", "domains that users take with ATRN", _SMTPD, CONNECTION, "stored"),
    _number("etrninterval", "time between two ETRN for a domain", ("queue-ondemand",), SECOND, "stored"),
    ControlFile(
        "clustersize", SIZE, "`256K`", "size of files of stored mail", ("queue-ondemand",), SECOND,
        "stored",
    ),
    ControlFile("helohost", TABLE, "`me`", "name in EHLO", _REMOTE, SECOND, "routing"),
    ControlFile("outgoingip", TABLE, "the system's choice", "address to connect from", _REMOTE, SECOND, "routing"),
    _number("timeoutconnect", "time for a connection", _REMOTE, SECOND, "routing"),
    _number("timeoutremote", "time for each reply", _REMOTE, SECOND, "routing"),
    _number("connectionidle", "how long a connection waits for more mail", _REMOTE, SECOND, "routing"),
    _number("connectionmessages", "messages over one connection", _REMOTE, SECOND, "routing"),
    ControlFile("resolver", TABLE, "`/etc/resolv.conf`", "DNS servers", (*_REMOTE, *_SMTPD), f"{SECOND}, {CONNECTION}",
                "routing"),
    ControlFile("tlspolicy", TABLE, "none", "how much TLS a nexthop needs", _REMOTE, SECOND, "TLS"),
    ControlFile("smtpauth", TABLE, "none", "passwords for relays", _REMOTE, SECOND, "AUTH", True),
    ControlFile("dkim", TABLE, "none", "keys that sign mail, by domain", _REMOTE, SECOND, "DKIM"),
    ControlFile("arc", TABLE, "none", "key that seals forwarded mail", (*_REMOTE, *_SMTPD), f"{SECOND}, {CONNECTION}",
                "ARC"),
    ControlFile("remoteprogram", TABLE, "none", "program in the place of SMTP delivery", _REMOTE, SECOND, "routing"),
    _number("timeoutprogram", "time for that program", _REMOTE, SECOND, "routing"),
    ControlFile("longlines", LINE, "`send`", "treatment of lines over 998 bytes", _REMOTE, SECOND, "routing"),
    ControlFile(
        "defaultdelivery", TEXT, "`./Maildir/`", "instructions for users without `.qmail`", _LOCAL, DELIVERY, "local"
    ),
    ControlFile(
        "locallimits", TABLE, "`files 1024`, `core 0`", "what a delivery may use", _LOCAL, DELIVERY, "local"
    ),
    ControlFile("srs", LINE, "none", "domain of rewritten senders of forwards", _LOCAL, DELIVERY, "local"),
    ControlFile("srssecrets", LIST, "none", "secrets of that rewriting", _LOCAL, FORWARD, "local", True),
    _number("localtimeout", "time for a local delivery", _LOCAL, DELIVERY, "local"),
    _number("timeoutlocal", "used if `localtimeout` does not exist", _LOCAL, DELIVERY, "local"),
    _number("localstoptimeout", "how long TERM waits for local deliveries", _LOCAL, TERM, "local"),
)  # fmt: skip
BY_NAME: Mapping[str, ControlFile] = {file.name: file for file in FILES}

# Files of qmail's other programs, and of common patches, that a home of qmail may have in control/.
OF_QMAIL = frozenset(
    (
        "badmailto", "badhelo", "badrcptto", "bigtodo", "brtlimit", "clientca.pem", "clientcert.pem",
        "conf-split", "dh1024.pem", "dh2048.pem", "domainkeys", "doublebouncesubject", "filterargs",
        "goodmailfrom", "goodrcptto", "localiphost", "maxrcpt", "maxrecipients", "moreipme", "morercpthosts",
        "morercpthosts.cdb", "notipme", "notlshosts", "qmqpservers", "qmtproutes", "queuesplit",
        "relaymailfrom", "relaymailfrom.cdb", "rsa512.pem", "servercert.pem", "signatures", "simcontrol",
        "simsizelimit",
        "simversion", "smtpgreeting", "smtpplugins", "spfbehavior", "spfexp", "spfguess", "spfrules", "spp", "taps",
        "timeoutsmtpd", "tlsclientciphers", "tlsclients", "tlshosts", "tlsserverciphers",
    )
)  # fmt: skip
_NEAR = 0.75


def nearest_name(name: str) -> str | None:
    """Return the name that a mistyped one probably means, None if no name is near."""
    # Imported here, because the daemons rarely need it.
    from difflib import get_close_matches

    found = get_close_matches(name, list(BY_NAME), 1, _NEAR)
    return found[0] if found else None


def is_copy(name: str) -> bool:
    """Return whether a name is that of an editor's or administrator's copy, such as `locals~` or `locals.old`."""
    stem = name.lstrip(".#").rstrip("~#").partition(".")[0]
    return name not in BY_NAME and (name.startswith(".") or (stem != name and stem in BY_NAME))


def contents(file: ControlFile, data: bytes) -> bytes:
    """Return the part of the contents that counts: without comments, empty lines and trailing spaces."""
    if file.shape == TEXT:
        return data
    if file.shape in ONE_VALUE:
        return unpack_line(data)
    return b"\n".join(unpack_lines(data))


def check(file: ControlFile, data: bytes) -> None:
    """Raise FormatError, mostly LineError, if the contents of a control file cannot be used, or a line has no effect.

    A FormatError of queue-remote's own formats is left to `queue-remote --check`.
    """
    if b"\0" in data:
        raise LineError(data.count(b"\n", 0, data.index(b"\0")) + 1, "it holds a NUL byte")
    strays = lines_without_colon(data) if file.shape == MAP else []
    if strays and file.name not in _WHOLE:
        raise LineError(strays[0], NO_COLON)
    if file.name in _KEYS:
        for number, line in numbered_lines(data):
            with InLine(number):
                refuse_impossible(line.partition(b":")[0] if file.shape == MAP else line.lstrip())
    if file.name in _CHECKS:
        _CHECKS[file.name](data)
    elif file.shape == NUMBER:
        unpack_number(data, file.name)
    elif file.shape == SIZE:
        unpack_size(data, file.name)
    elif file.name == "me" and not unpack_line(data):
        raise LineError(1, "it is empty; write this host's name into it")


# Lists and maps of domains and addresses whose own readers take any bytes.
_KEYS = frozenset(("locals", "percenthack", "virtualdomains", "rcpthosts", "badmailfrom", "relayrecipients"))
NO_COLON = "it has no colon, and has no effect"
# Their own readers refuse a line without a colon, and say what it is to be.
_WHOLE = frozenset(("ondemand", "ondemandusers"))
EMPTY_LOCALS = "it is empty, so no domain would be local; a line `# none` says that this is meant"


def _check_schedule(data: bytes) -> None:
    with InLine(1):
        unpack_schedule(unpack_line(data))


def _check_locals(data: bytes) -> None:
    if not data.strip():
        raise LineError(1, EMPTY_LOCALS)


def _check_networks(data: bytes) -> None:
    # Imported here, because the daemons that read other files need no addresses.
    from queue_wire.control.networks import unpack_networks

    unpack_networks(data)


def _check_smtpd_limits(data: bytes) -> None:
    from queue_wire.control.strangers.smtpdlimits import unpack_smtpd_limits

    unpack_smtpd_limits(data)


def _check_dns_lists(data: bytes) -> None:
    from queue_wire.control.strangers.dnslists import unpack_dns_lists

    unpack_dns_lists(data)


def _check_greylist(data: bytes) -> None:
    from queue_wire.control.strangers.greylist import unpack_greylist

    unpack_greylist(data)


def _check_listeners(data: bytes) -> None:
    from queue_wire.control.listeners import unpack_listeners

    if not unpack_listeners(data):
        raise LineError(1, "it has no line, so nobody could connect")


def _check_certificates(data: bytes) -> None:
    from queue_wire.control.smtpdcert import unpack_certificate_lines

    unpack_certificate_lines(data)


def _check_bad_senders(data: bytes) -> None:
    for number, line in numbered_lines(data):
        if not line.rpartition(b"@")[2] or b"@" not in line or line[:1] == b"<":
            raise LineError(number, f"neither an address nor @domain, so no sender matches: {quoted(line)}")


def _check_hosts(data: bytes) -> None:
    for number, line in numbered_lines(data):
        if len(line.split()) > 1 or set(b"@*<>") & set(line):
            raise LineError(number, f"neither a domain nor .domain, so no recipient matches: {quoted(line)}")


def _check_users(data: bytes) -> None:
    from queue_wire.control.smtpdusers import unpack_users

    unpack_users(data)


def _check_submitters(data: bytes) -> None:
    from queue_wire.control.smtpdusers import unpack_submitters

    unpack_submitters(data)
    for number, line in numbered_lines(data):
        with InLine(number):
            for sender in line.partition(b":")[2].split():
                refuse_impossible(sender)


def _check_program(data: bytes) -> None:
    from queue_wire.control.smtpdusers import unpack_program

    unpack_program(data)


def _check_milters(data: bytes) -> None:
    from queue_wire.control.milters import unpack_milters

    unpack_milters(data)


def _check_header_faults(data: bytes) -> None:
    from queue_wire.control.milters import unpack_header_faults

    unpack_header_faults(data)


def _check_long_lines(data: bytes) -> None:
    word = unpack_line(data).strip().lower()
    if word not in (b"", b"send", b"encode", b"fail"):
        raise LineError(1, "not send, encode or fail")


def _check_queues(data: bytes) -> None:
    from queue_wire.control.queues import unpack_queues

    unpack_queues(data, "/home")


def _check_intake(data: bytes) -> None:
    # Imported here because addresses of networks take time to import, and few programs need them.
    from queue_wire.control.intake_hosts import unpack_intake

    unpack_intake(data)


_CHECKS: Mapping[str, Callable[[bytes], object]] = {
    "locals": _check_locals,
    "delaywarning": unpack_ages,
    "retryschedule": _check_schedule,
    "destinationlimits": unpack_limits,
    "destinationrate": unpack_rates,
    "smtproutes": unpack_routes,
    "intake": _check_intake,
    "priorities": unpack_priorities,
    "priorityrules": unpack_priority_rules,
    "queues": _check_queues,
    "localroutes": unpack_local_routes,
    "ondemand": unpack_ondemand,
    "ondemandusers": unpack_on_demand_users,
    "locallimits": unpack_local_limits,
    "relayclients": _check_networks,
    "proxyclients": _check_networks,
    "xclients": _check_networks,
    "relayrecipients": unpack_relay_recipients,
    "smtpd": _check_listeners,
    "smtpdlimits": _check_smtpd_limits,
    "dnslists": _check_dns_lists,
    "greylist": _check_greylist,
    "smtpdcert": _check_certificates,
    "rcpthosts": _check_hosts,
    "badmailfrom": _check_bad_senders,
    "smtpdusers": _check_users,
    "checkpassword": _check_program,
    "submitters": _check_submitters,
    "milters": _check_milters,
    "headerfaults": _check_header_faults,
    "longlines": _check_long_lines,
    "srs": unpack_srs_domain,
}

SHOWN_MAX = 100  # Bytes of a value in a log line.


def shown_value(file: ControlFile, data: bytes | None) -> str:
    """Return the value as the log and queuectl show it: one value as it is, else the number of lines; or `default`."""
    if data is None:
        return "default"
    if file.shape in ONE_VALUE:
        return escape(unpack_line(data)[:SHOWN_MAX]).decode("ascii") or "empty"
    count = len(unpack_lines(data))
    return "1 line" if count == 1 else f"{count} lines"


def fingerprint(file: ControlFile, data: bytes | None) -> str:
    """Return a check sum of what counts in the contents, by which two readings are compared; `-` for no file."""
    return "-" if data is None else f"{zlib.crc32(contents(file, data)):08x}"


def describe_changes(old: Mapping[str, bytes | None], new: Mapping[str, bytes | None]) -> list[str]:
    """Return a line for each file whose contents differ, such as `concurrencyremote 40, was default`."""
    found = []
    for file in FILES:
        before, after = old.get(file.name), new.get(file.name)
        if fingerprint(file, before) == fingerprint(file, after):
            continue
        was, now = shown_value(file, before), shown_value(file, after)
        found.append(f"{file.name} {now}, was {was}" if was != now else f"{file.name} {now}, changed")
    return found
