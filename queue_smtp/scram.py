"""SCRAM-SHA-256 and SCRAM-SHA-1 (RFC 5802, RFC 7677) by package scramp: neither side shows the other its secret.

The server proves at the end that it knows the password's verifier; one that is content before it did is no
server of ours. Text for SCRAM is UTF-8, prepared with SASLprep; a user or password that cannot be is for other
mechanisms.
"""

import re
from collections.abc import Container
from typing import Any

import scramp

from queue_smtp.auth import Credentials
from queue_wire.format_error import FormatError

_NAMES = (b"SCRAM-SHA-256", b"SCRAM-SHA-1")
# The server says how much we compute. This many rounds take 30 ms; servers ask for 4,096 to 20,000.
ROUNDS_MOST = 100_000
_ROUNDS = re.compile(r"(?:.*,)?i=([0-9]{1,12})(?:,.*)?", re.DOTALL)


class Scram:
    """One exchange: the server's nonce, salt and rounds, then its signature."""

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
            # Whatever a challenge makes scramp stumble over, it is the challenge's fault.
            raise FormatError(f"SCRAM: {_shown(error)}") from error

    def finish(self) -> None:
        if self._steps:
            raise FormatError("it was content before it had proved that it knows the password")

    def _prove(self, first: str) -> bytes:
        rounds = _ROUNDS.fullmatch(first)
        if rounds is not None and int(rounds[1]) > ROUNDS_MOST:
            raise FormatError(f"it asks for {rounds[1]} rounds, and at most {ROUNDS_MOST} are done")
        self._client.set_server_first(first)
        return _encode(self._client.get_client_final())

    def _check(self, final: str) -> bytes:
        self._client.set_server_final(final)
        return b""


def make_scram(offered: Container[bytes], credentials: Credentials) -> Scram | None:
    """Return the better one of those offered, None where there is none, or none for such credentials."""
    for name in _NAMES:
        if name in offered:
            try:
                user, password = credentials.user.decode("utf-8"), credentials.password.decode("utf-8")
                return Scram(name, scramp.ScramClient([name.decode("ascii")], user, password))
            except (UnicodeDecodeError, scramp.ScramException):
                return None
    return None


def _shown(error: Exception) -> str:
    """Return an error's text, which may quote the challenge."""
    return "".join([char if char.isprintable() else "?" for char in str(error)[:200]])


def _encode(text: str) -> bytes:
    return text.encode("utf-8")
