"""A self-signed certificate for servers of tests, made once a run."""

import functools
import ssl
import subprocess
import tempfile
from pathlib import Path

from support.tools import need


@functools.cache
def server_context() -> ssl.SSLContext:
    """Return a context for servers, whose certificate is for `raw.example`. The first call is the test's own."""
    openssl = need("openssl")
    with tempfile.TemporaryDirectory() as directory:
        key, certificate = Path(directory, "key.pem"), Path(directory, "certificate.pem")
        subprocess.run(
            f"{openssl} req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
            f"-subj /CN=raw.example -addext subjectAltName=DNS:raw.example -keyout {key} -out {certificate}",
            shell=True,
            check=True,
            capture_output=True,
            timeout=30,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    return context
