"""Envelope addresses on the wire: the `<path>` of MAIL FROM and RCPT TO (RFC 5321 section 4.1.2).

Envelopes hold addresses unquoted; here a local part that is not a Dot-string becomes a Quoted-string.
Nothing that could end a command early or start another one gets through, nor what makes a command too long: such an
address raises FormatError, and its delivery fails for good.
"""

import re

from queue_wire.address import DOUBLE_BOUNCE_SENDER, ascii_domain
from queue_wire.format_error import FormatError, quoted

# Bytes above 127 get here only as UTF-8, in an SMTPUTF8 path.
_DOT_STRING = re.compile(rb"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x80-\xff-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x80-\xff-]+)*")
# Domains are judged loosely, since the server at the other end decides what it knows; but no space,
# no control character and none of the characters that have a meaning in a path.
_DOMAIN = re.compile(rb"[!#-'*+\-./0-9=?A-Z^_`a-z{|}~]+|\[[0-9A-Za-z.:_-]+\]")
# `MAIL FROM:` and the end of its line leave as much of 512 bytes, the command line that every server takes (RFC 5321
# section 4.5.3.1.4). One that cuts longer ones would see the rest as a command.
PATH_MOST = 500
_PRINTABLE = re.compile(rb"[ -~]*")
_SPECIAL = re.compile(rb'(["\\])')


def pack_path(address: bytes) -> bytes:
    """Return the address as a path in angle brackets. Raises FormatError, also where it is not ASCII.

    The empty sender is `<>`, and so is qmail's sender of double bounces, `#@[]`: that is not an address
    to anybody else, and both mean that nothing may come back (RFC 5321 section 4.5.5). An address
    without an `@` (`postmaster`) stays so.
    """
    if not address or address == DOUBLE_BOUNCE_SENDER:
        return b"<>"
    if not address.isascii():
        raise FormatError(f"address is not ASCII: {quoted(address)}")
    if not _PRINTABLE.fullmatch(address):
        raise FormatError(f"address holds a control character: {quoted(address)}")
    local, at, domain = address.rpartition(b"@")
    if not at:
        return _bounded(b"<%s>" % _pack_local(domain))
    if not _DOMAIN.fullmatch(domain):
        raise FormatError(f"address has an impossible domain: {quoted(address)}")
    return _bounded(b"<%s@%s>" % (_pack_local(local), domain))


def pack_utf8_path(address: bytes) -> tuple[bytes, bool]:
    """Return the path of an address that is not ASCII, and whether only SMTPUTF8 can carry it (RFC 6531).

    A domain alone needs no SMTPUTF8: its A-labels (RFC 5890) mean the same. Raises FormatError.
    """
    try:
        text = address.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"address is neither ASCII nor UTF-8: {quoted(address)}") from error
    if not text.isprintable():
        raise FormatError(f"address holds a control character: {quoted(address)}")
    local, at, domain = text.rpartition("@")
    if not at:
        local, domain = domain, ""
    packed = ascii_domain(domain.encode())
    if at and not _DOMAIN.fullmatch(packed):
        raise FormatError(f"address has an impossible domain: {quoted(address)}")
    if local.isascii():
        return _bounded(b"<%s@%s>" % (_pack_local(local.encode()), packed)), False
    return _bounded(b"<%s%s%s>" % (_pack_local(local.encode()), at.encode(), domain.encode())), True


def _bounded(path: bytes) -> bytes:
    if len(path) > PATH_MOST:
        raise FormatError(f"address makes a command too long, {len(path)} bytes, limit {PATH_MOST}: {quoted(path)}")
    return path


def _pack_local(local: bytes) -> bytes:
    if _DOT_STRING.fullmatch(local):
        return local
    return b'"%s"' % _SPECIAL.sub(rb"\\\1", local)
