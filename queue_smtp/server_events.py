"""The events of an SMTP session (queue_smtp.server): what a client wants, and what has happened.

A question waits for the caller's answer. The other events are facts.
"""

from typing import NamedTuple

from queue_smtp.auth_server import PasswordGiven, VerifierWanted
from queue_smtp.command import SenderParameters
from queue_smtp.server_replies import ServerReply


class HelloGiven(NamedTuple):
    """Question: EHLO or HELO. `name` is one word in any charset, without control characters."""

    name: bytes
    esmtp: bool


class ClientChanged(NamedTuple):
    """Question: XCLIENT, with attributes as queue_smtp.xclient has them. The usual answer is a greeting."""

    attributes: dict[bytes, bytes]


class TlsWanted(NamedTuple):
    """Question: STARTTLS."""


class SenderGiven(NamedTuple):
    """Question: MAIL. `address` is unquoted, empty for `<>`; it may lack a domain."""

    address: bytes
    parameters: SenderParameters


class RecipientGiven(NamedTuple):
    """Question: RCPT. `address` is unquoted and without a source route; it may lack a domain."""

    address: bytes


class MailWanted(NamedTuple):
    """Question: ETRN (RFC 1985). `name` is a domain of printable ASCII, perhaps with `@` or `#` before it.

    The answer is always given with a reply.
    """

    name: bytes


class TurnWanted(NamedTuple):
    """Question: ATRN (RFC 2645). `domains` are in lower case; none for all of the user's.

    The answer is always given with a reply. After a positive one the client is the server.
    """

    domains: list[bytes]


class MessageBegun(NamedTuple):
    """Question: DATA, or the first BDAT. All recipients are known."""


class MessagePiece(NamedTuple):
    """Bytes of the message, with LF line ends."""

    data: bytes


class MessageEnded(NamedTuple):
    """Question: all of the message is there. `size` counts CRLFs. A positive answer takes the message over."""

    size: int


class TransactionDropped(NamedTuple):
    """The transaction is over without a message: what there is of it is to be forgotten."""


class UserAuthenticated(NamedTuple):
    """AUTH succeeded."""

    user: bytes
    mechanism: bytes


class UserRefused(NamedTuple):
    """AUTH failed: a wrong password, or no such user."""

    user: bytes
    mechanism: bytes


class BadCommand(NamedTuple):
    """A command that the protocol refused, or a message. `shown` is for the log, and holds no password."""

    shown: bytes
    reply: ServerReply


class SessionClosed(NamedTuple):
    """The server ends the session."""

    reason: str


Question = (
    HelloGiven
    | ClientChanged
    | TlsWanted
    | SenderGiven
    | RecipientGiven
    | MailWanted
    | TurnWanted
    | MessageBegun
    | MessageEnded
    | PasswordGiven
    | VerifierWanted
)
ServerEvent = (
    Question | MessagePiece | TransactionDropped | UserAuthenticated | UserRefused | BadCommand | SessionClosed
)
