"""DANE for SMTP (RFC 7672): which TLSA records count, and what they say of the certificates that a host shows.

Nothing here counts unless DNSSEC vouches for it, which the caller has seen to. Usages 0 and 1 are unusable for SMTP
(section 3.1.3); where a host has only unusable records its mail goes under TLS, unverified (section 2.2).
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from queue_remote.tls.chain import BROKEN, anchored_store, chain_objection, name_objection

CA, OWN = 2, 3
WHOLE, KEY = 0, 1
FULL, SHA256, SHA512 = 0, 1, 2
# Of those that a host shows; its own is the first, and its CAs come soon behind it.
CHAIN_MOST = 20
_DIGEST_BYTES = {SHA256: 32, SHA512: 64}


class Tlsa(NamedTuple):
    """A TLSA record's fields (RFC 6698 section 2.1)."""

    usage: int
    selector: int
    matching: int
    data: bytes

    def __str__(self) -> str:
        shown = self.data.hex()
        return f"{self.usage} {self.selector} {self.matching} {shown[:16]}{'...' if len(shown) > 16 else ''}"


def usable(records: Iterable[Tlsa]) -> list[Tlsa]:
    """Return the records that count; of digests of the same thing, the strongest only (RFC 7671 section 9)."""
    known = [record for record in records if _is_usable(record)]
    best = {(record.usage, record.selector): 0 for record in known}
    for record in known:
        kind = record.usage, record.selector
        best[kind] = max(best[kind], record.matching)
    return [record for record in known if record.matching in (FULL, best[record.usage, record.selector])]


def objection(chain: list[bytes], records: list[Tlsa], names: list[bytes]) -> str | None:
    """Return why none of the usable records vouches for a chain of certificates (DER), None where one does.

    Usage 3 says which certificate or key the host has, whatever its names and dates (section 3.1.1); usage 2
    which CA has signed it, for one of `names` (section 3.1.2).
    """
    if not chain:
        return "no certificate"
    # OpenSSL takes hundreds, and a zone may have as many records: each certificate is looked at once.
    chain = chain[:CHAIN_MOST]
    try:
        if _fits(chain[0], [record for record in records if record.usage == OWN]):
            return None
        authorities = [record for record in records if record.usage == CA]
        anchors = [certificate for certificate in chain[1:] if _fits(certificate, authorities)]
        # A whole certificate in DNS need not be shown.
        anchors += [record.data for record in records if record[:3] == (CA, WHOLE, FULL)]
        if not anchors:
            return "certificate does not match the TLSA records"
        store = anchored_store(anchors)
    except BROKEN as error:
        return f"broken certificate: {error}"
    return chain_objection(chain, store) or name_objection(chain[0], names, common_name=True)


def _is_usable(record: Tlsa) -> bool:
    if record.usage not in (CA, OWN) or record.selector not in (WHOLE, KEY):
        return False
    if record.matching != FULL:
        return len(record.data) == _DIGEST_BYTES.get(record.matching)
    try:
        if record.selector == WHOLE:
            x509.load_der_x509_certificate(record.data)
    except BROKEN:
        return False
    return bool(record.data)


def _fits(certificate: bytes, records: list[Tlsa]) -> bool:
    """Return whether any of the records is about a certificate."""
    wanted: dict[tuple[int, int], set[bytes]] = {}
    for record in records:
        wanted.setdefault((record.selector, record.matching), set()).add(record.data)
    whole = {WHOLE: certificate}
    if any(selector == KEY for selector, _ in wanted):
        key = x509.load_der_x509_certificate(certificate).public_key()
        whole[KEY] = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return any(_digest(whole[selector], matching) in data for (selector, matching), data in wanted.items())


def _digest(what: bytes, matching: int) -> bytes:
    if matching == SHA256:
        return hashlib.sha256(what).digest()
    return hashlib.sha512(what).digest() if matching == SHA512 else what
