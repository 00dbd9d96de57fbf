"""A self-signed certificate for servers of tests, made once a run."""

import functools
import ssl
import subprocess
import tempfile
from pathlib import Path

from support.tools import need


def make_certificate(directory: Path, name: str = "raw.example") -> tuple[Path, Path]:
    """Make a certificate for a host and its key in a directory; return their PEM files."""
    openssl = need("openssl")
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        f"{openssl} req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        f"-subj /CN={name} -addext subjectAltName=DNS:{name} -keyout {key} -out {certificate}",
        shell=True,
        check=True,
        capture_output=True,
        timeout=30,
    )
    return certificate, key


@functools.cache
def server_context() -> ssl.SSLContext:
    """Return a context for servers, whose certificate is for `raw.example`. The first call is the test's own."""
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = make_certificate(Path(directory))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    return context
