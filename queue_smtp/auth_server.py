"""The server side of SMTP AUTH (RFC 4954): what a client's responses mean. Base64 is left to the caller.

    mechanism = make_mechanism(name, secret)
    step = mechanism.start(initial)        the initial response, or None if the client has sent none
    step = mechanism.respond(response)     each further response

A step is what comes next: a challenge, a question to the caller, or the user who has proved to know the password. A
response that makes no sense raises FormatError, and a wrong proof WrongProof. PLAIN and LOGIN show the password, so
the caller offers them, as all mechanisms, under TLS alone.

SCRAM-SHA-256 (RFC 5802, RFC 7677) needs a verifier instead of a password: `give_verifier`. A user who does not exist
gets one that nobody has a password for, the same each time, so that a client cannot find out who exists. The
arithmetic is done by the package scramp.

CRAM-MD5 (RFC 2195) needs the password itself. It is for ATRN, some of whose clients have nothing else (RFC 2645
section 6 shows it).
"""

import hashlib
import hmac
import re
from typing import Any, NamedTuple, Protocol

from queue_wire.control.smtpdusers import Verifier
from queue_wire.format_error import FormatError

MECHANISMS = (b"SCRAM-SHA-256", b"PLAIN", b"LOGIN")
CRAM_MD5 = b"CRAM-MD5"
USER_MAX = 255
PASSWORD_MAX = 1024
# RFC 7677 section 4 has at least 4,096.
ROUNDS = 4096
# No channel binding (`n`, `y`) and no authorization identity. The name has `=2C` and `=3D` for `,` and `=`.
_CLIENT_FIRST = re.compile(r"[ny],,n=((?:[^,=\0-\x1f\x7f]|=2C|=3D){1,255}),r=([!-+\--~]{1,200})(?:,[ -~]*)?")


class AuthChallenge(NamedTuple):
    """A challenge for the client, which answers with a response."""

    text: bytes


class PasswordGiven(NamedTuple):
    """The client has sent a user and a password: are they right?

    If there is a `challenge`, of CRAM-MD5, the client has sent what digest_of makes of it and the password instead.
    """

    mechanism: bytes
    user: bytes
    password: bytes
    challenge: bytes = b""

    def __repr__(self) -> str:
        # The password must not be shown in a traceback or a log.
        return f"PasswordGiven({self.mechanism!r}, {self.user!r}, ***)"


class VerifierWanted(NamedTuple):
    """The client has named its user: which verifier does the user have?"""

    mechanism: bytes
    user: bytes


class Proved(NamedTuple):
    """The client has proved that it knows the password of the user."""

    user: bytes


AuthStep = AuthChallenge | PasswordGiven | VerifierWanted | Proved


class WrongProof(Exception):
    """The client does not know the password of `user`."""

    def __init__(self, user: bytes) -> None:
        super().__init__("wrong proof")
        self.user = user


class ServerMechanism(Protocol):
    """One exchange, for one AUTH command."""

    def start(self, initial: bytes | None) -> AuthStep:
        """Take the initial response, or None."""
        ...

    def respond(self, response: bytes) -> AuthStep:
        """Take the response to a challenge. Raises FormatError, WrongProof."""
        ...


class ServerPlain:
    """PLAIN (RFC 4616)."""

    def start(self, initial: bytes | None) -> AuthStep:
        return AuthChallenge(b"") if initial is None else self.respond(initial)

    def respond(self, response: bytes) -> AuthStep:
        parts = response.split(b"\0")
        if len(parts) != 3:
            raise FormatError("PLAIN: not an identity, a user and a password")
        identity, user, password = parts
        if identity not in (b"", user):
            # Nobody may act for another one.
            raise WrongProof(user[:USER_MAX])
        return _password_given(b"PLAIN", user, password)


class ServerLogin:
    """LOGIN (draft-murchison-sasl-login)."""

    def __init__(self) -> None:
        self._user: bytes | None = None

    def start(self, initial: bytes | None) -> AuthStep:
        return AuthChallenge(b"Username:") if initial is None else self.respond(initial)

    def respond(self, response: bytes) -> AuthStep:
        if self._user is None:
            self._user = response
            return AuthChallenge(b"Password:")
        return _password_given(b"LOGIN", self._user, response)


class ServerCramMd5:
    """CRAM-MD5 (RFC 2195)."""

    def __init__(self, challenge: bytes) -> None:
        self._challenge = challenge

    def start(self, initial: bytes | None) -> AuthStep:
        if initial is not None:
            raise FormatError("CRAM-MD5: an initial response")
        return AuthChallenge(self._challenge)

    def respond(self, response: bytes) -> AuthStep:
        user, _, digest = response.rpartition(b" ")
        return _password_given(CRAM_MD5, user, digest.lower())._replace(challenge=self._challenge)


