"""Envelope addresses: local part and domain, and VERP senders (qmail's, `owner-@host-@[]`)."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

VERP_SUFFIX = b"-@[]"
# The sender of a double bounce, which is never bounced again (qmail-send(8)).
DOUBLE_BOUNCE_SENDER = b"#@[]"


def split_address(address: bytes) -> tuple[bytes, bytes]:
    """Return (local part, domain); the domain is empty where there is no `@`. The last `@` divides."""
    local, at, domain = address.rpartition(b"@")
    return (local, domain) if at else (domain, b"")


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
    """Return the address that a bounce for `sender` goes to: any `-@[]` at the end goes, as qmail-send has it."""
    return sender.removesuffix(VERP_SUFFIX)


def strip_prepend(recipient: bytes, virtualdomains: "Mapping[bytes, bytes]") -> bytes:
    """Return a local recipient without the `prepend-` that its virtual domain gave it, for people to read."""
    domain = split_address(recipient)[1].lower()
    keys = [domain] + [domain[dot:] for dot in range(1, len(domain)) if domain[dot] == 0x2E] + [b""]
    for key in keys:
        prepend = virtualdomains.get(key)
        if prepend is not None:
            head = prepend + b"-"
            return recipient[len(head) :] if prepend and recipient.startswith(head) else recipient
    return recipient
