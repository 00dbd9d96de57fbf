"""Reverse-paths and forward-paths: the arguments of MAIL FROM and RCPT TO (RFC 5321 section 4.1.2).

Envelopes hold addresses unquoted. In a path, a local part that is not a Dot-string is a Quoted-string. An address
raises FormatError if it holds a control character or another byte that could end its command or start another one, or
if it makes the command too long. A domain with a final dot, as in the DNS, is the one without it, on both sides.

`pack_…` is for the client. `unpack_path` is for the server, and takes what clients write.
"""

import ipaddress
import re

from queue_wire.address import DOUBLE_BOUNCE_SENDER, ascii_domain, refuse_unsendable, without_final_dot
from queue_wire.files.envelope import ADDRESS_MAX
from queue_wire.format_error import FormatError, quoted

# A path, and whether only SMTPUTF8 can carry it (RFC 6531).
SmtpPath = tuple[bytes, bool]

# Bytes above 127 are UTF-8, in an SMTPUTF8 path.
_DOT_STRING = re.compile(rb"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x80-\xff-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x80-\xff-]+)*")
# The server decides which domains it knows, so this is not strict. It excludes spaces, control characters
# and the characters that have a meaning in a path.
_DOMAIN = re.compile(rb"[!#-'*+\-./0-9=?A-Z^_`a-z{|}~]+|\[[0-9A-Za-z.:_-]+\]")
# Every server takes command lines of 512 bytes (RFC 5321 section 4.5.3.1.4), of which `MAIL FROM:` and the line end
# leave this. A server that cuts longer lines would take the rest for a command.
PATH_MAX = 500
# Addresses that need no closer look, as almost all.
_PLAIN = re.compile(rb"[A-Za-z0-9_+=-]+(?:\.[A-Za-z0-9_+=-]+)*@[A-Za-z0-9.-]*[A-Za-z0-9-]")
_SPECIAL = re.compile(rb'(["\\])')

# What a client writes. A local part with misplaced dots is taken, because such addresses exist. A source route is
# `@one,@two:`; RFC 5321 appendix C has servers ignore it. The alternatives begin with different bytes, so a path
# matches in one way only. Python 3.11.2 does not undo a possessive group that fails in its middle: there is none here.
_ATOMS = rb"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.\x80-\xff-]+"
_QUOTED = rb'"(?:[ !#-\[\]-~\x80-\xff]|\\[ -~])*"'
_LABELS = rb"[A-Za-z0-9_\x80-\xff-]+(?:\.[A-Za-z0-9_\x80-\xff-]+)*\.?"
_LITERAL = rb"\[[0-9A-Za-z.:_-]+\]"
_MAILBOX = rb"(%s|%s)(?:@(%s|%s))?" % (_ATOMS, _QUOTED, _LABELS, _LITERAL)
_ROUTE = rb"(?:@(?:%s|%s)(?:,@(?:%s|%s))*:)?" % (_LABELS, _LITERAL, _LABELS, _LITERAL)
_IN_BRACKETS = re.compile(rb"<(?:%s%s)?>" % (_ROUTE, _MAILBOX))
_WITHOUT_BRACKETS = re.compile(_MAILBOX)
_LABEL_MAX = 63
_NAME_MAX = 253
_QUOTED_PAIR = re.compile(rb"\\(.)")


def pack_reverse_path(sender: bytes) -> SmtpPath:
    """Return the path of MAIL FROM. Raises FormatError."""
    return (pack_path(sender), False) if sender.isascii() else pack_utf8_path(sender)


def pack_forward_path(recipient: bytes) -> SmtpPath:
    """Return the path of RCPT TO. Raises FormatError, also for an empty recipient."""
    if not recipient.isascii():
        return pack_utf8_path(recipient)
    path = pack_path(recipient)
    if path == b"<>":
        raise FormatError("recipient is empty")
    return path, False


def pack_path(address: bytes) -> bytes:
    """Return an ASCII address as a path in angle brackets. Raises FormatError, also for an address that is not ASCII.

    The empty sender is `<>`. So is `#@[]`, qmail's sender of double bounces, which is no address for other systems:
    both mean that nothing may be sent back (RFC 5321 section 4.5.5). An address without an `@`, such as `postmaster`,
    is not completed.
    """
    if _PLAIN.fullmatch(address):
        return _bounded(b"<%s>" % address)
    if not address or address == DOUBLE_BOUNCE_SENDER:
        return b"<>"
    if not address.isascii():
        raise FormatError(f"address is not ASCII: {quoted(address)}")
    refuse_unsendable(address)
    local, at, domain = address.rpartition(b"@")
    if not at:
        return _bounded(b"<%s>" % _pack_local(domain))
    domain = without_final_dot(domain)
    if not _DOMAIN.fullmatch(domain):
        raise FormatError(f"address has an impossible domain: {quoted(address)}")
    return _bounded(b"<%s@%s>" % (_pack_local(local), domain))


