"""SMTP AUTH (RFC 4954): credentials, and the mechanisms that may carry them. Base64 is the client's business."""

from typing import NamedTuple, Protocol


class Credentials(NamedTuple):
    """A user and a password, as bytes; `clear` allows them on a connection without TLS."""

    user: bytes
    password: bytes
    clear: bool


class Mechanism(Protocol):
    """One exchange: made for one connection and used once."""

    name: bytes

    def initial(self) -> bytes | None:
        """Return the initial response, None where the server speaks first."""
        ...

    def answer(self, challenge: bytes) -> bytes:
        """Return the answer to a challenge. Raises FormatError where the challenge makes no sense."""
        ...


class Plain:
    """PLAIN (RFC 4616): the password as it is."""

    name = b"PLAIN"

    def __init__(self, credentials: Credentials) -> None:
        self._said = b"\0%s\0%s" % (credentials.user, credentials.password)

    def initial(self) -> bytes | None:
        return self._said

    def answer(self, challenge: bytes) -> bytes:
        return self._said


def choose(offered: bytes, credentials: Credentials, secure: bool) -> Mechanism | None:
    """Return the best mechanism among those offered (EHLO's parameters), None where none may be used."""
    if b"PLAIN" in offered.upper().split() and (secure or credentials.clear):
        return Plain(credentials)
    return None
