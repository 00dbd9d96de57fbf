"""Private keys for DKIM, their DNS records, and the judgement of a receiver (dkimpy) on what a server got."""

import base64
import os
from pathlib import Path

import dkim
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


class DkimZone:
    """The keys of some selectors; `lookup` is dkimpy's dnsfunc."""

    def __init__(self) -> None:
        # By the names that are asked for, with their final dots.
        self.records: dict[bytes, bytes] = {}

    def rsa(self, name: str, bits: int = 2048) -> bytes:
        """Make the key of `selector._domainkey.domain`; return its PEM."""
        key = rsa.generate_private_key(65537, bits)
        public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self._publish(name, b"v=DKIM1; k=rsa; p=" + base64.b64encode(public))
        return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())

    def ed25519(self, name: str) -> bytes:
        key = ed25519.Ed25519PrivateKey.generate()
        public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self._publish(name, b"v=DKIM1; k=ed25519; p=" + base64.b64encode(public))
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def _publish(self, name: str, record: bytes) -> None:
        selector, domain = name.split("@")
        self.records[f"{selector}._domainkey.{domain}.".encode()] = record

    def lookup(self, name: bytes, timeout: int = 5) -> bytes | None:
        return self.records.get(name)

    def judge(self, message: bytes) -> list[bool]:
        """Return for each signature of a message, as it came over the wire, whether it is good."""
        verifier = dkim.DKIM(message)
        count = sum(name.lower() == b"dkim-signature" for name, _ in verifier.headers)
        found = []
        for index in range(count):
            try:
                found.append(bool(dkim.DKIM(message).verify(idx=index, dnsfunc=self.lookup)))
            except dkim.DKIMException:
                found.append(False)
        return found


def put_key(directory: Path, name: str, data: bytes, mode: int = 0o600) -> Path:
    """Write a key file; return its path."""
    path = directory / name
    path.write_bytes(data)
    os.chmod(path, mode)
    return path


def wire(stored: bytes) -> bytes:
    """Return a stored message as it goes on the wire: CRLF line ends, other CRs as spaces, a last line that ends."""
    text = stored.replace(b"\r\n", b"\n").replace(b"\r", b" ")
    if text and not text.endswith(b"\n"):
        text += b"\n"
    return text.replace(b"\n", b"\r\n")
