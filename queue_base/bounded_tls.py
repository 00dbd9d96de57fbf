"""TLS contexts whose handshakes cost little, whatever the peer proposes: an event loop makes them between other things.

A handshake with a peer that wants Diffie-Hellman over a large finite field fails before that costs anything
(queue_wire.tls_hello). Python before 3.15 cannot set the groups of a context. OpenSSL's configuration can, but it is
the administrator's, is read before a program can say anything, and holds for all contexts of a process.
"""

import ssl
from typing import Any

from queue_wire.format_error import FormatError
from queue_wire.tls_hello import HelloReader

# RFC 8446 section 6: a record with the fatal alert handshake_failure.
_HANDSHAKE_FAILURE = b"\x15\x03\x03\x00\x02\x02\x28"


class _BoundedHandshake(ssl.SSLObject):
    """A session of such a context."""

    reader: HelloReader
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        """Go on with the handshake. Raises ssl.SSLError."""
        if not self.reader.done and self.incoming.pending:
            try:
                passed = self.reader.feed(self.incoming.read())
            except FormatError as fault:
                self.outgoing.write(_HANDSHAKE_FAILURE)
                error = ssl.SSLError(ssl.SSL_ERROR_SSL, str(fault))
                # OpenSSL's own errors have the reason here, which is what is logged.
                error.reason = str(fault)
                raise error from fault
            if passed:
                self.incoming.write(passed)
        super().do_handshake()


class BoundedContext(ssl.SSLContext):
    """A context for `wrap_bio`, which event loops and HTTP clients call."""

    sslobject_class = _BoundedHandshake

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any) -> ssl.SSLObject:
        """Return a session between two buffers, as SSLContext does."""
        made = super().wrap_bio(incoming, outgoing, *args, **options)
        assert isinstance(made, _BoundedHandshake)
        made.reader = HelloReader(of_client=made.server_side)
        made.incoming, made.outgoing = incoming, outgoing
        return made
