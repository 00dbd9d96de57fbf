"""The replies that the server gives: one table for those of the protocol and those of the server's rules.

A reply is a code (RFC 5321 section 4.2), an enhanced status code (RFC 3463; RFC 2034 says where it stands) and a text.
Greetings, answers to EHLO and HELO, and 3xx replies have no status. The texts are part of what administrators search
logs for, so they are kept short and are not changed without need.

Names of addresses and hosts come from outside. `pack_reply` makes one reply of whatever bytes a text has: no text can
end the reply or begin another one.
"""

import re
from typing import NamedTuple

# RFC 5321 section 4.5.3.1.5: a reply line has 512 bytes with its code and CRLF. A code, a status and their spaces take
# at most 16.
TEXT_LINE_MAX = 490
# A caller's text that has more lines loses the last ones.
TEXT_LINES_MAX = 50

_UNPRINTABLE = re.compile(rb"[^ -~]")


class ServerReply(NamedTuple):
    """A reply. `text` has its lines, divided by newlines. The status is empty where none may stand."""

    code: int
    status: bytes
    text: bytes

    @property
    def positive(self) -> bool:
        """2xx and 3xx: the command is carried out."""
        return self.code < 400

    @property
    def closes(self) -> bool:
        """421 and 521: the server closes the connection behind this reply."""
        return self.code in (421, 521)


def pack_reply(reply: ServerReply) -> bytes:
    """Return a reply as the bytes that go to the client. Bytes that are not printable ASCII become `?`."""
    lines = [_UNPRINTABLE.sub(b"?", line[:TEXT_LINE_MAX]) for line in reply.text.split(b"\n")[:TEXT_LINES_MAX]]
    head = b"%s " % reply.status if reply.status else b""
    last = len(lines) - 1
    packed = []
    for number, line in enumerate(lines):
        packed.append(b"%d%s%s%s\r\n" % (reply.code, b" " if number == last else b"-", head, line))
    return b"".join(packed)


# The protocol succeeds.
CLOSING = ServerReply(221, b"2.0.0", b"Bye")
START_TLS = ServerReply(220, b"2.0.0", b"Ready to start TLS")
AUTHENTICATED = ServerReply(235, b"2.7.0", b"Authentication succeeded")
OK = ServerReply(250, b"2.0.0", b"Ok")
SENDER_OK = ServerReply(250, b"2.1.0", b"Sender ok")
RECIPIENT_OK = ServerReply(250, b"2.1.5", b"Recipient ok")
MESSAGE_TAKEN = ServerReply(250, b"2.6.0", b"Message accepted")
CANNOT_VERIFY = ServerReply(252, b"2.5.0", b"Cannot verify the user, but will try to deliver")
HELP = ServerReply(214, b"2.0.0", b"See RFC 5321")
SEND_MESSAGE = ServerReply(354, b"", b"End data with <CR><LF>.<CR><LF>")

