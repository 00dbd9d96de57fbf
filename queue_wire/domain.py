"""Domains with U-labels as DNS and SMTP without SMTPUTF8 know them: A-labels (RFC 5890, UTS 46)."""

from queue_wire.errors import FormatError, quoted

# RFC 1035 section 2.3.4 allows 253 bytes; U-labels are up to four times as long as what becomes of them.
DOMAIN_MOST = 1000


def ascii_domain(domain: bytes) -> bytes:
    """Return a domain with its U-labels (UTF-8) as A-labels, in lower case; an ASCII one comes back as it is.

    Raises FormatError where it cannot be written so.
    """
    if domain.isascii():
        return domain
    if len(domain) > DOMAIN_MOST:
        raise FormatError(f"domain is too long: {quoted(domain)}")
    # Its tables take milliseconds to load, and few domains need them.
    import idna

    try:
        return idna.encode(domain.decode("utf-8"), uts46=True)
    except (UnicodeError, IndexError) as error:
        raise FormatError(f"not an internationalized domain name: {quoted(domain)}") from error
