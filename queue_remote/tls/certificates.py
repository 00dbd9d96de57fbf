"""Verifies the certificates that a server has shown, after the handshake: for DANE, and for policies in test mode.

A policy that is enforced with a CA is verified by OpenSSL during the handshake (queue_remote.tls.contexts). Here
OpenSSL verifies the chain once more with given trust anchors, and names are compared. Imported only when it is needed,
because pyOpenSSL and cryptography take long to load.
"""

import _ssl
import ssl
from collections.abc import Iterable
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.x509.oid import NameOID
from OpenSSL import crypto

# Certificates of a chain that are looked at. The server's own is the first, its CAs follow.
CHAIN_MAX = 10
_RSA_BITS_MAX, _RSA_EXPONENT_BITS_MAX = 8192, 32
# What cryptography raises for a malformed certificate.
BROKEN = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


def peer_chain(ssl_object: Any) -> list[bytes]:
    """Return the certificates that the server has shown, in DER, its own first; an empty list if it has shown none."""
    if hasattr(ssl_object, "get_unverified_chain"):
        return list(ssl_object.get_unverified_chain() or [])
    # Before Python 3.13 only the underlying object has this method; it returns certificate objects, not bytes.
    inner: Any = getattr(ssl_object, "_sslobj", None)
    if hasattr(inner, "get_unverified_chain"):
        return [certificate.public_bytes(_ssl.ENCODING_DER) for certificate in inner.get_unverified_chain() or []]
    own = ssl_object.getpeercert(True)
    return [own] if own else []


def system_store() -> crypto.X509Store:
    """Return the system's CAs. Raises OSError if there are none."""
    paths = ssl.get_default_verify_paths()
    store = crypto.X509Store()
    try:
        store.load_locations(paths.cafile, paths.capath)
    except (crypto.Error, TypeError) as error:
        raise OSError(f"unable to read the system's CA certificates in {paths.openssl_cafile}") from error
    return store


def anchored_store(anchors: Iterable[bytes]) -> crypto.X509Store:
    """Return a store of trust anchors (DER), which need not be roots. Raises ValueError for a malformed one."""
    store = crypto.X509Store()
    store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
    for anchor in anchors:
        store.add_cert(_parsed(anchor))
    return store


def chain_objection(chain: list[bytes], store: crypto.X509Store) -> str | None:
    """Return why the chain does not verify against the store (signatures, dates, CAs), None if it does."""
    if not chain:
        return "no certificate"
    chain = chain[:CHAIN_MAX]
    try:
        if any(_is_costly(x509.load_der_x509_certificate(certificate).public_key()) for certificate in chain):
            return "a certificate has a key whose use costs too much"
        own, *others = [_parsed(certificate) for certificate in chain]
        crypto.X509StoreContext(store, own, others).verify_certificate()
    except crypto.X509StoreContextError as error:
        return str(error)
    except BROKEN as error:
        return f"broken certificate: {error}"
    return None


def _is_costly(key: object) -> bool:
    """Return whether a signature by a key takes a millisecond to verify, or may.

    The event loop verifies those of a whole chain. OpenSSL takes RSA keys of up to 16,384 bits, with exponents of 64
    bits, or of 3,072 bits in keys of that size; DSA keys of 10,000 bits; and any elliptic curve.
    """
    if isinstance(key, rsa.RSAPublicKey):
        return key.key_size > _RSA_BITS_MAX or key.public_numbers().e.bit_length() > _RSA_EXPONENT_BITS_MAX
    if isinstance(key, ec.EllipticCurvePublicKey):
        return not isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1 | ec.SECP521R1)
    return not isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey)


def name_objection(certificate: bytes, names: list[bytes], common_name: bool = False) -> str | None:
    """Return why a certificate is valid for none of the names, None if it is for one.

    `common_name` accepts the subject's common name if there is no alternative name (RFC 7672 section 3.2.3).
    """
    try:
        found = _names(x509.load_der_x509_certificate(certificate), common_name)
    except BROKEN as error:
        return f"broken certificate: {error}"
    if any(matches(pattern, name) for pattern in found for name in names):
        return None
    wanted = " or ".join(name.decode("ascii", "replace") for name in names)
    has = ", ".join(name.decode("ascii", "replace") for name in found[:4]) or "no name"
    return f"certificate is for {has}, not for {wanted}"


def matches(pattern: bytes, host: bytes) -> bool:
    """Return whether a host name matches a name in a certificate; a leading `*.` is one label (RFC 6125, 6.4.3)."""
    pattern, host = pattern.lower().removesuffix(b"."), host.lower().removesuffix(b".")
    if not pattern.startswith(b"*."):
        return bool(host) and pattern == host
    label, dot, parent = host.partition(b".")
    return bool(label and dot) and b"*" not in parent and parent == pattern[2:]


def _names(certificate: x509.Certificate, common_name: bool) -> list[bytes]:
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = alternatives.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        names = []
    if not names and common_name:
        names = [str(name.value) for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return [name.encode("ascii") for name in names if name.isascii()]


def _parsed(certificate: bytes) -> crypto.X509:
    """Return a certificate given in DER. Raises ValueError."""
    try:
        return crypto.load_certificate(crypto.FILETYPE_ASN1, certificate)
    except crypto.Error as error:
        raise ValueError("it is not DER") from error
