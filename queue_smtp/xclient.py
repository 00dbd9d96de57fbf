"""XCLIENT: a proxy that is trusted says who its client is (Postfix, XCLIENT_README). Pure.

Its arguments are `NAME=value`, the values in xtext (RFC 3461 section 4). `[UNAVAILABLE]` and `[TEMPUNAVAIL]` mean that
the proxy does not know.
"""

import ipaddress
import re

from queue_smtp.command import CommandRefused, divide_command, unpack_hello
from queue_wire.control.smtpdusers import USER_MAX
from queue_wire.format_error import FormatError, quoted

ATTRIBUTES = (b"NAME", b"ADDR", b"PORT", b"PROTO", b"HELO", b"LOGIN", b"DESTADDR", b"DESTPORT")
_UNKNOWN = (b"[UNAVAILABLE]", b"[TEMPUNAVAIL]")
_ADDRESSES = (b"ADDR", b"DESTADDR")
_PORTS = (b"PORT", b"DESTPORT")
# A name in DNS.
NAME_MAX = 255
_HEX = re.compile(rb"\+([0-9A-F]{2})")
_PRINTABLE = re.compile(rb"[!-~]+")
# As AUTH takes it, in any charset.
_USER = re.compile(rb"[^\x00-\x1f\x7f]+")


def unpack_xclient(argument: bytes) -> dict[bytes, bytes]:
    """Return {attribute: value}; a value is empty if it is not known. Raises FormatError.

    Addresses are in the form of Python's ipaddress, without `IPv6:`.
    """
    found: dict[bytes, bytes] = {}
    for word in argument.split():
        name, equals, value = word.partition(b"=")
        name = name.upper()
        if not equals or name not in ATTRIBUTES or name in found:
            raise FormatError(f"XCLIENT: not an attribute, or there twice: {quoted(word)}")
        found[name] = b"" if value.upper() in _UNKNOWN else _unpack_value(name, unpack_xtext(value))
    if not found:
        raise FormatError("XCLIENT: no attribute")
    return found


def unpack_xtext(text: bytes) -> bytes:
    """Return the bytes of an xtext. Raises FormatError."""
    if b"+" not in text:
        return text
    # Each `+` begins a pair of digits, so what follows a valid one is no part of it.
    plain = _HEX.sub(b"", text)
    if b"+" in plain:
        raise FormatError(f"not xtext: {quoted(text)}")
    return _HEX.sub(lambda match: bytes([int(match[1], 16)]), text)


def _unpack_value(name: bytes, value: bytes) -> bytes:
    if name == b"HELO":
        return _unpack_helo(value)
    if name == b"LOGIN":
        if not _USER.fullmatch(value) or len(value) > USER_MAX:
            raise FormatError(f"XCLIENT: not a user, or too long: {quoted(value)}")
        return value
    if not _PRINTABLE.fullmatch(value) or len(value) > NAME_MAX:
        raise FormatError(f"XCLIENT: not printable, empty or too long: {quoted(value)}")
    if name in _PORTS:
        if not value.isdigit() or len(value) > 5 or int(value) > 65535:
            raise FormatError(f"XCLIENT: not a port: {quoted(value)}")
    elif name in _ADDRESSES:
        text = value[5:] if value[:5].upper() == b"IPV6:" else value
        try:
            return str(ipaddress.ip_address(text.decode())).encode()
        except ValueError as error:
            raise FormatError(f"XCLIENT: not an address: {quoted(value)}") from error
    elif name == b"PROTO":
        if value.upper() not in (b"SMTP", b"ESMTP"):
            raise FormatError(f"XCLIENT: not a protocol: {quoted(value)}")
        return value.upper()
    return value


def _unpack_helo(value: bytes) -> bytes:
    """Return the name in what the client has said behind HELO, as that command takes it."""
    try:
        return unpack_hello(divide_command(b"HELO " + value)[1])
    except CommandRefused as error:
        raise FormatError(f"XCLIENT: {error}: {quoted(value)}") from error
