"""The control files of the server, as the rules want them."""

import os
from typing import NamedTuple

from queue_base.cdb import Cdb
from queue_base.control import read_control, read_me, read_number, read_parsed, read_rules, read_set, read_size
from queue_base.errors import Temporary
from queue_base.home import Home, enqueue_program
from queue_smtp.auth_server import CRAM_MD5
from queue_smtp.incoming import MessageLimits
from queue_smtp.server_session import ServerSettings
from queue_smtpd.auth.authenticator import AuthOffer
from queue_smtpd.sessions.client_facts import is_this_host
from queue_smtpd.sessions.relay_rules import RelayRules, unpack_hosts_list
from queue_smtpd.sessions.session import NOBODY, SessionSetup
from queue_smtpd.sessions.session_policy import SessionPolicy
from queue_smtpd.strangers.client_limits import ClientLimits
from queue_wire.address import address_key
from queue_wire.control.listeners import IMPLICIT_TLS, ON_DEMAND, Listener, Role, unpack_listeners
from queue_wire.control.localroutes import unpack_local_routes
from queue_wire.control.milters import (
    ACCEPT,
    FilterSetup,
    unpack_arc_authserv,
    unpack_header_faults,
    unpack_milters,
)
from queue_wire.control.nameservers import unpack_resolver
from queue_wire.control.networks import Network, is_listed, unpack_networks
from queue_wire.control.ondemand import OnDemandUsers, unpack_on_demand_users, unpack_ondemand
from queue_wire.control.places import EVERYWHERE
from queue_wire.control.relayrecipients import RelayRecipients, unpack_relay_recipients
from queue_wire.control.smtpdusers import unpack_program, unpack_submitters
from queue_wire.control.smtproutes import Relay, Routes, unpack_routes
from queue_wire.control.strangers.dnslists import DnsList, unpack_dns_lists
from queue_wire.control.strangers.greylist import GreylistRules, unpack_greylist
from queue_wire.control.strangers.smtpdlimits import SmtpdLimits, unpack_smtpd_limits

# Fields of a message that milters are asked about.
FIELDS_MAX = 1_000


