"""DANE for SMTP (RFC 7672): looks TLSA records up, and verifies a server's certificates by them.

Only records that DNSSEC validated count. Usages 0 and 1 are unusable for SMTP (section 3.1.3); if a host has unusable
records only, its mail is sent under TLS without verification (section 2.2). Imported only when it is needed, like
queue_remote.tls.certificates.
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from queue_remote.route.order import Target
from queue_remote.route.resolver import Resolver
from queue_remote.tls.certificates import BROKEN, CHAIN_MAX, anchored_store, chain_objection, name_objection

CA, OWN = 2, 3
WHOLE, KEY = 0, 1
FULL, SHA256, SHA512 = 0, 1, 2
# Records that texts name.
_SHOWN = 3
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


class TlsaFound(NamedTuple):
    """`name` is the host that has the records, `records` are the usable ones, `text` names all of them."""

    name: bytes
    records: list[Tlsa]
    text: str


async def find_tlsa(resolver: Resolver, target: Target, port: int) -> TlsaFound | None:
    """Return a host's records for a port; None if there are none, or DNSSEC did not validate them.

    The target's own address must be secure. Raises Unroutable if the lookup fails; then the host must not get the mail
    in case it has records (section 2.1.2).
    """
    answer = await resolver.ask(target.host, "AAAA" if ":" in target.address else "A", True)
    # Section 2.2.2: the records of an alias's canonical name come first.
    for base in dict.fromkeys([answer.canonical, target.host]):
        name = b"_%d._tcp.%s" % (port, base)
        found = await resolver.ask(name, "TLSA", True)
        if found.secure and found.records:
            records = [Tlsa(record.usage, record.selector, record.mtype, record.cert) for record in found.records]
            return TlsaFound(base, usable(records), f"DANE, {name.decode('ascii')} TLSA {_shown(records)}")
    return None


def usable(records: Iterable[Tlsa]) -> list[Tlsa]:
    """Return the usable records; of digests of the same selector, the strongest only (RFC 7671 section 9)."""
    known = [record for record in records if _is_usable(record)]
    best = {(record.usage, record.selector): 0 for record in known}
    for record in known:
        kind = record.usage, record.selector
        best[kind] = max(best[kind], record.matching)
    return [record for record in known if record.matching in (FULL, best[record.usage, record.selector])]


def objection(chain: list[bytes], records: list[Tlsa], names: list[bytes]) -> str | None:
    """Return why a chain of certificates (DER) matches none of the usable records, None if it matches one.

    Usage 3 names the host's certificate or key, and ignores names and dates (section 3.1.1). Usage 2 names a CA that
    must have signed the certificate, for one of `names` (section 3.1.2).
    """
    if not chain:
        return "no certificate"
    # OpenSSL accepts hundreds of certificates, and a zone may have as many records.
    chain = chain[:CHAIN_MAX]
    try:
        if _matches(chain[0], [record for record in records if record.usage == OWN]):
            return None
        authorities = [record for record in records if record.usage == CA]
        anchors = [certificate for certificate in chain[1:] if _matches(certificate, authorities)]
        # The server need not show a certificate that is whole in DNS.
        anchors += [record.data for record in records if record[:3] == (CA, WHOLE, FULL)]
        if not anchors:
            return "certificate does not match the TLSA records"
        store = anchored_store(anchors)
    except BROKEN as error:
        return f"broken certificate: {error}"
    return chain_objection(chain, store) or name_objection(chain[0], names, common_name=True)


def _shown(records: list[Tlsa]) -> str:
    more = f" and {len(records) - _SHOWN} more" if len(records) > _SHOWN else ""
    return ", ".join(str(record) for record in records[:_SHOWN]) + more


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


def _matches(certificate: bytes, records: list[Tlsa]) -> bool:
    """Return whether a certificate matches any of the records."""
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
