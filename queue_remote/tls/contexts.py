"""TLS contexts, each made once and shared: one takes up to a megabyte, and reading CA files takes time.

None offers TLS 1.2 with Diffie-Hellman over a finite field: the server chooses its size, and one of 10,000 bits stops
the event loop for a second. With TLS 1.3 BoundedContext refuses large fields. CA files are read when a context is first
needed, and again after the control files have changed.
"""

import ssl
import warnings
from typing import TYPE_CHECKING

from queue_base.bounded_tls import BoundedContext

# pyOpenSSL takes long to load, and few policies need it.
if TYPE_CHECKING:
    from OpenSSL import crypto


class Contexts:
    """Makes each context once."""

    def __init__(self) -> None:
        self._made: dict[str, ssl.SSLContext] = {}
        self._store: crypto.X509Store | None = None

    def opportunistic(self) -> ssl.SSLContext:
        """Return the context for opportunistic TLS: any protocol version, any certificate (RFC 7435).

        If it refused a server, the mail would be sent in clear instead.
        """
        if "may" not in self._made:
            context = _unverified()
            with warnings.catch_warnings():
                # Python warns about TLS before 1.2.
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = ssl.TLSVersion.TLSv1
            context.set_ciphers("DEFAULT:!kDHE:@SECLEVEL=0")
            self._made["may"] = context
        return self._made["may"]

    def required(self) -> ssl.SSLContext:
        """Return the context for TLS 1.2 or later with any certificate; DANE verifies it after the handshake."""
        if "encrypt" not in self._made:
            context = _unverified()
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            self._made["encrypt"] = context
        return self._made["encrypt"]

    def verified(self, ca: str = "") -> ssl.SSLContext:
        """Return the context for TLS 1.2 or later that verifies chain and name, by the CAs in a file or the system's.

        Raises OSError (ssl.SSLError is one) if the file cannot be read.
        """
        key = f"verify {ca}"
        if key not in self._made:
            self._made[key] = _verifying(ca)
        return self._made[key]

    def https(self) -> ssl.SSLContext:
        """Return the context for web servers. The HTTP client changes it, so nothing else may use it."""
        if "https" not in self._made:
            self._made["https"] = _verifying()
        return self._made["https"]

    def authorities(self) -> "crypto.X509Store":
        """Return the system's CAs for queue_remote.tls.certificates. Raises OSError if there are none."""
        from queue_remote.tls.certificates import system_store

        if self._store is None:
            self._store = system_store()
        return self._store


def _verifying(ca: str = "") -> ssl.SSLContext:
    context = _for_client()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # RFC 6125 and RFC 8461 section 4.2: the subject's common name does not count.
    context.hostname_checks_common_name = False
    if ca:
        context.load_verify_locations(ca)
    else:
        context.set_default_verify_paths()
    return context


def _unverified() -> ssl.SSLContext:
    context = _for_client()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _for_client() -> ssl.SSLContext:
    context = BoundedContext(ssl.PROTOCOL_TLS_CLIENT)
    names = [cipher["name"] for cipher in context.get_ciphers()]
    context.set_ciphers(":".join(name for name in names if not name.startswith("DHE-")))
    return context