class MoreHosts:
    """control/morercpthosts.cdb, as qmail-newmrh makes it: a set of domains. Looking into it raises what goes wrong."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __contains__(self, host: object) -> bool:
        """Return whether a domain is there. Raises OSError, FormatError."""
        assert isinstance(host, bytes)
        try:
            handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        try:
            return Cdb(handle).get(host) is not None
        finally:
            os.close(handle)


class SmtpdConfig(NamedTuple):
    """The control files. `databytes` is the largest message in bytes; 0: no limit. `concurrency` counts connections.

    `checkpassword` is a program with its arguments, empty if there is none. `resolver` has the DNS servers, None for
    those of /etc/resolv.conf. `greylist` is None if there is no greylisting. `filters` are those of all roles. The
    hosts of `proxyclients` may send a PROXY header, those of `xclients` XCLIENT. `authserv` are the authserv-ids of
    this host, in lower case. `etrn`: there are on-demand domains. `customers` are the users of ATRN.
    """

    me: bytes
    rules: RelayRules
    databytes: int
    concurrency: int
    checkpassword: list[bytes]
    limits: SmtpdLimits
    dnslists: tuple[DnsList, ...]
    resolver: list[Relay] | None
    greylist: GreylistRules | None
    filters: FilterSetup = FilterSetup()
    proxyclients: tuple[Network, ...] = ()
    xclients: tuple[Network, ...] = ()
    authserv: frozenset[bytes] = frozenset()
    etrn: bool = False
    customers: OnDemandUsers = NOBODY

    def trusts_program(self, client: str, server: str) -> bool:
        """Return whether a client that is connected without a PROXY header may relay as a program of this host.

        One that may speak for others may not: strangers come through it.
        """
        if self.rules.relayclients is not None or is_listed(client, (*self.proxyclients, *self.xclients)):
            return False
        return is_this_host(client, server)


def read_config(home: Home) -> SmtpdConfig:
    """Read the control files. Raises Temporary, naming the file."""
    me = read_me(home)
    rules = RelayRules(
        me=me,
        classify=read_rules(home),
        rcpthosts=read_parsed(home, "rcpthosts", unpack_hosts_list),
        morercpthosts=MoreHosts(f"{home.control}/morercpthosts.cdb"),
        badmailfrom=frozenset(map(address_key, read_set(home, "badmailfrom") or ())),
        relayclients=read_parsed(home, "relayclients", unpack_networks),
        relayrecipients=read_parsed(home, "relayrecipients", unpack_relay_recipients) or RelayRecipients(),
        localroutes=read_parsed(home, "localroutes", unpack_local_routes) or {},
        smtproutes=_read_relays(home),
        checkrcpt=bool(read_number(home, "checkrcpt")),
        submitters=read_parsed(home, "submitters", unpack_submitters),
    )
    program = read_parsed(home, "checkpassword", unpack_program) or []
    filters = FilterSetup(
        tuple(read_parsed(home, "milters", unpack_milters) or ()),
        read_parsed(home, "headerfaults", unpack_header_faults) or ACCEPT,
        _named_program(),
    )
    sealed = read_parsed(home, "arc", unpack_arc_authserv) or b""
    authserv = {me.strip().lower(), sealed, *[each.authserv for each in filters.milters]}
    return SmtpdConfig(
        me,
        rules,
        read_size(home, "databytes"),
        read_number(home, "concurrencyincoming"),
        program,
        read_parsed(home, "smtpdlimits", unpack_smtpd_limits) or SmtpdLimits(),
        read_parsed(home, "dnslists", unpack_dns_lists) or (),
        read_parsed(home, "resolver", unpack_resolver),
        read_parsed(home, "greylist", unpack_greylist),
        filters,
        read_parsed(home, "proxyclients", unpack_networks) or (),
        read_parsed(home, "xclients", unpack_networks) or (),
        frozenset(authserv - {b""}),
        # Whether there is one; queue-ondemand reads its lines.
        read_control(home, "ondemand") is not None,
        read_parsed(home, "ondemandusers", unpack_on_demand_users) or {},
    )


def _read_relays(home: Home) -> Routes:
    """Return smtproutes, with None for the domains of control/ondemand.

    If they cannot be used queue-remote defers the mail and says why. Mail is taken meanwhile, and no server is asked.
    """
    try:
        routes = read_parsed(home, "smtproutes", unpack_routes) or {}
        stored = read_parsed(home, "ondemand", unpack_ondemand) or {}
    except Temporary:
        return {}
    return {**routes, **dict.fromkeys(stored)}


def read_contents(home: Home) -> dict[str, bytes | None]:
    """Return what the files have that count until the next reading, by their names; not of those that are not used.

    Raises Temporary.
    """
    # Imported here: it takes 10 ms, which each connection under tcpserver would take, and the daemon alone needs it.
    from queue_wire.control.registry import CONNECTION, FILES

    found = {}
    for name in [file.name for file in FILES if CONNECTION in file.read.split(", ")]:
        try:
            found[name] = read_control(home, name)
        except Temporary:
            # Root reads the former, and mail is taken without the latter (_read_relays).
            if name not in ("smtpdcert", "smtproutes"):
                raise
    return found


def _named_program() -> str:
    """Return the program that the environment names in the place of queue-enqueue, or "". Raises Temporary."""
    variable, program = enqueue_program() or ("", "")
    if program and not os.path.isabs(program):
        raise Temporary(f"unable to run {variable}={program}: it is not an absolute path; no mail is taken")
    return program


def read_listeners(home: Home) -> list[Listener]:
    """Return the listeners of control/smtpd. Raises Temporary."""
    return read_parsed(home, "smtpd", unpack_listeners) or [Listener(EVERYWHERE, 25, Role.MX)]


def _mechanisms(offer: AuthOffer, turns: bool) -> tuple[bytes, ...]:
    """Return the mechanisms of a listener: those of RFC 2645 for ATRN, and no old ones elsewhere."""
    return offer.mechanisms if turns else tuple([name for name in offer.mechanisms if name != CRAM_MD5])


def limit_header(limits: MessageLimits, filters: FilterSetup) -> MessageLimits:
    """Return the limits of messages that these filters look at: each field of a header costs a milter an answer."""
    return limits._replace(fields=FIELDS_MAX) if filters.milters else limits


def session_setup(
    config: SmtpdConfig,
    listener: Listener,
    limits: ClientLimits,
    tls: bool,
    offer: AuthOffer,
    databytes: int | None = None,
    suffix: bytes = b"",
) -> SessionSetup:
    """Return the setup of the sessions of a listener; `databytes` of a super-server counts instead of ours.

    `tls`: there is a certificate. `offer` is for AUTH.
    """
    size = config.databytes if databytes is None else databytes
    implicit, qmtp = listener.role in IMPLICIT_TLS, listener.role is Role.QMTP
    turns = listener.role in ON_DEMAND
    filters = config.filters.of(listener.role)
    settings = ServerSettings(
        config.me,
        limit_header(MessageLimits(size, bare_line_ends=listener.bare), filters),
        tls=tls and not implicit,
        implicit_tls=implicit,
        # Without TLS nobody can use them, and they are not named.
        mechanisms=() if listener.noauth or not tls else _mechanisms(offer, turns),
        secret=offer.secret,
        etrn=config.etrn and not turns,
        turns=turns,
    )
    policy = SessionPolicy(listener.role, config.rules, limits)
    dnslists, greylist = bool(config.dnslists), config.greylist is not None
    return SessionSetup(
        *(config.me, settings, policy, suffix, filters, dnslists, greylist),
        *(() if qmtp else config.xclients, listener.priority, config.authserv, qmtp),
        config.customers if turns else NOBODY,
        listener.authname,
    )
