"""SMTP AUTH (RFC 4954): credentials and mechanisms. Base64 is left to the caller.

    mechanism = choose(offered, credentials, secure)
    mechanism.initial()            the initial response, or None if the server speaks first
    mechanism.answer(challenge)    the answer to each 334 reply
    mechanism.finish()             checks, after 235, what the server had to prove

SCRAM-SHA-256, SCRAM-SHA-1 and CRAM-MD5 do not show the password to the server or to a listener; they are preferred, in
this order. PLAIN and LOGIN do, so they are used only under TLS, or if the credentials allow it. A challenge is not
trusted: it can raise FormatError and nothing else.

SCRAM (RFC 5802, RFC 7677) is done by the package scramp. At the end the server proves that it knows the password's
verifier. User and password must be UTF-8 that SASLprep accepts; others need another mechanism.
"""

import hashlib
import hmac
import re
from collections.abc import Container
from typing import Any, NamedTuple, Protocol

from queue_wire.format_error import FormatError

_SCRAM_NAMES = (b"SCRAM-SHA-256", b"SCRAM-SHA-1")
# The server chooses the number of rounds. This many take 30 ms; servers ask for 4,096 to 20,000.
ROUNDS_MAX = 100_000
_ROUNDS = re.compile(r"(?:.*,)?i=([0-9]{1,12})(?:,.*)?", re.DOTALL)


class Credentials(NamedTuple):
    """A user and a password, as bytes. `clear` allows PLAIN and LOGIN without TLS."""

    user: bytes
    password: bytes
    clear: bool

    def __repr__(self) -> str:
        # The password must not be shown in a traceback or a log.
        return f"Credentials({self.user!r}, ***)"


class Mechanism(Protocol):
    """One exchange, for one connection."""

    name: bytes

    def initial(self) -> bytes | None:
        """Return the initial response, or None if the server speaks first."""
        ...

    def answer(self, challenge: bytes) -> bytes:
        """Return the answer to a challenge. Raises FormatError for a challenge that makes no sense."""
        ...

    def finish(self) -> None:
        """Raise FormatError if the server has not proved what the mechanism demands."""
        ...


class _FixedAnswers:
    """A mechanism whose answers do not depend on the challenges."""

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


class Plain(_FixedAnswers):
    """PLAIN (RFC 4616): user and password at once."""

    name = b"PLAIN"

    def __init__(self, credentials: Credentials) -> None:
        # A server that ignores the initial response asks for it with an empty challenge.
        self._response = b"\0%s\0%s" % (credentials.user, credentials.password)
        super().__init__(self._response)

    def initial(self) -> bytes | None:
        return self._response


class Login(_FixedAnswers):
    """LOGIN (draft-murchison-sasl-login): the user, then the password. The challenges differ between servers."""

    name = b"LOGIN"

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(credentials.user, credentials.password)


class CramMd5:
    """CRAM-MD5 (RFC 2195): a digest of the challenge, keyed with the password."""

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


class Scram:
    """SCRAM: the server sends its nonce, salt and rounds, then its signature. `client` is scramp's."""

    def __init__(self, name: bytes, client: Any) -> None:
        self.name = name
        self._client = client
        self._steps = [self._prove, self._check]

    def initial(self) -> bytes | None:
        return _encode(self._client.get_client_first())

    def answer(self, challenge: bytes) -> bytes:
        if not self._steps:
            raise FormatError("a challenge after the last one")
        try:
            return self._steps.pop(0)(challenge.decode("utf-8"))
        except FormatError:
            raise
        except UnicodeDecodeError as error:
            raise FormatError("a challenge that is not UTF-8") from error
        except Exception as error:
            # scramp raises exceptions of many classes for challenges that it does not expect.
            raise FormatError(f"SCRAM: {_shown(error)}") from error

    def finish(self) -> None:
        if self._steps:
            raise FormatError("it was content before it had proved that it knows the password")

    def _prove(self, first: str) -> bytes:
        rounds = _ROUNDS.fullmatch(first)
        if rounds is not None and int(rounds[1]) > ROUNDS_MAX:
            raise FormatError(f"it asks for {rounds[1]} rounds, and at most {ROUNDS_MAX} are done")
        self._client.set_server_first(first)
        return _encode(self._client.get_client_final())

    def _check(self, final: str) -> bytes:
        self._client.set_server_final(final)
        return b""


def choose(offered: bytes, credentials: Credentials, secure: bool) -> Mechanism | None:
    """Return the best of the mechanisms offered (the parameters of AUTH in EHLO), or None if none may be used."""
    names = offered.upper().split()
    scram = _make_scram(names, credentials)
    if scram is not None:
        return scram
    if CramMd5.name in names:
        return CramMd5(credentials)
    if secure or credentials.clear:
        for clear in (Plain, Login):
            if clear.name in names:
                return clear(credentials)
    return None


def _make_scram(offered: Container[bytes], credentials: Credentials) -> Scram | None:
    """Return the better SCRAM mechanism that is offered; None if there is none, or none for these credentials."""
    for name in _SCRAM_NAMES:
        if name in offered:
            # The import takes 30 ms.
            import scramp

            try:
                user, password = credentials.user.decode("utf-8"), credentials.password.decode("utf-8")
                return Scram(name, scramp.ScramClient([name.decode("ascii")], user, password))
            except (UnicodeDecodeError, scramp.ScramException):
                return None
    return None


def _md5(data: bytes = b"") -> "hashlib._Hash":
    # Systems that disable MD5 still allow it in an HMAC.
    return hashlib.md5(data, usedforsecurity=False)


def _shown(error: Exception) -> str:
    """Return an error's text, which may quote the challenge, without control characters."""
    return "".join([char if char.isprintable() else "?" for char in str(error)[:200]])


def _encode(text: str) -> bytes:
    return text.encode("utf-8")
