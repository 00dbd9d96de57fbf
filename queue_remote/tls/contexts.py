"""TLS contexts, shared by all connections that want the same: each takes up to a megabyte, and reading CA files time.

CA files are read when a context is first needed, and again after the control files have changed.
"""

import ssl
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from OpenSSL import crypto


class Contexts:
    """Makes each context once."""

    def __init__(self) -> None:
        self._made: dict[str, ssl.SSLContext] = {}
        self._store: crypto.X509Store | None = None

    def opportunistic(self) -> ssl.SSLContext:
        """Return the context for TLS that is a choice: whatever old server, any certificate (RFC 7435).

        What it would refuse, the mail would go through in clear.
        """
        if "may" not in self._made:
            context = _unverified()
            with warnings.catch_warnings():
                # Python warns of TLS before 1.2.
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = ssl.TLSVersion.TLSv1
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
            self._made["may"] = context
        return self._made["may"]

    def required(self) -> ssl.SSLContext:
        """Return the context for TLS 1.2 or later with any certificate; DANE judges it after the handshake."""
        if "encrypt" not in self._made:
            context = _unverified()
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            self._made["encrypt"] = context
        return self._made["encrypt"]

    def verified(self, ca: str = "") -> ssl.SSLContext:
        """Return the context for TLS 1.2 or later that verifies chain and name, with the CAs in a file or the system's.

        Raises OSError (ssl.SSLError is one) where the file cannot be read.
        """
        key = f"verify {ca}"
        if key not in self._made:
            self._made[key] = _verifying(ca)
        return self._made[key]

    def https(self) -> ssl.SSLContext:
        """Return the context for web servers; the HTTP client changes it, so it is for nothing else."""
        if "https" not in self._made:
            self._made["https"] = _verifying()
        return self._made["https"]

    def authorities(self) -> "crypto.X509Store":
        """Return the system's CAs for queue_remote.tls.chain. Raises OSError where there are none."""
        from queue_remote.tls.chain import system_store

        if self._store is None:
            self._store = system_store()
        return self._store


def _verifying(ca: str = "") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A name in the subject is none since RFC 6125, and RFC 8461 section 4.2 says so too.
    context.hostname_checks_common_name = False
    if ca:
        context.load_verify_locations(ca)
    else:
        context.set_default_verify_paths()
    return context


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
