"""Checks of host names and domains (RFC 1123 section 2.1, RFC 5321 section 2.3.5)."""

import re

from queue_base.errors import Usage

_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)\Z")


def check_host_name(name: str) -> str:
    """Return the name in lower case, without a final dot: two labels or more, not an address. Raises Usage."""
    found = check_domain(name)
    labels = found.split(".")
    if len(labels) < 2 or labels[-1].isdigit():
        raise Usage(f"unable to use host name {name!a}: it must be fully qualified, as mail.example.org; say --me NAME")
    return found


def check_domain(name: str) -> str:
    """Return the domain in lower case, without a final dot. Raises Usage."""
    found = name.removesuffix(".").lower()
    if len(found) > 253 or not all(_LABEL.match(label) for label in found.split(".")):
        raise Usage(f"unable to use domain {name!a}: it is not letters, digits and hyphens between dots")
    return found
