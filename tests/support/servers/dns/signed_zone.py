"""Zones signed with DNSSEC, for a validating resolver (unbound.py with `validate`) that trusts their keys."""

from typing import NamedTuple

import dns.dnssec
import dns.name
import dns.node
import dns.rdatatype
import dns.zone
from cryptography.hazmat.primitives.asymmetric import ed25519

_HEAD = """$TTL 60
@ SOA ns hostmaster 1 3600 600 86400 30
@ NS ns
ns A 127.0.0.1
"""


class SignedZone(NamedTuple):
    """The zone file's text, and unbound.conf(5)'s line that trusts its key."""

    text: str
    trust: str


def sign(name: str, records: str) -> SignedZone:
    """Return a zone of these records, signed with a new key."""
    origin = dns.name.from_text(name)
    zone = dns.zone.from_text(_HEAD + records, origin=origin, relativize=False)
    private = ed25519.Ed25519PrivateKey.generate()
    key = dns.dnssec.make_dnskey(private.public_key(), "ED25519", flags=257)
    dns.dnssec.sign_zone(zone, keys=[(private, key)], lifetime=86400, dnskey_ttl=60)
    digest = dns.dnssec.make_ds(origin, key, "SHA256")
    return SignedZone(zone.to_text(relativize=False), f'trust-anchor: "{origin} DS {digest}"')
