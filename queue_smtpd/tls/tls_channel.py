"""The server's side of TLS on one connection, without I/O: bytes of the wire in, text out, and the other way round.

    channel.receive(data)              bytes of the client
    channel.shake_hands()              returns whether the handshake is done
    text = channel.read()              what the client has said under TLS
    channel.write(text)
    data = channel.data_to_send()      after each of these calls, also if it has raised

What the client sent in clear before never gets here: the text is that of TLS records alone. ssl.SSLError means that the
connection is useless; an alert for the client may be in data_to_send().
"""

import ssl

from queue_smtpd.sessions.client_facts import TlsFacts

_RECORD_MAX = 16384


class TlsChannel:
    """One session of TLS. `established`: the handshake is done. `ended`: the client has said that it sends no more."""

    __slots__ = ("_incoming", "_outgoing", "_tls", "ended", "established")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.established = False
        self.ended = False

    @property
    def facts(self) -> TlsFacts:
        """Version and cipher of the session."""
        cipher = self._tls.cipher()
        return TlsFacts((self._tls.version() or "").encode(), (cipher[0] if cipher else "").encode())

    def receive(self, data: bytes) -> None:
        """Take bytes of the client."""
        self._incoming.write(data)

    def shake_hands(self) -> bool:
        """Go on with the handshake; return whether it is done. Raises ssl.SSLError."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.established = True
        return True

    def read(self) -> bytes:
        """Return all that the client has said so far. Raises ssl.SSLError."""
        found = []
        try:
            while data := self._tls.read(_RECORD_MAX):
                found.append(data)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        return b"".join(found)

    def write(self, text: bytes) -> None:
        """Send text to the client. Raises ssl.SSLError."""
        self._tls.write(text)

    def close(self) -> None:
        """Tell the client that nothing more comes."""
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            pass  # The client has not said the same yet, and need not.

    def data_to_send(self) -> bytes:
        """Return the bytes to send since the last call."""
        return self._outgoing.read()


def describe_tls_error(error: ssl.SSLError) -> str:
    """Return why a handshake, or a session, failed, in a few words."""
    return str(error.reason or "protocol error").lower().replace("_", " ")