# The protocol fails: the client's commands.
COMMAND_UNKNOWN = ServerReply(500, b"5.5.2", b"Command not recognized")
LINE_TOO_LONG = ServerReply(500, b"5.5.2", b"Line too long")
NOT_PRINTABLE = ServerReply(500, b"5.5.2", b"Command holds a byte that no command may have")
BARE_LINE_END = ServerReply(550, b"5.6.11", b"Lines must end with <CR><LF>; a bare <CR> or <LF> is not accepted")
COMMAND_MISSING = ServerReply(502, b"5.5.1", b"Command not implemented")
SYNTAX = ServerReply(501, b"5.5.4", b"Syntax error in parameters or arguments")
NO_ARGUMENT_ALLOWED = ServerReply(501, b"5.5.4", b"This command takes no arguments")
NAME_MISSING = ServerReply(501, b"5.5.4", b"Your host name is required")
BAD_SENDER = ServerReply(501, b"5.1.7", b"Bad sender address syntax")
BAD_RECIPIENT = ServerReply(501, b"5.1.3", b"Bad recipient address syntax")
PARAMETER_UNKNOWN = ServerReply(555, b"5.5.4", b"Parameter not recognized or not implemented")
NEEDS_SMTPUTF8 = ServerReply(553, b"5.6.7", b"Address is not ASCII, and SMTPUTF8 was not asked for")
HELLO_FIRST = ServerReply(503, b"5.5.1", b"EHLO or HELO first")
SENDER_FIRST = ServerReply(503, b"5.5.1", b"MAIL first")
SECOND_SENDER = ServerReply(503, b"5.5.1", b"The sender is already given; RSET first")
NO_VALID_RECIPIENT = ServerReply(554, b"5.5.1", b"No valid recipients")
NOT_IN_TRANSACTION = ServerReply(503, b"5.5.1", b"Not during a mail transaction")
CHUNKS_BEGUN = ServerReply(503, b"5.5.1", b"BDAT has begun; only BDAT may follow, or RSET")
CHUNK_OUT_OF_SEQUENCE = ServerReply(503, b"5.5.1", b"BDAT out of sequence")
CHUNK_SYNTAX = ServerReply(521, b"5.5.4", b"Syntax: BDAT size [LAST]; the end of the chunk is not known")
TLS_UNAVAILABLE = ServerReply(502, b"5.5.1", b"STARTTLS is not offered")
TLS_ACTIVE = ServerReply(503, b"5.5.1", b"TLS is already active")
TOO_MANY_RECIPIENTS = ServerReply(452, b"4.5.3", b"Too many recipients")
TOO_MANY_ERRORS = ServerReply(421, b"4.7.0", b"Too many errors; closing connection")
FORBIDDEN_COMMAND = ServerReply(521, b"5.5.1", b"This is an SMTP server")

# AUTH (RFC 4954).
AUTH_UNAVAILABLE = ServerReply(502, b"5.5.1", b"AUTH is not offered")
AUTH_NEEDS_TLS = ServerReply(538, b"5.7.11", b"Encryption is required for AUTH; STARTTLS first")
AUTH_TWICE = ServerReply(503, b"5.5.1", b"Already authenticated")
MECHANISM_UNKNOWN = ServerReply(504, b"5.5.4", b"Authentication mechanism not offered")
AUTH_CANCELLED = ServerReply(501, b"5.7.0", b"Authentication cancelled")
AUTH_SYNTAX = ServerReply(501, b"5.5.2", b"Authentication response makes no sense")
BAD_CREDENTIALS = ServerReply(535, b"5.7.8", b"Authentication credentials invalid")
AUTH_FAILED_FOR_NOW = ServerReply(454, b"4.7.0", b"Temporary authentication failure")

# ETRN (RFC 1985 section 5). The text is that of the answer, and the node is put before it.
MAIL_STARTED = ServerReply(250, b"2.0.0", b"Queuing for node has started")
MAIL_NONE = ServerReply(251, b"2.0.0", b"No messages waiting for node")
MAIL_RUNNING = ServerReply(252, b"2.0.0", b"Pending messages for node are being delivered")
MAIL_LATER = ServerReply(458, b"4.7.0", b"Unable to queue messages for node now; try again later")
MAIL_NOT_ALLOWED = ServerReply(459, b"4.7.1", b"Node not allowed: its mail is not to be had with ETRN here")

# ATRN (RFC 2645 section 7).
TURNING = ServerReply(250, b"2.0.0", b"OK now reversing the connection")
TURN_REFUSED = ServerReply(450, b"4.7.1", b"ATRN request refused: not all of these domains are yours")
TURN_BUSY = ServerReply(450, b"4.2.0", b"ATRN request refused: the mail is being delivered already")
TURN_LATER = ServerReply(451, b"4.3.0", b"Unable to process ATRN request now")
TURN_NONE = ServerReply(453, b"4.2.0", b"You have no mail")

