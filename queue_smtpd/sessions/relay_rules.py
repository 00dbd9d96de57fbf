"""Who may send mail to whom: the rules at MAIL and RCPT (qmail-smtpd(8): rcpthosts, morercpthosts, badmailfrom).

A client that is authenticated, is in `relayclients` or has RELAYCLIENT may send to everybody; without a file
relayclients, so may programs of this host. Everybody may send to the domains of rcpthosts. Without that file these are
the domains that are delivered here, not all domains as in qmail: a file that is missing makes no open relay.

queue-todo rewrites recipients after the message is queued, so the rules look at what it will make of them: where
percenthack has a domain, `user%there@here` is judged as `user@there`. An address that is this server's, such as
`[192.0.2.1]`, is `me`. A domain with U-labels is the one with its A-labels. There are no other forms: source routes and
quotes are gone when a path is unpacked (queue_smtp.path). In relayed mail of a stranger `%`, `!` and `@` in a local
part are refused, as by Postfix (allow_untrusted_routing): the server behind this one trusts it, and may take them for a
route.

Whether a mailbox of this host exists is not known here. A verdict may be MailboxWanted: the caller looks it up, and
`judge_mailbox` says what the result means. Of relayed recipients, and of those of localroutes, relayrecipients knows;
if it has no line for a domain that goes to an LMTP server, by localroutes or smtproutes, that server is asked.
"""

import enum
from collections.abc import Container, Mapping, Set
from types import MappingProxyType
from typing import NamedTuple

from queue_smtp import server_replies as replies
from queue_smtp.server_replies import ServerReply
from queue_smtpd.sessions.client_facts import ClientFacts
from queue_wire.address import address_key, domain_key, domain_of, split_address, strip_prepend
from queue_wire.control.hostmap import find_key
from queue_wire.control.localroutes import find_local_route
from queue_wire.control.networks import Network, is_listed, unpack_ip
from queue_wire.control.relayrecipients import RelayRecipients, exists_behind, has_lines
from queue_wire.control.rewrite import LOCAL, Rules, rewrite
from queue_wire.control.smtproutes import Routes, find_route, is_lmtp

_POSTMASTER = b"postmaster"
# Bytes of the name of LMTP servers: a question with a longer one would be too large.
SERVERS_MAX = 500


class RelayRules(NamedTuple):
    """The control files that decide. `classify` has those of queue-todo, `me` is this host.

    `rcpthosts` and `relayclients` are None if there is no such file. `morercpthosts` is looked into as a set of
    domains; it may be a file, whose errors it raises. `submitters` has for each user the senders that the user may
    have; it is None if there is no such file, and every user may have each. `smtproutes` has None for domains of
    control/ondemand, whose mail is taken whether their host can be reached or not. `checkrcpt`: recipients are looked
    up.
    """

    me: bytes
    classify: Rules
    rcpthosts: Set[bytes] | None = None
    morercpthosts: Container[bytes] = ()
    badmailfrom: Set[bytes] = frozenset()
    relayclients: tuple[Network, ...] | None = None
    submitters: Mapping[bytes, Set[bytes]] | None = None
    relayrecipients: RelayRecipients = RelayRecipients()
    localroutes: Routes = MappingProxyType({})
    smtproutes: Routes = MappingProxyType({})
    checkrcpt: bool = True


class MailboxFound(enum.Enum):
    """What a lookup found. UNDECIDED: it could not be made."""

    EXISTS = enum.auto()
    UNKNOWN = enum.auto()
    DISABLED = enum.auto()
    NOT_NOW = enum.auto()
    UNDECIDED = enum.auto()


class MailboxWanted(NamedTuple):
    """Does the recipient exist? The delivery gets `address`. `known` is the answer if no lookup is needed.

    `recipient` is what the envelope gets: the address as the client gave it, with this host's name if it had no domain,
    or this server's IP address; and with A-labels. `servers` names the LMTP servers that have the mailbox, empty for
    none; by smtproutes if it is `relayed`.
    """

    address: bytes
    known: MailboxFound | None
    recipient: bytes
    servers: bytes = b""
    relayed: bool = False


_REPLIES = {
    MailboxFound.UNKNOWN: replies.UNKNOWN_RECIPIENT,
    MailboxFound.DISABLED: replies.MAILBOX_DISABLED,
    MailboxFound.NOT_NOW: replies.MAILBOX_LATER,
    MailboxFound.UNDECIDED: replies.RECIPIENT_UNDECIDED,
}


def may_relay(client: ClientFacts, rules: RelayRules) -> bool:
    """Return whether the client may send mail to everybody."""
    return client.relays or bool(client.user) or is_listed(client.address, rules.relayclients or ())