def pack_utf8_path(address: bytes) -> SmtpPath:
    """Return the path of an address that is not ASCII. Raises FormatError.

    It needs SMTPUTF8 if its local part is not ASCII. A domain has an equal form in ASCII, its A-labels (RFC 5890).
    """
    refuse_unsendable(address)
    text = address.decode("utf-8")
    local, at, domain = text.rpartition("@")
    if not at:
        local, domain = domain, ""
    packed = without_final_dot(ascii_domain(domain.encode()))
    if at and not _DOMAIN.fullmatch(packed):
        raise FormatError(f"address has an impossible domain: {quoted(address)}")
    if local.isascii():
        return _bounded(b"<%s@%s>" % (_pack_local(local.encode()), packed)), False
    domain_kept = without_final_dot(domain.encode())
    return _bounded(b"<%s%s%s>" % (_pack_local(local.encode()), at.encode(), domain_kept)), True


def unpack_path(text: bytes) -> tuple[bytes, bytes]:
    """Return (address, the text behind the path) of a text that begins with a path. Raises FormatError.

    The address is unquoted and has no source route, as envelopes have it; it is empty for `<>`. It may have no domain,
    and may be UTF-8, whose bytes are printable characters. Brackets may be left out, as many clients do.
    """
    match = _IN_BRACKETS.match(text) or _WITHOUT_BRACKETS.match(text)
    if match is None:
        raise FormatError(f"not a path: {quoted(text)}")
    local, domain = match.groups()
    rest = text[match.end() :]
    if rest and not rest.startswith(b" "):
        raise FormatError(f"not a path: {quoted(text)}")
    if local is None:
        return b"", rest
    if local.startswith(b'"'):
        local = _QUOTED_PAIR.sub(rb"\1", local[1:-1])
        if not local:
            raise FormatError(f"empty local part: {quoted(text)}")
    if domain is None and b"@" in local:
        # Unquoted it would be the address of another domain, or one that only qmail's programs may use.
        raise FormatError(f"local part with an @, and no domain: {quoted(text)}")
    if domain is not None and not _may_be_host(domain):
        raise FormatError(f"no host can have this name or address: {quoted(domain)}")
    address = local if domain is None else b"%s@%s" % (local, without_final_dot(domain))
    if len(address) > ADDRESS_MAX:
        raise FormatError(f"address of {len(address)} bytes, limit {ADDRESS_MAX}: {quoted(address)}")
    refuse_unsendable(address)
    return address, rest


def unpack_mailbox(address: bytes) -> bytes:
    """Return an unquoted address, as other protocols have it, as `unpack_path` returns that of its path.

    Raises FormatError if no path has it.
    """
    local, at, domain = address.rpartition(b"@") if b"@" in address else (address, b"", b"")
    found, rest = unpack_path(b"<%s%s%s>" % (_pack_local(local), at, domain))
    if rest or found != local + at + without_final_dot(domain):
        raise FormatError(f"not an address: {quoted(address)}")
    return found


def _may_be_host(domain: bytes) -> bool:
    """Return whether the DNS could know a domain (RFC 1035 section 2.3.4), or whether a literal is an IP address.

    A name that is not ASCII is not looked at. An underscore is taken, because hosts with one exist.
    """
    if domain.startswith(b"["):
        text = domain[1:-1].decode()
        try:
            if text[:5].lower() == "ipv6:":
                ipaddress.IPv6Address(text[5:])
            else:
                ipaddress.IPv4Address(text)
        except ValueError:
            return False
        return True
    if len(domain) > _LABEL_MAX or b"-" in domain:
        if len(domain) > _NAME_MAX:
            return False
        return not any(len(each) > _LABEL_MAX or each[:1] == b"-" or each[-1:] == b"-" for each in domain.split(b"."))
    return True


def _bounded(path: bytes) -> bytes:
    if len(path) > PATH_MAX:
        raise FormatError(f"address makes a command too long, {len(path)} bytes, limit {PATH_MAX}: {quoted(path)}")
    return path


def _pack_local(local: bytes) -> bytes:
    if _DOT_STRING.fullmatch(local):
        return local
    return b'"%s"' % _SPECIAL.sub(rb"\\\1", local)
