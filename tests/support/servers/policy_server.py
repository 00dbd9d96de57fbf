"""An HTTPS server on loopback for MTA-STS policies, whose answers a test chooses byte by byte."""

from support.servers.dns.authority import Certificate
from support.servers.smtp.raw_server import Peer, RawServer

PATH = b"/.well-known/mta-sts.txt"


class PolicyServer(RawServer):
    """Answers each request with `answer`, and closes; `requests` are those heard, their lines without CRLF."""

    def __init__(self, certificate: Certificate, answer: bytes = b"") -> None:
        super().__init__(self._answer)
        self.answer = answer
        self.requests: list[list[bytes]] = []
        self._context = certificate.server_context()

    def policy(self, text: bytes, status: bytes = b"200 OK", *headers: bytes) -> None:
        """Answer with a policy from now on."""
        lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(text), *(headers or [b"Content-Type: text/plain"])]
        self.answer = b"\r\n".join(lines) + b"\r\n\r\n" + text

    def _answer(self, peer: Peer) -> None:
        try:
            peer.start_tls(self._context)
        except OSError:
            return  # It did not like the certificate.
        request: list[bytes] = []
        while line := peer.hear():
            request.append(line)
        self.requests.append(request)
        peer.send(self.answer)