class ServerScram:
    """SCRAM-SHA-256. `nonce` is for tests."""

    def __init__(self, secret: bytes, nonce: str | None = None) -> None:
        self._secret = secret
        self._nonce = nonce
        self._user = b""
        self._client_first = ""
        # scramp's side, from the verifier on.
        self._server: Any = None
        self._proved = False

    def start(self, initial: bytes | None) -> AuthStep:
        return AuthChallenge(b"") if initial is None else self.respond(initial)

    def respond(self, response: bytes) -> AuthStep:
        if self._proved:
            # RFC 4954 section 4: the last challenge has the server's proof, and its response is empty.
            if response:
                raise FormatError("SCRAM: a response to the server's proof")
            return Proved(self._user)
        try:
            text = response.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError("SCRAM: not UTF-8") from error
        if self._client_first:
            return self._check(text)
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise FormatError("SCRAM: not a first message, or one that asks for channel binding")
        self._client_first = text
        self._user = match[1].replace("=2C", ",").replace("=3D", "=").encode("utf-8")
        return VerifierWanted(b"SCRAM-SHA-256", self._user)

    def give_verifier(self, verifier: Verifier | None) -> AuthStep:
        """Take the user's verifier, None if there is no such user. Raises FormatError."""
        # The import takes 30 ms.
        import scramp

        rounds, salt, stored_key, server_key = verifier or make_up_verifier(self._user, self._secret)
        try:
            mechanism = scramp.ScramMechanism("SCRAM-SHA-256")
            self._server = mechanism.make_server(lambda user: (salt, stored_key, server_key, rounds), None, self._nonce)
            self._server.set_client_first(self._client_first)
            return AuthChallenge(self._server.get_server_first().encode("utf-8"))
        except Exception as error:
            # scramp raises exceptions of many classes for messages that it does not expect.
            raise FormatError("SCRAM: a first message that makes no sense") from error

    def _check(self, client_final: str) -> AuthStep:
        try:
            self._server.set_client_final(client_final)
            final = self._server.get_server_final().encode("utf-8")
        except Exception:
            raise WrongProof(self._user) from None
        self._proved = True
        return AuthChallenge(final)


def make_mechanism(name: bytes, secret: bytes, challenge: bytes) -> ServerMechanism:
    """Return a new exchange of one of the mechanisms. `secret` makes up verifiers for users who do not exist.

    `challenge` is for CRAM-MD5; nobody can have known it before.
    """
    if name == CRAM_MD5:
        return ServerCramMd5(challenge)
    if name == b"PLAIN":
        return ServerPlain()
    return ServerLogin() if name == b"LOGIN" else ServerScram(secret)


def make_verifier(password: bytes, salt: bytes, rounds: int = ROUNDS) -> Verifier:
    """Return the verifier of a password, which is UTF-8, with a random salt of 12 bytes or more. Raises FormatError."""
    import scramp

    try:
        made = scramp.ScramMechanism("SCRAM-SHA-256").make_auth_info(password.decode("utf-8"), rounds, salt)
    except (UnicodeDecodeError, scramp.ScramException) as error:
        raise FormatError("SCRAM: a password that SASLprep does not allow, or a bad salt") from error
    return Verifier(int(made[3]), bytes(made[0]), bytes(made[1]), bytes(made[2]))


def digest_of(challenge: bytes, password: bytes) -> bytes:
    """Return the response to a challenge of CRAM-MD5, without the user."""
    return hmac.new(password, challenge, "md5").hexdigest().encode("ascii")


def knows_password(verifier: Verifier, password: bytes) -> bool:
    """Return whether a password that came by PLAIN or LOGIN is that of a verifier. It costs all the rounds."""
    try:
        made = make_verifier(password, verifier.salt, verifier.rounds)
    except FormatError:
        return False
    return hmac.compare_digest(made.stored_key, verifier.stored_key)


def _password_given(mechanism: bytes, user: bytes, password: bytes) -> PasswordGiven:
    if not user or len(user) > USER_MAX or len(password) > PASSWORD_MAX or b"\0" in user or b"\0" in password:
        raise FormatError("a user that is empty, or a user or password that is too long or holds a NUL")
    return PasswordGiven(mechanism, user, password)


def make_up_verifier(user: bytes, secret: bytes) -> Verifier:
    """Return a verifier for a user who has none, always the same one."""
    parts = [hmac.new(secret, name + user, hashlib.sha256).digest() for name in (b"salt:", b"stored:", b"server:")]
    return Verifier(ROUNDS, parts[0][:16], parts[1], parts[2])
