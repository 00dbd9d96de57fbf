"""The control files: a row for each, and what a name in control/ may mean.

A new one is its row here and the program that uses its value; the table of docs/configure.md and queue-control(5) are
made of the rows. The constant of a file has its name in capitals. Pure.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from queue_wire.control.control_file import (
    CONNECTION,
    DELIVERY,
    FORWARD,
    HUP,
    LINE,
    LIST,
    MAP,
    MESSAGE,
    NEXT_AUTH,
    NUMBER,
    SECOND,
    SIZE,
    START,
    START_SMTPD,
    TABLE,
    TERM,
    TEXT,
    ControlFile,
    fingerprint,
    shown_value,
)
from queue_wire.control.hostmap import refuse_impossible
from queue_wire.control.lines import (
    FREE_BOUNDS,
    lines_without_colon,
    numbered_lines,
    shown_size,
    unpack_line,
    unpack_number,
    unpack_set,
    unpack_size,
    unpack_word,
)
from queue_wire.format_error import InLine, LineError, quoted

if TYPE_CHECKING:
    from queue_wire.control.choices import Choices, SourceAddresses
    from queue_wire.control.destinationlimits import LimitLine
    from queue_wire.control.intake_hosts import IntakeListener
    from queue_wire.control.listeners import Listener
    from queue_wire.control.milters import MilterLine
    from queue_wire.control.networks import Network
    from queue_wire.control.ondemand import OnDemandLines, OnDemandUsers
    from queue_wire.control.priorities import PriorityRule
    from queue_wire.control.relayrecipients import RelayRecipients
    from queue_wire.control.schedule import Schedule
    from queue_wire.control.smtpdusers import UserPasswords
    from queue_wire.control.smtproutes import Relay, Routes
    from queue_wire.control.strangers.dnslists import DnsList
    from queue_wire.control.strangers.greylist import GreylistRules
    from queue_wire.control.strangers.smtpdlimits import SmtpdLimits
    from queue_wire.control.tlspolicy import TlsPolicy

NO_COLON = "it has no colon, and has no effect"
EMPTY_LOCALS = "it is empty, so no domain would be local; a line `# none` says that this is meant"
_YEARS = 10 * 365 * 86400
_SECONDS, _PERCENT = " s", " %"

_SEND, _TODO, _REMOTE, _LOCAL = "queue-send", "queue-todo", "queue-remote", "queue-local"
_INJECTORS, _SMTPD, _ONDEMAND, _START = "injectors", "queue-smtpd", "queue-ondemand", "queue-start"
_SENDERS = f"{_SEND}, {_ONDEMAND}"
_CLASSIFIERS = f"{_TODO}, {_SMTPD}"
_REREAD = f"{HUP}, {CONNECTION}"
_ROUTERS = f"{_REMOTE}, {_SEND}, {_SMTPD}"

_rows: list[ControlFile[Any]] = []


def _file(
    name: str, shape: str, parser: Callable[[bytes], Any] | str, default: str, *texts: str, **more: Any
) -> ControlFile[Any]:
    """Add a file. `parser` may be the name of one in a module of its own, or empty if a program alone knows the form.

    `texts` are what the file means, who reads it and when, and the page that describes it, if there is one.
    """
    _rows.append(ControlFile(name, shape, parser or bytes, default, *texts, **more))
    return _rows[-1]


def _number(name: str, bounds: tuple[int, int, int], unit: str, *texts: str, **more: Any) -> ControlFile[int]:
    """Add a number; `bounds` are its default, the least and the most."""
    default, parser = f"{bounds[0]}{unit}", partial(unpack_number, bounds=bounds)
    more |= {"range": f"{bounds[1]} to {bounds[2]}", "bounds": bounds, "absent": bounds[0]}
    return _file(name, NUMBER, parser, default, *texts, **more)


def _size(name: str, bounds: tuple[int, int, int], more: str, *texts: str) -> ControlFile[int]:
    """Add a size in bytes; `more` is text behind its default."""
    default, parser = f"`{shown_size(bounds[0])}`{more}", partial(unpack_size, bounds=bounds)
    allowed = f"{bounds[1]} to {shown_size(bounds[2])}"
    return _file(name, SIZE, parser, default, *texts, range=allowed, bounds=bounds, absent=bounds[0])


def _line(name: str, default: str, *texts: str, **more: Any) -> ControlFile[bytes]:
    """Add a line. That of `me` is what counts without a file whose `default` is that (queue_base.control_files)."""
    return _file(name, LINE, unpack_line, default, *texts, **more)


def _word(name: str, words: tuple[bytes, ...], *texts: str) -> ControlFile[bytes]:
    """Add a choice of words; the first one is the default."""
    shown = [word.decode("ascii") for word in words]
    return _file(name, LINE, partial(unpack_word, words=words), f"`{shown[0]}`", *texts, range=", ".join(shown))


def _refuse_no_name(data: bytes) -> None:
    from queue_wire.control.choices import unpack_name

    if not unpack_line(data):
        raise LineError(1, "it is empty; write this host's name into it")
    with InLine(1):
        unpack_name(unpack_line(data))


def _refuse_strays(data: bytes) -> None:
    for number in lines_without_colon(data)[:1]:
        raise LineError(number, NO_COLON)


# Lists and maps of domains and addresses whose parsers take any bytes.
def _refuse_keys(data: bytes, map: bool = False) -> None:
    for number, line in numbered_lines(data):
        with InLine(number):
            refuse_impossible(line.partition(b":")[0] if map else line.lstrip())


def _refuse_prepends(data: bytes) -> None:
    _refuse_strays(data)
    _refuse_keys(data, True)


def _refuse_locals(data: bytes) -> None:
    _refuse_keys(data)
    if not data.strip():
        raise LineError(1, EMPTY_LOCALS)


def _refuse_hosts(data: bytes) -> None:
    _refuse_keys(data)
    for number, line in numbered_lines(data):
        if len(line.split()) > 1 or set(b"@*<>") & set(line):
            raise LineError(number, f"neither a domain nor .domain, so no recipient matches: {quoted(line)}")


def _refuse_senders(data: bytes) -> None:
    _refuse_keys(data)
    for number, line in numbered_lines(data):
        if not line.rpartition(b"@")[2] or b"@" not in line or line[:1] == b"<":
            raise LineError(number, f"neither an address nor @domain, so no sender matches: {quoted(line)}")


def _refuse_submitters(data: bytes) -> None:
    _refuse_strays(data)
    for number, line in numbered_lines(data):
        with InLine(number):
            for sender in line.partition(b":")[2].split():
                refuse_impossible(sender)


def _refuse_no_line(data: bytes) -> None:
    if not numbered_lines(data):
        raise LineError(1, "it has no line, so nobody could connect")


# fmt: off
ME = _line("me", "none; required", "this host's name", "all", _REREAD, "below", refuse=_refuse_no_name)
LOCALS: "ControlFile[frozenset[bytes] | None]" = _file("locals", LIST, unpack_set, "`me`",
    "domains delivered on this host", _CLASSIFIERS, _REREAD, "below", absent=None, refuse=_refuse_locals)
VIRTUALDOMAINS: "ControlFile[dict[bytes, bytes]]" = _file("virtualdomains", MAP, "rewrite:unpack_prepends", "none",
    "prefix, by domain or user", f"{_TODO}, {_SEND}, {_SMTPD}", _REREAD, "local", refuse=_refuse_prepends)
PERCENTHACK: "ControlFile[frozenset[bytes]]" = _file("percenthack", LIST, unpack_set, "none",
    "domains where `user%host` is rewritten", _CLASSIFIERS, _REREAD, "below", refuse=_refuse_keys)
ENVNOATHOST = _line("envnoathost", "`me`", "domain of a recipient without `@`", _CLASSIFIERS, _REREAD, "below")
DEFAULTHOST = _line("defaulthost", "`me`", "host of an address without `@`", _INJECTORS, MESSAGE, "sending")
DEFAULTDOMAIN = _line("defaultdomain", "`me`", "domain of a host without a dot", _INJECTORS, MESSAGE, "sending")
PLUSDOMAIN = _line("plusdomain", "`me`", "domain of a host that ends in `+`", _INJECTORS, MESSAGE, "sending")
IDHOST = _line("idhost", "`me`", "host in Message-ID", _INJECTORS, MESSAGE, "sending")
QUEUEMINFREE = _size("queueminfree", FREE_BOUNDS, "", "free space that the disk needs", f"{_INJECTORS}, daemons",
    MESSAGE, "operating")
DATABYTES = _size("databytes", (0, 0, 1 << 60), ", none", "largest message", f"queue-intake, {_SMTPD}",
    f"{SECOND}, {CONNECTION}", "receiving")
INTAKE: "ControlFile[list[IntakeListener]]" = _file("intake", TABLE, "intake_hosts:unpack_intake", "none",
    "where hosts of the network hand in mail", f"queue-intake, {_START}", HUP, "receiving", note=5)
SMTPD: "ControlFile[list[Listener]]" = _file("smtpd", TABLE, "listeners:unpack_listeners", "`*:25 mx`",
    "where queue-smtpd listens, and for whom", _SMTPD, START_SMTPD, "SMTP", refuse=_refuse_no_line)
CONCURRENCYINCOMING = _number("concurrencyincoming", (1000, 1, 100_000), "", "connections of clients at once", _SMTPD,
    CONNECTION, "SMTP")
SMTPDLIMITS: "ControlFile[SmtpdLimits]" = _file("smtpdlimits", TABLE, "strangers.smtpdlimits:unpack_smtpd_limits",
    "`connections 60`, ...", "what strangers may do", _SMTPD, CONNECTION, "SMTP")
DNSLISTS: "ControlFile[tuple[DnsList, ...]]" = _file("dnslists", TABLE, "strangers.dnslists:unpack_dns_lists", "none",
    "DNS lists of clients that are refused", _SMTPD, CONNECTION, "SMTP")
GREYLIST: "ControlFile[GreylistRules | None]" = _file("greylist", TABLE, "strangers.greylist:unpack_greylist", "none",
    "how strangers are greylisted", _SMTPD, CONNECTION, "SMTP", absent=None)
PROCESSESSMTPD = _number("processessmtpd", (1, 1, 16), "", "processes of queue-smtpd", _SMTPD, START_SMTPD, "SMTP")
SMTPDCERT: "ControlFile[dict[bytes, tuple[bytes, ...]]]" = _file("smtpdcert", TABLE,
    "smtpdcert:unpack_certificate_lines", "none, no TLS", "certificates, by name", _SMTPD, CONNECTION, "SMTP",
    absent={})
SMTPDUSERS: "ControlFile[UserPasswords | None]" = _file("smtpdusers", TABLE, "smtpdusers:unpack_users", "none, no AUTH",
    "users of AUTH, and hashes of their passwords", _SMTPD, NEXT_AUTH, "SMTP", absent=None, secret=True)
CHECKPASSWORD: "ControlFile[list[bytes]]" = _file("checkpassword", LINE, "smtpdusers:unpack_program", "none",
    "program that knows the passwords", _SMTPD, CONNECTION, "SMTP", absent=[])
SUBMITTERS: "ControlFile[dict[bytes, frozenset[bytes]] | None]" = _file("submitters", MAP,
    "smtpdusers:unpack_submitters", "none, each user all", "senders that each user of AUTH may have", _SMTPD,
    CONNECTION, "SMTP", absent=None, refuse=_refuse_submitters)
RCPTHOSTS: "ControlFile[frozenset[bytes] | None]" = _file("rcpthosts", LIST, "hostmap:unpack_host_set",
    "domains delivered here", "domains that take mail from everybody", _SMTPD, CONNECTION, "SMTP", absent=None,
    refuse=_refuse_hosts)
RELAYRECIPIENTS: "ControlFile[RelayRecipients]" = _file("relayrecipients", LIST,
    "relayrecipients:unpack_relay_recipients", "all", "recipients that exist in relayed domains", _SMTPD, CONNECTION,
    "SMTP", refuse=_refuse_keys)
CHECKRCPT = _number("checkrcpt", (1, 0, 1), "", "whether local recipients are looked up at RCPT; 0: no", _SMTPD,
    CONNECTION, "SMTP")
BADMAILFROM: "ControlFile[frozenset[bytes]]" = _file("badmailfrom", LIST, unpack_set, "none",
    "senders whose mail is refused", _SMTPD, CONNECTION, "SMTP", refuse=_refuse_senders)
RELAYCLIENTS: "ControlFile[tuple[Network, ...] | None]" = _file("relayclients", LIST, "networks:unpack_networks",
    "this host", "networks that may send to everybody", _SMTPD, CONNECTION, "SMTP", absent=None)
PROXYCLIENTS: "ControlFile[tuple[Network, ...]]" = _file("proxyclients", LIST, "networks:unpack_networks", "none",
    "load balancers, with the PROXY protocol", _SMTPD, CONNECTION, "SMTP")
XCLIENTS: "ControlFile[tuple[Network, ...]]" = _file("xclients", LIST, "networks:unpack_networks", "none",
    "proxies that may use XCLIENT", _SMTPD, CONNECTION, "SMTP")
MILTERS: "ControlFile[list[MilterLine]]" = _file("milters", TABLE, "milters:unpack_milters", "none",
    "milters that look at mail that comes in", _SMTPD, CONNECTION, "SMTP")
HEADERFAULTS = _word("headerfaults", (b"accept", b"copy", b"hold", b"refuse"), "mail with broken headers", _SMTPD,
    CONNECTION, "SMTP")
PRIORITIES: "ControlFile[tuple[str, ...]]" = _file("priorities", LIST, "priorities:unpack_priorities",
    "`normal`, `bulk`", "classes", f"{_INJECTORS}, {_TODO}, {_SEND}", f"{MESSAGE}, {START}", "operating")
PRIORITYRULES: "ControlFile[tuple[PriorityRule, ...]]" = _file("priorityrules", TABLE,
    "priorities:unpack_priority_rules", "none", "classes by user and sender", _INJECTORS, f"{MESSAGE}, {SECOND}",
    "operating")
BULKSHARE = _number("bulkshare", (50, 1, 100), _PERCENT, "places of lower classes while the first waits", _SEND, HUP,
    "operating")
CLASSIFYAFTER = _number("classifyafter", (1, 0, 86400), _SECONDS, "when waiting new mail is classified", _SEND, HUP,
    "operating")
# 0: deliveries of the channel are on hold (qmail-send(8)). Each of 16 queue-remotes takes 2,000.
CONCURRENCYLOCAL = _number("concurrencylocal", (10, 0, 10_000), "", "local deliveries at once; 0: none", _SEND, HUP,
    "operating", note=1)
CONCURRENCYREMOTE = _number("concurrencyremote", (250, 0, 32_000), "", "remote deliveries at once; 0: none", _SEND, HUP,
    "operating")
PROCESSESREMOTE = _number("processesremote", (1, 1, 16), "", "queue-remotes that run", _START, START, "operating",
    note=4)
QUEUEFILESYSTEM: "ControlFile[frozenset[bytes]]" = _file("queuefilesystem", LIST, unpack_set, "none",
    "network file systems that the queue may be on", _START, START, "operating")
QUEUES: "ControlFile[dict[str, str]]" = _file("queues", TABLE, "queues:check_queues", "`queue`",
    "directories of the queues", "all", START, "queues", absent={})
ACTIVELIMIT = _number("activelimit", (20_000, 1, 1_000_000), "", "messages in memory, for each channel", _SEND, HUP,
    "operating")
# With 0 every deferral would be a bounce.
QUEUELIFETIME = _number("queuelifetime", (604800, 60, _YEARS), _SECONDS, "how long a message is tried", _SEND, HUP,
    "operating")
BOUNCELIFETIME = _number("bouncelifetime", (86400, 60, _YEARS), _SECONDS, "how long a bounce is tried", _SEND, HUP,
    "operating")
DELAYWARNING: "ControlFile[tuple[int, ...]]" = _file("delaywarning", TABLE, "schedule:unpack_ages", "none",
    "ages at which the sender is told of a delay", _SEND, HUP, "operating")
RETRYSCHEDULE: "ControlFile[Schedule]" = _file("retryschedule", LINE, "schedule:unpack_retry", "`quadratic`",
    "when a deferred message is tried again", _SEND, HUP, "operating")
# The default is 0 for the schedule `quadratic`.
RETRYJITTER = _number("retryjitter", (10, 0, 100), _PERCENT, "by how much retries are spread; 0 for quadratic", _SEND,
    HUP, "operating")
# With addresses of 1,002 bytes, a job with 1,000 recipients has 1 MB.
DESTINATIONRECIPIENTS = _number("destinationrecipients", (50, 1, 1000), "", "recipients in one job", _SEND, HUP,
    "operating")
DESTINATIONINITIAL = _number("destinationinitial", (2, 1, 1_000_000), "", "jobs at once to a nexthop, at first", _SEND,
    HUP, "operating")
DESTINATIONCONCURRENCY = _number("destinationconcurrency", (20, 1, 1_000_000), "", "jobs to a nexthop", _SENDERS, HUP,
    "operating")
DESTINATIONCOHORTS = _number("destinationcohorts", (3, 1, 1_000_000), "", "failed windows until a nexthop is dead",
    _SEND, HUP, "operating")
DESTINATIONLIMITS: "ControlFile[list[LimitLine]]" = _file("destinationlimits", TABLE, "destinationlimits:unpack_limits",
    "none", "limits of single destinations", _SENDERS, HUP, "operating")
DESTINATIONRATE: "ControlFile[list[LimitLine]]" = _file("destinationrate", TABLE, "destinationlimits:unpack_rates",
    "none", "`name:messages/seconds` lines", _SENDERS, HUP, "operating")
BOUNCEFROM = _line("bouncefrom", "`MAILER-DAEMON`", "author of bounces, local part", _SENDERS, HUP, "operating",
    absent=b"MAILER-DAEMON")
BOUNCEHOST = _line("bouncehost", "`me`", "author of bounces, domain", _SENDERS, HUP, "operating")
DOUBLEBOUNCETO = _line("doublebounceto", "`postmaster`", "local part for double bounces", _SENDERS, HUP, "operating",
    absent=b"postmaster")
DOUBLEBOUNCEHOST = _line("doublebouncehost", "`me`", "domain for double bounces", _SENDERS, HUP, "operating")
SMTPROUTES: "ControlFile[Routes]" = _file("smtproutes", MAP, "smtproutes:unpack_routes", "none", "relays", _ROUTERS,
    f"{SECOND}, {HUP}, {CONNECTION}", "routing", refuse=_refuse_strays, note=2)
LOCALROUTES: "ControlFile[Routes]" = _file("localroutes", MAP, "localroutes:unpack_local_routes", "none",
    "LMTP servers", _ROUTERS, f"{SECOND}, {HUP}, {CONNECTION}", "routing", refuse=_refuse_strays, note=2)
ONDEMAND: "ControlFile[OnDemandLines]" = _file("ondemand", MAP, "ondemand:unpack_ondemand", "none", "stored mail",
    f"{_SEND}, {_ONDEMAND}, {_REMOTE}, {_SMTPD}", _REREAD, "stored")
ONDEMANDUSERS: "ControlFile[OnDemandUsers]" = _file("ondemandusers", MAP, "ondemand:unpack_on_demand_users", "none",
    "domains that users take with ATRN", _SMTPD, CONNECTION, "stored")
ETRNINTERVAL = _number("etrninterval", (60, 0, 86400), _SECONDS, "time between two ETRN for a domain", _ONDEMAND,
    SECOND, "stored")
# A run takes the records of one cluster at a time: with 1M, 10,000 of them.
CLUSTERSIZE = _size("clustersize", (256 << 10, 4 << 10, 1 << 20), "", "size of files of stored mail", _ONDEMAND, SECOND,
    "stored")
HELOHOST: "ControlFile[Choices[bytes]]" = _file("helohost", TABLE, "choices:unpack_helohost", "`me`", "name in EHLO",
    _REMOTE, SECOND, "routing")
OUTGOINGIP: "ControlFile[Choices[SourceAddresses]]" = _file("outgoingip", TABLE, "choices:unpack_outgoingip",
    "the system's choice", "address to connect from", _REMOTE, SECOND, "routing")
TIMEOUTCONNECT = _number("timeoutconnect", (60, 1, 3600), _SECONDS, "time for a connection", _REMOTE, SECOND, "routing")
TIMEOUTREMOTE = _number("timeoutremote", (1200, 1, 86400), _SECONDS, "time for each reply", _REMOTE, SECOND, "routing")
CONNECTIONIDLE = _number("connectionidle", (5, 0, 3600), _SECONDS, "how long a connection waits for more mail", _REMOTE,
    SECOND, "routing")
CONNECTIONMESSAGES = _number("connectionmessages", (100, 1, 1_000_000), "", "messages over one connection", _REMOTE,
    SECOND, "routing")
RESOLVER: "ControlFile[list[Relay] | None]" = _file("resolver", TABLE, "nameservers:unpack_resolver",
    "`/etc/resolv.conf`", "DNS servers", f"{_REMOTE}, {_SMTPD}", f"{SECOND}, {CONNECTION}", "routing")
TLSPOLICY: "ControlFile[dict[bytes, TlsPolicy] | None]" = _file("tlspolicy", TABLE, "tlspolicy:unpack_policies", "none",
    "how much TLS a nexthop needs", _REMOTE, SECOND, "TLS", absent=None)
SMTPAUTH: "ControlFile[bytes]" = _file("smtpauth", TABLE, "", "none", "passwords for relays", _REMOTE, SECOND, "AUTH",
    secret=True)
DKIM: "ControlFile[bytes]" = _file("dkim", TABLE, "", "none", "keys that sign mail, by domain", _REMOTE, SECOND, "DKIM",
    note=3)
ARC: "ControlFile[bytes]" = _file("arc", TABLE, "", "none", "key that seals forwarded mail", f"{_REMOTE}, {_SMTPD}",
    f"{SECOND}, {CONNECTION}", "ARC", note=3)
REMOTEPROGRAM: "ControlFile[Choices[tuple[bytes, ...]]]" = _file("remoteprogram", TABLE, "choices:unpack_programs",
    "none", "program in the place of SMTP delivery", _REMOTE, SECOND, "routing")
TIMEOUTPROGRAM = _number("timeoutprogram", (3600, 1, 86400), _SECONDS, "time for that program", _REMOTE, SECOND,
    "routing")
LONGLINES = _word("longlines", (b"send", b"encode", b"fail"), "treatment of lines over 998 bytes", _REMOTE, SECOND,
    "routing")
DEFAULTDELIVERY: "ControlFile[bytes]" = _file("defaultdelivery", TEXT, "", "`./Maildir/`",
    "instructions for users without `.qmail`", _LOCAL, DELIVERY, "local", absent=b"./Maildir/\n")
LOCALLIMITS: "ControlFile[dict[str, int | None]]" = _file("locallimits", TABLE, "locallimits:unpack_local_limits",
    "`files 1024`, `core 0`", "what a delivery may use", _LOCAL, DELIVERY, "local")
SRS: ControlFile[bytes] = _file("srs", LINE, "srs_domain:unpack_srs_domain", "none",
    "domain of rewritten senders of forwards", _LOCAL, DELIVERY, "local")
SRSSECRETS: "ControlFile[bytes]" = _file("srssecrets", LIST, "", "none", "secrets of that rewriting", _LOCAL, FORWARD,
    "local", secret=True)
# maildir(5): a delivery may not take longer, because readers remove files older than 36 hours from tmp/.
LOCALTIMEOUT = _number("localtimeout", (1200, 1, 86400), _SECONDS, "time for a local delivery", _LOCAL, DELIVERY,
    "local")
TIMEOUTLOCAL = _number("timeoutlocal", (1200, 1, 86400), _SECONDS, "used if `localtimeout` does not exist", _LOCAL,
    DELIVERY, "local")
LOCALSTOPTIMEOUT = _number("localstoptimeout", (60, 0, 86400), _SECONDS, "how long TERM waits for local deliveries",
    _LOCAL, TERM, "local")
# fmt: on
FILES: tuple[ControlFile[Any], ...] = tuple(_rows)
BY_NAME: Mapping[str, ControlFile[Any]] = {file.name: file for file in FILES}

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
