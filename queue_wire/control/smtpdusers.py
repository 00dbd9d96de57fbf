"""`control/smtpdusers`: the users of queue-smtpd and their passwords, as `queuectl passwd` makes it. Pure.

    joe:SCRAM-SHA-256$4096:SALT$STOREDKEY:SERVERKEY     a verifier (RFC 5803; the values in base64)
    ann:$y$j9T$...                                      a hash of crypt(5)
    customer:CRAM-MD5$PASSWORD                          the password itself, in base64, as CRAM-MD5 needs it
    :SECRET                                             32 bytes in base64, which hide who exists

A user has no colon, no control character and no space, and its case counts. The secret has no user. Errors never show
what stands behind the colon.

`control/checkpassword` names a program that knows the passwords, in their place. `control/submitters` has the senders
that each user may have.
"""

import binascii
import re
from collections.abc import Mapping
from typing import NamedTuple

from queue_wire.address import address_key
from queue_wire.control.lines import numbered_lines, unpack_line
from queue_wire.format_error import FormatError, InLine, quoted

USER_MAX = 255
# More would stall the server for its other clients.
ROUNDS_MAX = 1_000_000
_USER = re.compile(rb"[^\x00-\x20:\x7f]{1,%d}" % USER_MAX)
_CRAM = b"CRAM-MD5$"
_SCRAM = b"SCRAM-SHA-256$"
_VERIFIER = re.compile(rb"SCRAM-SHA-256\$([0-9]{4,7}):([^$:]+)\$([^$:]+):([^$:]+)")
# `$id$...`, with an id that is not the empty one of DES, and no character that crypt(5) does not allow.
_CRYPT = re.compile(rb"\$[0-9a-z]{1,10}\$[!-)+-9<-[\]-~]{8,400}")


class Verifier(NamedTuple):
    """What a server keeps instead of a password (RFC 5803)."""

    rounds: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        # It must not be shown in a traceback or a log.
        return "Verifier(***)"


class SharedSecret(NamedTuple):
    """A password that the server has, too (RFC 2195)."""

    password: bytes

    def __repr__(self) -> str:
        return "SharedSecret(***)"


# What a server knows of a user; bytes are a hash of crypt(5).
Proof = Verifier | SharedSecret | bytes


class UserPasswords(NamedTuple):
    """The file: what is known of each user. `secret` is empty if there is none."""

    users: Mapping[bytes, Proof]
    secret: bytes = b""

    def __repr__(self) -> str:
        return f"UserPasswords({len(self.users)} users)"


def unpack_users(data: bytes) -> UserPasswords:
    """Return the users. Raises LineError, also for a user who is there twice."""
    users: dict[bytes, Proof] = {}
    secret = b""
    for number, line in numbered_lines(data):
        with InLine(number):
            user, colon, value = line.partition(b":")
            if not colon:
                raise FormatError("not USER:HASH")
            if user:
                check_user(user)
                if user in users:
                    raise FormatError(f"a second line for user {quoted(user)}")
                users[user] = _unpack_hash(value)
            else:
                secret = _unpack_base64(value)
    return UserPasswords(users, secret)


def pack_users(found: UserPasswords) -> bytes:
    """Return the contents of the file."""
    lines = [b":" + _base64(found.secret)] if found.secret else []
    for user, value in sorted(found.users.items()):
        lines.append(b"%s:%s" % (user, _pack_proof(value)))
    return b"".join([line + b"\n" for line in lines])


def _pack_proof(value: Proof) -> bytes:
    if isinstance(value, bytes):
        return value
    return pack_verifier(value) if isinstance(value, Verifier) else _CRAM + _base64(value.password)


def pack_verifier(verifier: Verifier) -> bytes:
    """Return a verifier as it stands behind the colon."""
    salt, stored, server = map(_base64, verifier[1:])
    return _SCRAM + b"%d:%s$%s:%s" % (verifier.rounds, salt, stored, server)


def unpack_program(data: bytes) -> list[bytes]:
    """Return the program of control/checkpassword with its arguments, divided by spaces. Raises LineError."""
    with InLine(1):
        words = unpack_line(data).split()
        if not words or not words[0].startswith(b"/"):
            raise FormatError("not the path of a program that begins with a slash, and its arguments")
        return words


def unpack_submitters(data: bytes) -> dict[bytes, frozenset[bytes]]:
    """Return the senders that each user may have, of control/submitters. Raises LineError.

        USER:SENDER...     an address, `@domain` for all of a domain, `@` for all; as `address_key` makes it

    Senders of a user in several lines are all allowed.
    """
    found: dict[bytes, frozenset[bytes]] = {}
    for number, line in numbered_lines(data):
        with InLine(number):
            user, colon, rest = line.partition(b":")
            senders = [address_key(sender) for sender in rest.split()]
            if not colon or not senders:
                raise FormatError(f"not USER:SENDER...: {quoted(line)}")
            check_user(user)
            for sender in senders:
                if b"@" not in sender:
                    raise FormatError(f"a sender without `@`: {quoted(sender)}")
            found[user] = found.get(user, frozenset()) | frozenset(senders)
    return found


def check_user(user: bytes) -> None:
    """Raise FormatError if no user can have this name."""
    if user.startswith(b"#") or not _USER.fullmatch(user):
        raise FormatError(f"not a user, up to {USER_MAX} bytes without spaces and colons: {quoted(user)}")


def _unpack_hash(value: bytes) -> Proof:
    if value.startswith(_CRAM) and (password := _unpack_base64(value.removeprefix(_CRAM))):
        return SharedSecret(password)
    if not value.startswith(_SCRAM):
        if not _CRYPT.fullmatch(value):
            raise FormatError("neither SCRAM-SHA-256$..., CRAM-MD5$... nor a hash of crypt(5)")
        return value
    match = _VERIFIER.fullmatch(value)
    if match is None or int(match[1]) > ROUNDS_MAX:
        raise FormatError("not SCRAM-SHA-256$ROUNDS:SALT$STOREDKEY:SERVERKEY")
    salt, stored, server = (_unpack_base64(each) for each in match.groups()[1:])
    if len(stored) != 32 or len(server) != 32:
        raise FormatError("a key of SCRAM-SHA-256 that has not 32 bytes")
    return Verifier(int(match[1]), salt, stored, server)


def _unpack_base64(text: bytes) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        # `from None`: nothing of it may be shown.
        raise FormatError("not base64") from None


def _base64(data: bytes) -> bytes:
    return binascii.b2a_base64(data, newline=False)
