"""A certificate authority of a test's own, and servers' certificates from it."""

import datetime
import ssl
import tempfile
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | dsa.DSAPrivateKey


class Certificate:
    """A certificate with its key; `issuer` has signed it, itself where that is None."""

    def __init__(
        self,
        name: str,
        issuer: "Certificate | None" = None,
        *,
        names: Iterable[str] = (),
        authority: bool = False,
        days: tuple[int, int] = (-1, 30),
        key: Key | None = None,
    ) -> None:
        """`name` is in the subject, `names` are DNS names; it is good from `days[0]` to `days[1]` days from now.

        `key` is that of an elliptic curve unless it is given.
        """
        self.issuer = issuer
        self.key: Key = key or ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        signer_key = issuer.key if issuer else self.key
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.certificate.subject if issuer else subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + days[0] * DAY)
            .not_valid_after(now + days[1] * DAY)
            .add_extension(x509.BasicConstraints(authority, None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()), critical=False)
        )
        if names:
            alternatives = x509.SubjectAlternativeName([x509.DNSName(other) for other in names])
            builder = builder.add_extension(alternatives, critical=False)
        self.certificate: x509.Certificate = builder.sign(signer_key, hashes.SHA256())

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_der(self) -> bytes:
        """The public key, as TLSA records with selector 1 have it."""
        return self.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def chain(self) -> list["Certificate"]:
        """Return this certificate and those above it."""
        return [self, *(self.issuer.chain() if self.issuer else [])]

    def write(self, directory: Path) -> tuple[Path, Path]:
        """Write the chain and the key; return their paths."""
        chain, key = directory / "chain.pem", directory / "key.pem"
        chain.write_bytes(b"".join(one.pem for one in self.chain()))
        key.write_bytes(self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return chain, key

    def server_context(self) -> ssl.SSLContext:
        """Return a context for a server that shows the chain."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as directory:
            context.load_cert_chain(*self.write(Path(directory)))
        return context
