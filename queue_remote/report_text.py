"""The texts of queue-remote's reports: qmail-remote's wording, which log analysers and administrators know.

A verdict is a letter (queue_wire.pipes.report) and a text of whole lines. A number such as (#4.4.1) is an enhanced
status code (RFC 3463). `peer` is the address of the server and, if it has one, its name in parentheses. A line of our
own names the SMTP command or stage if qmail-remote's wording does not.
"""

from queue_smtp.client import ClientState, ConnectionFailed, Problem, SmtpClient, TransactionRejected
from queue_smtp.reply import Reply
from queue_wire.pipes.report import PERMANENT, SUCCESS, TEMPORARY

Verdict = tuple[bytes, bytes]

NOT_CONNECTED = b"Sorry, I wasn't able to establish an %s connection. (#4.4.1)\n"
# At most this many of the addresses that could not be reached are named.
TRIES_NAMED = 4
NO_RESOURCES = b"System resources temporarily unavailable. (#4.3.0)\n"
NO_RECIPIENT_LEFT = b"None of the recipients has an address that SMTP can carry. (#5.1.3)\n"
INVOKED_IMPROPERLY = b"I (queue-remote) was invoked improperly. (#5.3.5)\n"


def describe_failure(client: SmtpClient, failed: ConnectionFailed) -> Verdict:
    """Return the verdict on a connection that failed. It is temporary: another server, or a later time, may do."""
    return TEMPORARY, _failure_text(client, failed)


def _failure_text(client: SmtpClient, failed: ConnectionFailed) -> bytes:
    peer, policy = client.session.peer, client.session.policy
    stage, details = failed.state.value, failed.details
    # The whole message was sent: the peer may have accepted it.
    duplicate = b"Possible duplicate! " if failed.state is ClientState.END else b""
    match failed.problem:
        case Problem.LOST:
            return connection_died(peer, stage, details, duplicate)
        case Problem.NOT_SMTP:
            return not_smtp(peer, stage, details, client.session.lmtp, duplicate)
        case Problem.OUT_OF_TURN if failed.reply is not None:
            return out_of_step(peer, failed.reply, duplicate)
        case Problem.INJECTED:
            return injected(peer, policy)
        case Problem.HANDSHAKE:
            return tls_failed(peer, details, policy)
        case Problem.CERTIFICATE:
            return not_verified(peer, details, policy)
        case Problem.NO_STARTTLS:
            return no_starttls(peer, policy)
        case Problem.NO_MECHANISM:
            return no_mechanism(peer, client.extensions.get(b"AUTH"), client.secure)
        case Problem.CHALLENGE:
            return auth_broken(peer, details)
        case Problem.NO_MESSAGE:
            return no_message(details)
        case Problem.WITHDRAWN:
            return connection_died(peer, stage, "the reply to the message before took too long")
    reply = failed.reply
    assert reply is not None
    match failed.problem:
        case Problem.ENDED:
            return closing(peer, stage, reply, duplicate)
        case Problem.STARTTLS:
            return starttls_failed(peer, reply, policy)
        case problem:
            return _FAILED_REPLIES[problem](peer, reply)


def describe_rejection(client: SmtpClient, rejected: TransactionRejected, size: int) -> Verdict:
    """Return the verdict on a message of `size` bytes that the server took for no recipient."""
    peer = client.session.peer
    match rejected.problem:
        case Problem.TOO_LARGE:
            return PERMANENT, too_large(peer, size, client.size_limit)
        case Problem.SENDER_NEEDS_SMTPUTF8:
            return PERMANENT, no_utf8(peer)
        case Problem.NO_RECIPIENT_LEFT:
            return PERMANENT, NO_RECIPIENT_LEFT
        case Problem.RECIPIENTS:
            return PERMANENT, giving_up(peer)
        case problem:
            reply = rejected.reply
            assert reply is not None
            return (PERMANENT if reply.permanent else TEMPORARY), _FAILED_REPLIES[problem](peer, reply)


def judge_answer(peer: bytes, reply: Reply) -> Verdict:
    """Return the verdict on one recipient by the reply to the message for it alone, as LMTP has them."""
    if reply.accepted:
        return SUCCESS, accepted(peer, reply)
    return (PERMANENT if reply.permanent else TEMPORARY), message_failed(peer, reply)


