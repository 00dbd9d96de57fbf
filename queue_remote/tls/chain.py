"""The certificates that a peer has shown, judged after the handshake: for DANE, and for policies that are only tested.

What is enforced with a CA is verified by OpenSSL in the handshake (contexts.py). Here it verifies the chain
once more, from trust anchors of our choice; names are compared by us. Imported only where it is needed.
"""

import _ssl
import ssl
from collections.abc import Iterable
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509.oid import NameOID
from OpenSSL import crypto

from queue_remote.tls.host_pattern import matches

# What cryptography raises for a certificate that is none, or that nobody should have made.
BROKEN = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


def peer_chain(ssl_object: Any) -> list[bytes]:
    """Return what the peer has shown, in DER, its own certificate first; nothing where it has shown none."""
    if hasattr(ssl_object, "get_unverified_chain"):
        return list(ssl_object.get_unverified_chain() or [])
    # Before Python 3.13 only the object behind it has this, which gives certificates, not bytes.
    inner: Any = getattr(ssl_object, "_sslobj", None)
    if hasattr(inner, "get_unverified_chain"):
        return [certificate.public_bytes(_ssl.ENCODING_DER) for certificate in inner.get_unverified_chain() or []]
    own = ssl_object.getpeercert(True)
    return [own] if own else []


def system_store() -> crypto.X509Store:
    """Return the system's CAs. Raises OSError where there are none."""
    paths = ssl.get_default_verify_paths()
    store = crypto.X509Store()
    try:
        store.load_locations(paths.cafile, paths.capath)
    except (crypto.Error, TypeError) as error:
        raise OSError(f"unable to read the system's CA certificates in {paths.openssl_cafile}") from error
    return store


def anchored_store(anchors: Iterable[bytes]) -> crypto.X509Store:
    """Return a store of trust anchors (DER), which need not be roots. Raises ValueError for what is no certificate."""
    store = crypto.X509Store()
    store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
    for anchor in anchors:
        store.add_cert(_parsed(anchor))
    return store


def chain_objection(chain: list[bytes], store: crypto.X509Store) -> str | None:
    """Return why the first certificate does not follow from the store's, None where it does: signatures, dates, CAs."""
    if not chain:
        return "no certificate"
    try:
        own, *others = [_parsed(certificate) for certificate in chain]
        crypto.X509StoreContext(store, own, others).verify_certificate()
    except crypto.X509StoreContextError as error:
        return str(error)
    except ValueError as error:
        return f"broken certificate: {error}"
    return None


def name_objection(certificate: bytes, names: list[bytes], common_name: bool = False) -> str | None:
    """Return why a certificate is for none of the names, None where it is for one.

    `common_name` takes the subject's name where the certificate has no other (RFC 7672 section 3.2.3).
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