def judge_sender(sender: bytes, client: ClientFacts, rules: RelayRules) -> ServerReply | None:
    """Return the reply that refuses a sender, None if it is accepted."""
    sender = address_key(sender)
    if sender in rules.badmailfrom or (b"@" in sender and b"@" + split_address(sender)[1] in rules.badmailfrom):
        return replies.SENDER_REFUSED
    if client.user and rules.submitters is not None and not _may_send_as(sender, rules.submitters.get(client.user)):
        return replies.SENDER_NOT_YOURS
    return None


def judge_recipient(recipient: bytes, client: ClientFacts, rules: RelayRules) -> ServerReply | MailboxWanted:
    """Return the reply that refuses a recipient, or the question whether it exists.

    Raises what `morercpthosts` raises.
    """
    trusted = may_relay(client, rules)
    local_part, domain = split_address(recipient)
    if not domain:
        if not trusted and recipient.lower() != _POSTMASTER:
            return replies.NO_DOMAIN
        recipient = b"%s@%s" % (recipient, rules.me)
    elif _is_own_literal(domain, client):
        recipient = b"%s@%s" % (local_part, rules.me)
    elif not domain.isascii():
        recipient = b"%s@%s" % (local_part, domain_key(domain))
    channel, address = rewrite(recipient, rules.classify)
    if trusted or not domain or (is_ours(recipient, rules) and _may_become(address, channel, rules)):
        return _look_up(address, channel, recipient, rules)
    return replies.RELAYING_DENIED


def judge_mailbox(found: MailboxFound) -> ServerReply | None:
    """Return the reply to a recipient for what the lookup has found; None if it is accepted."""
    return _REPLIES.get(found)


def is_ours(recipient: bytes, rules: RelayRules) -> bool:
    """Return whether everybody may send to the domain of a recipient."""
    domain = domain_key(split_address(recipient)[1])
    if rules.rcpthosts is None:
        key = find_key(rules.classify.virtualdomains, domain)
        # Without a prepend it is an exception, and the empty key is the catch-all.
        return domain in rules.classify.locals or bool(key and rules.classify.virtualdomains[key])
    # The empty key is no line of rcpthosts.
    return bool(find_key(rules.rcpthosts, domain)) or bool(find_key(rules.morercpthosts, domain))


def _look_up(address: bytes, channel: bool, recipient: bytes, rules: RelayRules) -> MailboxWanted:
    """Return the question whether a rewritten recipient exists, with the answer if the rules have it."""
    relayed = channel is not LOCAL
    if relayed:
        named, servers = address, find_route(rules.smtproutes, domain_of(address))
        if servers is not None and not is_lmtp(servers):
            servers = None
    else:
        named = strip_prepend(address, rules.classify.virtualdomains)
        servers = find_local_route(rules.localroutes, named)
    known = None
    if (relayed or servers is not None) and has_lines(rules.relayrecipients, named):
        known = MailboxFound.EXISTS if exists_behind(rules.relayrecipients, named) else MailboxFound.UNKNOWN
    elif not rules.checkrcpt or (relayed and servers is None):
        known = MailboxFound.EXISTS
    name = b"" if servers is None else servers.name[:SERVERS_MAX]
    return MailboxWanted(address, known, recipient, name, bool(name) and relayed)


def _may_become(address: bytes, channel: bool, rules: RelayRules) -> bool:
    """Return whether everybody may send to the address that queue-todo makes of a recipient."""
    return channel is LOCAL or (is_ours(address, rules) and not _is_routed(address, rules))


def _is_routed(address: bytes, rules: RelayRules) -> bool:
    """Return whether the server behind this one may take a relayed address for a route. One that is listed exists."""
    local_part = split_address(address)[0]
    return any(byte in local_part for byte in b"%!@") and address_key(address) not in rules.relayrecipients.lines


def _is_own_literal(domain: bytes, client: ClientFacts) -> bool:
    if not (domain.startswith(b"[") and domain.endswith(b"]")):
        return False
    text = domain[1:-1].decode("ascii", "replace")
    address = unpack_ip(text[5:] if text[:5].lower() == "ipv6:" else text)
    return address is not None and address == unpack_ip(client.server)


def _may_send_as(sender: bytes, allowed: Set[bytes] | None) -> bool:
    """Return whether `allowed` has a sender, as `address_key` makes it: the address, `@domain` or `@` for all."""
    if allowed is None:
        return False
    return not sender or sender in allowed or b"@" in allowed or b"@" + split_address(sender)[1] in allowed
