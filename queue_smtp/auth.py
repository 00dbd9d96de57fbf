"""SMTP AUTH (RFC 4954): credentials, and the mechanisms that carry them. Base64 is the client's business.

    mechanism = choose(offered, credentials, secure)
    mechanism.initial()            goes with AUTH, or None where the server speaks first
    mechanism.answer(challenge)    for each 334
    mechanism.finish()             the server says that it is content: may we believe it?

Best first: SCRAM-SHA-256, SCRAM-SHA-1, CRAM-MD5, which keep the password from the server and whoever listens, then
PLAIN and LOGIN, which do not: those are for TLS, or where the credentials say so. A challenge is untrusted; the only
thing that it can raise is FormatError.
"""

import hashlib
import hmac
from typing import NamedTuple, Protocol

from queue_wire.format_error import FormatError


class Credentials(NamedTuple):
    """A user and a password, as bytes; `clear` allows them on a connection without TLS."""

    user: bytes
    password: bytes
    clear: bool

    def __repr__(self) -> str:
        # What is shown in a traceback or a log is no secret.
        return f"Credentials({self.user!r}, ***)"


class Mechanism(Protocol):
    """One exchange: made for one connection and used once."""

    name: bytes

    def initial(self) -> bytes | None:
        """Return the initial response, None where the server speaks first."""
        ...

    def answer(self, challenge: bytes) -> bytes:
        """Return the answer to a challenge. Raises FormatError where the challenge makes no sense."""
        ...

    def finish(self) -> None:
        """Raise FormatError where the server has not proved what this mechanism makes it prove."""
        ...


class _Answers:
    """A mechanism that has its answers ready, whatever the server says."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)

    def initial(self) -> bytes | None:
        return None

    def answer(self, challenge: bytes) -> bytes:
        if not self._answers:
            raise FormatError("a challenge after the last one")
        return self._answers.pop(0)

    def finish(self) -> None:
        """The server proves nothing."""


class Plain(_Answers):
    """PLAIN (RFC 4616): user and password at once."""

    name = b"PLAIN"

    def __init__(self, credentials: Credentials) -> None:
        # A server that passes by the initial response asks for it with an empty challenge.
        self._said = b"\0%s\0%s" % (credentials.user, credentials.password)
        super().__init__(self._said)

    def initial(self) -> bytes | None:
        return self._said


class Login(_Answers):
    """LOGIN (draft-murchison-sasl-login): the user, then the password. What the challenges say differs by server."""

    name = b"LOGIN"

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(credentials.user, credentials.password)


class CramMd5:
    """CRAM-MD5 (RFC 2195): the challenge, keyed with the password."""

    name = b"CRAM-MD5"

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._challenged = False

    def initial(self) -> bytes | None:
        return None

    def answer(self, challenge: bytes) -> bytes:
        if self._challenged or not challenge:
            raise FormatError("a challenge after the last one" if self._challenged else "an empty challenge")
        self._challenged = True
        digest = hmac.new(self._credentials.password, challenge, _md5).hexdigest()
        return b"%s %s" % (self._credentials.user, digest.encode("ascii"))

    def finish(self) -> None:
        if not self._challenged:
            raise FormatError("it was content without a challenge")


def choose(offered: bytes, credentials: Credentials, secure: bool) -> Mechanism | None:
    """Return the best mechanism among those offered (EHLO's parameters), None where none may be used."""
    names = offered.upper().split()
    if any(name.startswith(b"SCRAM-") for name in names):
        # It and what it needs take 30 ms to load.
        from queue_smtp.scram import make_scram

        scram = make_scram(names, credentials)
        if scram is not None:
            return scram
    if CramMd5.name in names:
        return CramMd5(credentials)
    if secure or credentials.clear:
        for open_one in (Plain, Login):
            if open_one.name in names:
                return open_one(credentials)
    return None


def _md5(data: bytes = b"") -> "hashlib._Hash":
    # A system that has put MD5 away still lets it be part of an HMAC.
    return hashlib.md5(data, usedforsecurity=False)
