"""The lines of the server's log, in the style of queue-send's (queue_wire.logline). Each is returned without newline.

    smtp start: process 1 of 4 pid 8123
    smtp 12: connect 192.0.2.1:40000 mx.example.net to 198.51.100.1:25
    smtp 12: tls TLSv1.3 TLS_AES_256_GCM_SHA384
    smtp 12: tls failed: no_shared_cipher
    smtp 12: refused early talker: 554_5.5.1_You_spoke_before_the_greeting client 192.0.2.1
    smtp 12: refused PROXY: 521_5.7.0_Host_is_not_in_control/proxyclients client 192.0.2.1
    smtp 12: auth joe PLAIN
    smtp 12: etrn example.net: 250
    smtp 12: atrn example.net,example.org: 250
    smtp 12: from <a@example.net> bytes 2310
    smtp 12: to <joe@example.org>
    smtp 12: refused RCPT <x@example.net>: 550_5.7.1_Relaying_denied... client 192.0.2.1
    smtp 12: queued 457-tk3x2a bytes 2310 recipients 1
    smtp 12: filter inet:127.0.0.1:8891 refuses message: 550_5.7.1_Command_rejected
    smtp 12: discarded bytes 2310 recipients 1
    smtp 12: dropped
    smtp 12: end XCLIENT: messages 0 errors 0 seconds 0
    smtp 12: end ATRN: messages 0 errors 0 seconds 2
    smtp 12: end QUIT: messages 1 errors 0 seconds 2

The number is the session's: under a super-server, where each has a process of its own, the pid. Process I of N has the
numbers I, I + N, I + 2N, ...; it logs its start before the first of them, and no process that has them runs then. So a
start says that sessions with such numbers have ended, if the log has no end of them. Behind `end XCLIENT` the next
session of the connection begins, with the same number. Text from outside is escaped and has no space. A line
has at most LINE_MAX bytes: its text from outside is cut.
"""

from queue_smtp.server_replies import ServerReply
from queue_wire.logline import LINE_MAX, escape

_TEXT_MAX = 600


def process_started(place: int, count: int, pid: int) -> bytes:
    """A process of the daemon begins to take connections; `place` counts from 1."""
    return b"smtp start: process %d of %d pid %d" % (place, count, pid)


def connect(session: int, client: str, port: int, name: bytes, server: str, server_port: int) -> bytes:
    """A client has connected; `name` is empty if its address has none."""
    places = f"{_place(client, port)} {escape(name[:255]).decode() or 'unknown'} to {_place(server, server_port)}"
    return _session_line(session, b"connect " + places.encode())


def tls_started(session: int, version: bytes, cipher: bytes) -> bytes:
    """The TLS handshake is done."""
    return _session_line(session, b"tls %s %s" % (escape(version), escape(cipher)))


def tls_failed(session: int, why: str) -> bytes:
    """The TLS handshake, or the session of TLS, has failed."""
    return _session_line(session, b"tls failed: " + escape(why.encode("utf-8", "backslashreplace")[:_TEXT_MAX]))


def authenticated(session: int, user: bytes, mechanism: bytes) -> bytes:
    """AUTH succeeded."""
    return _session_line(session, b"auth %s %s" % (escape(user[:255]), escape(mechanism)))


def mail_wanted(session: int, node: bytes, reply: ServerReply) -> bytes:
    """ETRN was accepted."""
    return _session_line(session, b"etrn %s: %d" % (escape(node), reply.code))


def mail_turned(session: int, domains: list[bytes], reply: ServerReply) -> bytes:
    """ATRN was accepted: the mail of these domains goes to the client."""
    return _session_line(session, b"atrn %s: %d" % (escape(b",".join(domains)[:_TEXT_MAX]), reply.code))


def sender_accepted(session: int, sender: bytes, size: int) -> bytes:
    """MAIL was accepted. `size` is what the client announced, 0 if nothing."""
    return _session_line(session, b"from <%s> bytes %d" % (escape(sender[:_TEXT_MAX]), size))


def recipient_accepted(session: int, recipient: bytes) -> bytes:
    """RCPT was accepted."""
    return _session_line(session, b"to <%s>" % escape(recipient[:_TEXT_MAX]))


def refused(session: int, what: bytes, reply: ServerReply, client: str) -> bytes:
    """A command or message was refused; `what` is shown with its spaces as `_`, but for the one behind the verb.

    The address of the client is in each line, for programs that read no other lines, such as fail2ban.
    """
    verb, space, rest = what[:_TEXT_MAX].partition(b" ")
    text = b" ".join([part for part in (b"%d" % reply.code, reply.status, reply.text) if part])
    line = _session_line(session, b"refused %s%s%s: %s" % (escape(verb), space, escape(rest), escape(text)))
    end = b" client " + (client or "local").encode("ascii")
    return line[: LINE_MAX - len(end)] + end


def queued(session: int, long_id: bytes, size: int, recipients: int) -> bytes:
    """The message is in the queue."""
    return _session_line(session, b"queued %s bytes %d recipients %d" % (escape(long_id), size, recipients))


def discarded(session: int, size: int, recipients: int) -> bytes:
    """The filters have discarded the message; its client was told that it is accepted."""
    return _session_line(session, b"discarded bytes %d recipients %d" % (size, recipients))


def filtered(session: int, name: bytes, what: bytes) -> bytes:
    """What a filter has said to a command or a message; or it cannot be asked."""
    verb, space, rest = what[:_TEXT_MAX].partition(b": ")
    text = b"_".join(rest.split())
    return _session_line(session, b"filter %s %s%s%s" % (escape(name), _spaced(verb), space, escape(text)))


def dropped(session: int) -> bytes:
    """A transaction ended without a message."""
    return _session_line(session, b"dropped")


def ended(session: int, reason: str, messages: int, errors: int, seconds: int) -> bytes:
    """The session is over."""
    word = escape(reason.encode("utf-8", "backslashreplace"))
    return _session_line(session, b"end %s: messages %d errors %d seconds %d" % (word, messages, errors, seconds))


def _place(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address or 'local'}:{port}"


def _spaced(words: bytes) -> bytes:
    return b" ".join(map(escape, words.split()))


def _session_line(session: int, text: bytes) -> bytes:
    return (b"smtp %d: %s" % (session, text))[:LINE_MAX]
