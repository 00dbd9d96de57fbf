"""Asks an LMTP server of localroutes or smtproutes whether it has a recipient: a session to RCPT, without a message.

It runs in the process of a lookup, and waits. The question goes over TCP without TLS and AUTH. Only a reply that says
that there is no such mailbox is a no; after any other permanent refusal (TLS or AUTH is demanded, a policy, a full
mailbox) the delivery decides, as it does without the question.
"""

import contextlib
import os
import pwd
import socket
import time

from queue_base.accounts import REMOTE_ACCOUNT, Owner, become, queue_owner
from queue_base.control import read_me
from queue_base.errors import Permanent, Temporary, reason
from queue_base.home import Home
from queue_smtp.client import (
    ClientState,
    ConnectionFailed,
    RecipientRefused,
    Session,
    SmtpClient,
    SmtpEnvelope,
    Tls,
    TransactionRejected,
)
from queue_smtp.path import pack_forward_path, pack_reverse_path
from queue_smtp.reply import Reply
from queue_wire.control.smtproutes import Relay, Relays
from queue_wire.format_error import FormatError
from queue_wire.status_code import find_status

# For all servers of a line; a lookup ends itself some time later.
SECONDS = 4.0
_READ_MAX = 8192
# No mailbox, moved, name not allowed (RFC 5321 section 4.2.3); the mailbox, or its address, does not exist, has moved
# or is disabled (RFC 3463).
_NO_MAILBOX = (550, 551, 553)
_NO_MAILBOX_STATUS = (b"5.1.1", b"5.1.2", b"5.1.3", b"5.1.6", b"5.1.10", b"5.2.1")


def ask_servers(home: Home, servers: Relays, recipient: bytes) -> None:
    """Return if there is such a mailbox. Raises Permanent if there is none, Temporary if no server tells now."""
    name = read_me(home)
    become_sender(home)
    until = time.monotonic() + SECONDS
    why = "there is none"
    for relay in [relay for group in servers.groups for relay in group]:
        try:
            why = _ask(relay, name, recipient, until)
        except FormatError as error:
            raise Permanent(f"Sorry, no SMTP server can be given this address: {error}. (#5.1.3)") from error
        except OSError as error:
            why = reason(error) if error.errno else "no answer in time"
        if not why:
            return
        why = f"{relay.host.decode('ascii')}: {why}"
    raise Temporary(f"Unable to ask an LMTP server: {why}. (#4.4.1)")


def become_sender(home: Home) -> None:
    """Become the account that delivers there: it may use the servers' sockets, and this process need do no more."""
    owner = queue_owner(home)
    if os.geteuid() or not owner.uid:
        return
    try:
        become(Owner(pwd.getpwnam(REMOTE_ACCOUNT).pw_uid, owner.gid))
    except KeyError as error:
        raise Temporary(f"Unable to find account {REMOTE_ACCOUNT}. (#4.3.0)") from error


def _ask(relay: Relay, name: bytes, recipient: bytes, until: float) -> str:
    """Return "" if the server has the recipient, or tells nobody; else why it does not tell now.

    Raises Permanent and Temporary for what it says of the recipient, OSError if it cannot be spoken to, and FormatError
    for an address that has no path.
    """
    envelope = SmtpEnvelope(pack_reverse_path(b""), [pack_forward_path(recipient)], 0, False)
    # Without pipelining DATA comes behind the reply to RCPT, and is not sent.
    client = SmtpClient(Session(relay.host, name, Tls.NEVER, pipelining=False, lmtp=True))
    with _connect(relay, until) as connection:
        while client.state is not ClientState.DATA:
            if client.state is ClientState.READY and client.begin(envelope):
                raise Permanent("Sorry, the address needs SMTPUTF8, which the LMTP server does not offer. (#5.6.7)")
            connection.sendall(client.data_to_send())
            connection.settimeout(max(0.1, until - time.monotonic()))
            data = connection.recv(_READ_MAX)
            for event in client.feed(data) if data else client.lost():
                if isinstance(event, RecipientRefused):
                    _quit(connection)
                    _judge(event.reply)
                    return ""
                if isinstance(event, TransactionRejected | ConnectionFailed):
                    reply = event.reply
                    if reply is not None:
                        return "" if reply.permanent else reply.text.decode("utf-8", "replace")
                    return client.failure.details if client.failure is not None else "it has no recipient left"
        _quit(connection)
    return ""


def _judge(reply: Reply) -> None:
    """Raise Permanent for a reply to RCPT that denies the mailbox, Temporary for one that defers it."""
    if not reply.permanent:
        raise Temporary(f"The LMTP server says: {reply.text.decode('utf-8', 'replace')}. (#4.3.0)")
    status = find_status(reply.text, b"5")
    if status in _NO_MAILBOX_STATUS or (not status and reply.code in _NO_MAILBOX):
        raise Permanent("Sorry, the LMTP server has no mailbox by that name. (#5.1.1)")


def _connect(relay: Relay, until: float) -> socket.socket:
    seconds = max(0.1, until - time.monotonic())
    if not relay.host.startswith(b"/"):
        return socket.create_connection((relay.host.decode("ascii"), relay.port), seconds)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(seconds)
        connection.connect(relay.host)
    except OSError:
        connection.close()
        raise
    return connection


def _quit(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(b"QUIT\r\n")