def no_message(reason: str) -> bytes:
    return b"Unable to read message. (#4.3.0)\n%s\n" % _line(reason)


def no_controls(reason: str) -> bytes:
    return b"Unable to read control files. (#4.3.0)\n%s\n" % _line(reason)


def no_credentials(reason: str) -> bytes:
    return b"Unable to use the password that control/smtpauth has for this host. (#4.3.5)\n%s\n" % _line(reason)


def not_signed(reason: str) -> bytes:
    return b"Unable to sign message. (#4.3.5)\n%s\n" % _line(reason)


def header_too_long(most: int) -> bytes:
    return b"Sorry, a message whose header is over %d bytes cannot be signed. (#5.6.0)\n" % most


def program_failed(reason: str) -> bytes:
    return b"Unable to deliver by the program of control/remoteprogram. (#4.3.0)\n%s\n" % _line(reason)


def no_time_left() -> bytes:
    return b"Not tried yet: the attempts at this job's other recipients took too long. (#4.4.7)\n"


def internal_error(reason: str) -> bytes:
    return b"Internal error in queue-remote. (#4.3.0)\n%s\n" % _line(reason)


def unsendable(reason: str, code: str) -> bytes:
    return b"Sorry, SMTP cannot carry this address. (#%s)\n%s\n" % (code.encode(), _line(reason))


def no_utf8(peer: bytes) -> bytes:
    return b"Sorry, the address is not ASCII, and %s does not offer SMTPUTF8. (#5.6.7)\n" % peer


def too_large(peer: bytes, size: int, limit: int) -> bytes:
    return b"Sorry, %s takes no message over %d bytes; this one has %d. (#5.3.4)\n" % (peer, limit, size)


def not_converted(peer: bytes, reason: str) -> bytes:
    """`reason` is a sentence whose subject `it` is the message, without a full stop."""
    told = (peer, _line(reason))
    return b"Sorry, %s does not take 8-bit mail, and this message cannot be made 7-bit: %s. (#5.6.3)\n" % told


def not_converted_now(peer: bytes, reason: str) -> bytes:
    return b"Unable to convert this message for %s now: %s. (#4.6.3)\n" % (peer, _line(reason))


def not_shortened(reason: str) -> bytes:
    return b"Sorry, this message has lines that are too long, and it cannot be encoded: %s. (#5.6.0)\n" % _line(reason)


def long_lines(most: int) -> bytes:
    return b"Sorry, this message has a line of more than %d bytes, too long for SMTP. (#5.6.0)\n" % most


def not_connected(tries: list[tuple[bytes, str]], lmtp: bool = False) -> bytes:
    """`tries` has each address that was tried and the reason why it failed, in order. `lmtp`: all speak LMTP."""
    lines = [b"%s: connect: %s\n" % (peer, _line(reason)) for peer, reason in tries[:TRIES_NAMED]]
    if len(tries) > TRIES_NAMED:
        lines.append(b"and %d more\n" % (len(tries) - TRIES_NAMED))
    return NOT_CONNECTED % (b"LMTP" if lmtp else b"SMTP") + b"".join(lines)


def no_source(source: str, reason: str) -> bytes:
    return b"Unable to send from the address that control/outgoingip names. (#4.3.5)\n%s: %s\n" % (
        _line(source),
        _line(reason),
    )


def not_smtp(peer: bytes, stage: bytes, reason: str, lmtp: bool = False, duplicate: bytes = b"") -> bytes:
    told = (peer, b"LMTP" if lmtp else b"SMTP", duplicate, stage, _line(reason))
    return b"Connected to %s but it does not speak %s as I know it. %s(#4.5.0)\nAt %s: %s\n" % told


def out_of_step(peer: bytes, reply: Reply, duplicate: bytes = b"") -> bytes:
    return b"Connected to %s but it spoke out of turn. %s(#4.5.0)\n" % (peer, duplicate) + _said(reply)


def connection_died(peer: bytes, stage: bytes, reason: str, duplicate: bytes = b"") -> bytes:
    told = (peer, duplicate, stage, _line(reason))
    return b"Connected to %s but connection died. %s(#4.4.2)\nAt %s: %s\n" % told


def closing(peer: bytes, stage: bytes, reply: Reply, duplicate: bytes = b"") -> bytes:
    told = (peer, stage, b" " + duplicate.rstrip() if duplicate else b"")
    return b"Connected to %s but it ended the session at %s.%s\n" % told + _said(reply)


