"""The control files of the server, as the rules want them."""

import os
from typing import NamedTuple

from queue_base.cdb import Cdb
from queue_base.control import read_value
from queue_base.control_files import ControlValues, kept_by, read_contents, rules_of
from queue_base.errors import Temporary
from queue_base.home import Home, enqueue_program
from queue_smtp.auth_server import CRAM_MD5
from queue_smtp.incoming import MessageLimits
from queue_smtp.server_session import ServerSettings
from queue_smtpd.auth.authenticator import AuthOffer
from queue_smtpd.sessions.client_facts import is_this_host
from queue_smtpd.sessions.relay_rules import RelayRules
from queue_smtpd.sessions.session import NOBODY, SessionSetup
from queue_smtpd.sessions.session_policy import SessionPolicy
from queue_smtpd.strangers.client_limits import ClientLimits
from queue_wire.address import address_key
from queue_wire.control import registry
from queue_wire.control.listeners import IMPLICIT_TLS, ON_DEMAND, Listener, Role
from queue_wire.control.milters import (
    FilterSetup,
    unpack_arc_authserv,
)
from queue_wire.control.networks import is_listed
from queue_wire.control.places import EVERYWHERE

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
    """What is made of the control files, all `values` together.

    `filters` are those of all roles. `authserv` are the authserv-ids of this host, in lower case.
    """

    values: ControlValues
    rules: RelayRules
    filters: FilterSetup
    authserv: frozenset[bytes]

    def trusts_program(self, client: str, server: str) -> bool:
        """Return whether a client that is connected without a PROXY header may relay as a program of this host.

        One that may speak for others may not: strangers come through it.
        """
        speakers = (*self.values[registry.PROXYCLIENTS], *self.values[registry.XCLIENTS])
        if self.rules.relayclients is not None or is_listed(client, speakers):
            return False
        return is_this_host(client, server)


def read_config(home: Home) -> SmtpdConfig:
    """Read the control files. Raises Temporary, naming the file."""
    files = kept_by("queue-smtpd")
    broken = []

    def cannot_read(name: str, error: Temporary) -> None:
        # Root reads the certificates.
        if name not in ("smtpdcert", "smtproutes"):
            raise error
        broken.append(name)

    def cannot_parse(name: str, error: Temporary) -> None:
        if name not in ("smtpdcert", "smtproutes", "ondemand"):
            raise error
        broken.append(name)

    values = ControlValues(home, files, read_contents(home, files, cannot_read), cannot_parse)
    # If they cannot be used queue-remote defers the mail and says why. Mail is taken meanwhile, and no server is asked.
    routed = {"smtproutes", "ondemand"}.isdisjoint(broken)
    rules = RelayRules(
        me=values.me,
        classify=rules_of(values),
        rcpthosts=values[registry.RCPTHOSTS],
        morercpthosts=MoreHosts(f"{home.control}/morercpthosts.cdb"),
        badmailfrom=frozenset(map(address_key, values[registry.BADMAILFROM])),
        relayclients=values[registry.RELAYCLIENTS],
        relayrecipients=values[registry.RELAYRECIPIENTS],
        localroutes=values[registry.LOCALROUTES],
        # None for the domains of control/ondemand.
        smtproutes={**values[registry.SMTPROUTES], **dict.fromkeys(values[registry.ONDEMAND])} if routed else {},
        checkrcpt=bool(values[registry.CHECKRCPT]),
        submitters=values[registry.SUBMITTERS],
    )
    filters = FilterSetup(tuple(values[registry.MILTERS]), values[registry.HEADERFAULTS], _named_program())
    sealed = values.parsed(registry.ARC, unpack_arc_authserv) or b""
    authserv = {values.me.strip().lower(), sealed, *[each.authserv for each in filters.milters]}
    return SmtpdConfig(values, rules, filters, frozenset(authserv - {b""}))


def _named_program() -> str:
    """Return the program that the environment names in the place of queue-enqueue, or "". Raises Temporary."""
    variable, program = enqueue_program() or ("", "")
    if program and not os.path.isabs(program):
        raise Temporary(f"unable to run {variable}={program}: it is not an absolute path; no mail is taken")
    return program


def read_listeners(home: Home) -> list[Listener]:
    """Return the listeners of control/smtpd. Raises Temporary."""
    return read_value(home, registry.SMTPD) or [Listener(EVERYWHERE, 25, Role.MX)]


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
    values = config.values
    size = values[registry.DATABYTES] if databytes is None else databytes
    implicit, qmtp = listener.role in IMPLICIT_TLS, listener.role is Role.QMTP
    turns = listener.role in ON_DEMAND
    filters = config.filters.of(listener.role)
    settings = ServerSettings(
        values.me,
        limit_header(MessageLimits(size, bare_line_ends=listener.bare), filters),
        tls=tls and not implicit,
        implicit_tls=implicit,
        # Without TLS nobody can use them, and they are not named.
        mechanisms=() if listener.noauth or not tls else _mechanisms(offer, turns),
        secret=offer.secret,
        etrn=values.contents["ondemand"] is not None and not turns,
        turns=turns,
    )
    policy = SessionPolicy(listener.role, config.rules, limits)
    dnslists, greylist = bool(values[registry.DNSLISTS]), values[registry.GREYLIST] is not None
    return SessionSetup(
        *(values.me, settings, policy, suffix, filters, dnslists, greylist),
        *(() if qmtp else values[registry.XCLIENTS], listener.priority, config.authserv, qmtp),
        values[registry.ONDEMANDUSERS] if turns else NOBODY,
        listener.authname,
    )
