"""Names with a wildcard, as certificates (RFC 6125 section 6.4.3) and MTA-STS policies (RFC 8461 section 4.1) have."""


def matches(pattern: bytes, host: bytes) -> bool:
    """Return whether a host name is the pattern, or what `*.` at the pattern's start stands for: one label."""
    pattern, host = pattern.lower().removesuffix(b"."), host.lower().removesuffix(b".")
    if not pattern.startswith(b"*."):
        return bool(host) and pattern == host
    label, dot, parent = host.partition(b".")
    return bool(label and dot) and b"*" not in parent and parent == pattern[2:]