def injected(peer: bytes, policy: bytes) -> bytes:
    told = (peer, _by(policy))
    return b"Connected to %s but bytes came behind its answer to STARTTLS, before TLS. (#4.7.0)\n%s" % told


def no_starttls(peer: bytes, policy: bytes) -> bytes:
    refused = b"Connected to %s but it does not offer STARTTLS, which is required for it. (#4.7.4)\n" % peer
    return refused + _by(policy)


def starttls_failed(peer: bytes, reply: Reply, policy: bytes) -> bytes:
    return b"Connected to %s but STARTTLS failed.\n" % peer + _by(policy) + _said(reply)


def tls_failed(peer: bytes, reason: str, policy: bytes) -> bytes:
    told = (peer, _line(reason), _by(policy))
    return b"Connected to %s but the TLS handshake failed. (#4.7.5)\n%s\n%s" % told


def not_verified(peer: bytes, reason: str, policy: bytes) -> bytes:
    told = (peer, _line(reason), _by(policy))
    return b"Connected to %s but its TLS certificate is not good. (#4.7.5)\n%s\n%s" % told


def not_trusted(peer: bytes, reason: str, policy: bytes) -> bytes:
    """The TLS policy excludes this host."""
    return b"Not connected to %s: it may get no mail for this domain. (#4.7.5)\n%s\n%s" % (
        peer,
        _line(reason),
        _by(policy),
    )


def no_mechanism(peer: bytes, offered: bytes | None, secure: bool) -> bytes:
    """`offered` is the parameters of AUTH in the reply to EHLO, or None if AUTH is not in it."""
    what = b"no AUTH" if offered is None else b"only AUTH %s" % offered
    where = b"under TLS" if secure else b"without TLS, where passwords are not sent in clear"
    return b"Connected to %s but it offers %s %s; see control/smtpauth. (#4.7.0)\n" % (peer, what, where)


def auth_failed(peer: bytes, reply: Reply) -> bytes:
    return b"Connected to %s but AUTH failed; see control/smtpauth.\n" % peer + _said(reply)


def auth_broken(peer: bytes, reason: str) -> bytes:
    return b"Connected to %s but AUTH failed; its challenge makes no sense. (#4.7.0)\n%s\n" % (peer, _line(reason))


def greeting_failed(peer: bytes, reply: Reply) -> bytes:
    return b"Connected to %s but greeting failed.\n" % peer + _said(reply)


def name_rejected(peer: bytes, reply: Reply) -> bytes:
    return b"Connected to %s but my name was rejected.\n" % peer + _said(reply)


def own_name(peer: bytes, reply: Reply) -> bytes:
    return b"Connected to %s but it is this host. (#5.4.6)\n" % peer + _said(reply)


def sender_rejected(peer: bytes, reply: Reply) -> bytes:
    return b"Connected to %s but sender was rejected.\n" % peer + _said(reply)


def recipient_rejected(peer: bytes, reply: Reply) -> bytes:
    return b"%s does not like recipient.\n" % peer + _said(reply)


def giving_up(peer: bytes) -> bytes:
    return b"Giving up on %s.\n" % peer


def data_failed(peer: bytes, reply: Reply) -> bytes:
    return b"%s failed on DATA command.\n" % peer + _said(reply)


def message_failed(peer: bytes, reply: Reply) -> bytes:
    return b"%s failed after I sent the message.\n" % peer + _said(reply)


def accepted(peer: bytes, reply: Reply) -> bytes:
    return b"%s accepted message.\n" % peer + _said(reply)


_FAILED_REPLIES = {
    Problem.GREETING: greeting_failed,
    Problem.NAME: name_rejected,
    Problem.OWN_NAME: own_name,
    Problem.AUTH: auth_failed,
    Problem.SENDER: sender_rejected,
    Problem.DATA: data_failed,
    Problem.MESSAGE: message_failed,
}


def _by(policy: bytes) -> bytes:
    return b"TLS policy: %s\n" % policy if policy else b""


def _said(reply: Reply) -> bytes:
    return b"Remote host said: %s\n" % reply.text


def _line(text: str) -> bytes:
    return text.replace("\n", "/").encode("utf-8", "backslashreplace")
