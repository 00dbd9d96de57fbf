"""Envelope addresses: local part and domain, VERP senders (qmail's, `owner-@host-@[]`), internationalized domains.

In an envelope nothing is quoted: `quote_address` writes an address for a header, `dsn_address` for a status report.
"""

from queue_wire.format_error import FormatError, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

VERP_SUFFIX = b"-@[]"
# The sender of a double bounce, which is never bounced again (qmail-send(8)).
DOUBLE_BOUNCE_SENDER = b"#@[]"
# RFC 1035 section 2.3.4 allows 253 bytes; U-labels are up to four times as long as their A-labels.
DOMAIN_MAX = 1000
# RFC 5322 section 3.2.3: what a local part without quotes consists of.
_DOT_ATOM = b"!#$%&'*+-/=?^_`{|}~.ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_NO_CONTROLS = bytes(95 if byte < 32 or byte == 127 else byte for byte in range(256))
_CONTROLS = bytes((*range(32), 127))


def split_address(address: bytes) -> tuple[bytes, bytes]:
    """Return (local part, domain), divided at the last `@`; the domain is empty if there is no `@`."""
    local, at, domain = address.rpartition(b"@")
    return (local, domain) if at else (domain, b"")


def quote_address(address: bytes) -> bytes:
    """Return an address for a header field, its local part quoted unless it is a dot-atom (RFC 5322 section 3.4.1).

    Control characters, which no header can hold, become `_`.
    """
    return _quote(address).translate(_NO_CONTROLS)


def _quote(address: bytes) -> bytes:
    local = split_address(address)[0]
    if not address or (local and not local.translate(None, _DOT_ATOM) and b"" not in local.split(b".")):
        return address
    quoted_local = local.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return b'"%s"%s' % (quoted_local, address[len(local) :])


def has_control_character(address: bytes) -> bool:
    """Return whether a header cannot hold the address as it is."""
    return len(address.translate(None, _CONTROLS)) != len(address)


def refuse_unsendable(address: bytes) -> None:
    """Raise FormatError for an address with a character that no command of SMTP may have, even with SMTPUTF8.

    These are control characters, bytes that are not UTF-8, and characters that nobody sees, such as the no-break space:
    it comes with text that was copied, and is part of hardly any address that exists.
    """
    if address.isascii():
        if has_control_character(address):
            raise FormatError(f"address holds a control character: {quoted(address)}")
        return
    try:
        text = address.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"address is neither ASCII nor UTF-8: {quoted(address)}") from error
    if text.isprintable():
        return
    for char in text:
        if not char.isprintable():
            kind = "a control character" if char < "\xa0" else f"U+{ord(char):04X}, a character that nobody sees"
            raise FormatError(f"address holds {kind}: {quoted(address)}")


def dsn_address(address: bytes, longest: int) -> bytes:
    """Return `type; address` for a field of a status report, in ASCII; the address is cut at `longest` bytes.

    The type is rfc822. One that rfc822 cannot write is utf-8: in this, characters that are not ASCII, control
    characters, space, `+`, `=` and the backslash are embedded as `\\x{2B}` (RFC 6533 section 3).
    """
    if address.isascii() and not has_control_character(address):
        return b"rfc822; " + _quote(address)[:longest]
    text = ""
    for char in _quote(address).decode("utf-8", "replace"):
        part = char if "!" <= char <= "~" and char not in "+=\\" else f"\\x{{{ord(char):02X}}}"
        if len(text) + len(part) > longest:
            break
        text += part
    return b"utf-8; " + text.encode("ascii")


def is_verp(sender: bytes) -> bool:
    """Return whether the sender is different for each recipient: `local-@host-@[]` (addresses(5))."""
    return len(sender) > 4 and sender.endswith(VERP_SUFFIX) and b"@" in sender[:-4]


def verp_sender(sender: bytes, recipient: bytes) -> bytes:
    """Return the sender to use for one recipient: `owner-@host-@[]` to x@y is `owner-x=y@host`."""
    if not is_verp(sender) or b"@" not in recipient:
        return sender
    local, domain = split_address(recipient)
    owner, host = split_address(sender[: -len(VERP_SUFFIX)])
    return b"%s%s=%s@%s" % (owner, local, domain, host)


def bounce_recipient(sender: bytes) -> bytes:
    """Return the address that a bounce for `sender` goes to: without a final `-@[]`, as in qmail-send."""
    return sender.removesuffix(VERP_SUFFIX)


def strip_prepend(recipient: bytes, virtualdomains: "Mapping[bytes, bytes]") -> bytes:
    """Return a local recipient without the `prepend-` that virtualdomains added, as its sender wrote it."""
    domain = domain_key(split_address(recipient)[1])
    keys = [domain] + [domain[dot:] for dot in range(1, len(domain)) if domain[dot] == 0x2E] + [b""]
    for key in keys:
        prepend = virtualdomains.get(key)
        if prepend is not None:
            head = prepend + b"-"
            return recipient[len(head) :] if prepend and recipient.startswith(head) else recipient
    return recipient


def domain_key(domain: bytes) -> bytes:
    """Return a domain, or `.domain`, in the form in which any two are compared: in lower case, with A-labels.

    So U-labels, letters of full width and the dots of other scripts make no other domain of it, nor does the final dot
    of a fully qualified name.
    """
    if domain.isascii():
        return without_final_dot(domain).lower()
    dot = b"." if domain.startswith(b".") else b""
    try:
        return without_final_dot(dot + ascii_domain(domain.removeprefix(b".")))
    except FormatError:
        # No such domain exists.
        return without_final_dot(domain).lower()


def without_final_dot(domain: bytes) -> bytes:
    """Return a domain without the final dot of a fully qualified name (RFC 1034 section 3.1).

    Mail knows no such dot (RFC 5321 section 2.3.5), so the name means the same without it. A dot alone, and two at the
    end, are in no name, and stay.
    """
    if domain[-1:] != b"." or domain[-2:] in (b".", b".."):
        return domain
    return domain[:-1]


def address_key(address: bytes) -> bytes:
    """Return an address, `@domain` or a domain alone in the form in which any two are compared."""
    local, at, domain = address.rpartition(b"@")
    return local.lower() + at + domain_key(domain)


def domain_of(address: bytes) -> bytes:
    """Return the domain of an address in the form in which any two are compared; empty without a domain."""
    return domain_key(split_address(address)[1])


def ascii_domain(domain: bytes) -> bytes:
    """Return a domain with its U-labels (UTF-8) converted to A-labels (RFC 5890, UTS 46), in lower case.

    An ASCII domain is returned unchanged. Raises FormatError if the domain has no such form.
    """
    if domain.isascii():
        return domain
    if len(domain) > DOMAIN_MAX:
        raise FormatError(f"domain is too long: {quoted(domain)}")
    # The tables take milliseconds to load, and few domains need them.
    import idna

    try:
        return idna.encode(domain.decode("utf-8"), uts46=True)
    except (UnicodeError, IndexError) as error:
        raise FormatError(f"not an internationalized domain name: {quoted(domain)}") from error