# XCLIENT.
XCLIENT_REFUSED = ServerReply(550, b"5.7.0", b"Not authorized to use XCLIENT")
XCLIENT_SYNTAX = ServerReply(501, b"5.5.4", b"Bad XCLIENT attribute")

# QMTP has no reply to a package that cannot be read; the log shows it.
PACKAGE_SYNTAX = ServerReply(521, b"5.5.2", b"Not a package of QMTP")

# The PROXY protocol has no replies; the log shows these.
PROXY_REFUSED = ServerReply(521, b"5.7.0", b"Host is not in control/proxyclients")
PROXY_SYNTAX = ServerReply(521, b"5.5.2", b"Not a PROXY header")
PROXY_LATE = ServerReply(421, b"4.4.2", b"PROXY header did not come in time")

# The message.
TOO_LARGE = ServerReply(552, b"5.3.4", b"Message is too large")
TOO_MANY_HOPS = ServerReply(554, b"5.4.6", b"Too many hops; this message is looping")
HEADER_TOO_LARGE = ServerReply(552, b"5.3.4", b"Message header is too large")
TOO_MANY_FIELDS = ServerReply(552, b"5.3.4", b"Message header has too many fields")
TEXT_LINE_TOO_LONG = ServerReply(554, b"5.6.0", b"Message has a line that is too long")

# The rules of the server (queue_smtpd).
RELAYING_DENIED = ServerReply(550, b"5.7.1", b"Relaying denied: that domain is not in the list of allowed rcpthosts")
SENDER_REFUSED = ServerReply(550, b"5.7.1", b"Your envelope sender is in the badmailfrom list")
NO_DOMAIN = ServerReply(550, b"5.1.3", b"Recipient address needs a domain")
UNKNOWN_RECIPIENT = ServerReply(550, b"5.1.1", b"No such mailbox here")
MAILBOX_DISABLED = ServerReply(550, b"5.2.1", b"Mailbox takes no mail")
MAILBOX_LATER = ServerReply(450, b"4.2.1", b"Mailbox takes no mail now")
RECIPIENT_UNDECIDED = ServerReply(451, b"4.3.0", b"Cannot look up the recipient now")
RULES_UNDECIDED = ServerReply(451, b"4.3.5", b"Cannot read the rules of this server now")
AUTH_REQUIRED = ServerReply(530, b"5.7.0", b"Authentication required")
TLS_REQUIRED = ServerReply(530, b"5.7.0", b"Must issue a STARTTLS command first")
SENDER_NOT_YOURS = ServerReply(553, b"5.7.1", b"Sender address does not belong to the authenticated user")
TOO_MANY_CONNECTIONS = ServerReply(421, b"4.7.0", b"Too many connections from your address")
TOO_MANY_AT_ONCE = ServerReply(421, b"4.7.0", b"Too many connections at once from your address")
TOO_MANY_MESSAGES = ServerReply(450, b"4.7.0", b"Too many messages from your address; try again later")
TOO_FAST_RECIPIENTS = ServerReply(450, b"4.7.0", b"Too many recipients from your address; try again later")
EARLY_TALKER = ServerReply(554, b"5.5.1", b"You spoke before the greeting")
LISTED = ServerReply(550, b"5.7.1", b"Your address is listed")
GREYLISTED = ServerReply(451, b"4.7.1", b"Greylisted; try again later")
SERVER_BUSY = ServerReply(421, b"4.3.2", b"Server is busy; try again later")
MESSAGE_REFUSED = ServerReply(554, b"5.6.0", b"Message refused")
SHUTTING_DOWN = ServerReply(421, b"4.3.2", b"Service is shutting down")
TIMED_OUT = ServerReply(421, b"4.4.2", b"Timeout exceeded")
QUEUE_UNAVAILABLE = ServerReply(451, b"4.3.0", b"Queue is not available now")
TLS_FAILED_FOR_NOW = ServerReply(454, b"4.7.0", b"TLS is not available now")
