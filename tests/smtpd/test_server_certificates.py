"""Certificates of the server: what cannot be used, and root's process that reads them for a server without root."""

import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from queue_base.errors import Temporary
from queue_base.home import Home
from queue_base.server_certificates import PemFiles, ServerCertificates, make_context, read_pem_files
from queue_smtpd.tls.certificate_keeper import start_keeper, unpack_answer
from queue_smtpd.tls.tls_channel import TlsChannel
from queue_wire.control.smtpdcert import unpack_certificate_lines
from queue_wire.format_error import FormatError, LineError
from support.inject.injectors import USER
from support.servers.certificate import make_certificate
from support.smtpd.smtpd_daemon import trusting
from support.tools import need, need_root


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def named(home: Home, made: tuple[Path, Path]) -> Iterator[Path]:
    """Yield a PEM file with the certificate and its key in control/, which control/smtpdcert names."""
    found = Path(home.control, "server.pem")
    found.write_bytes(made[1].read_bytes() + made[0].read_bytes())
    found.chmod(0o600)
    Path(home.control, "smtpdcert").write_text(":server.pem\n")
    yield found


def faults(home: Home) -> list[str]:
    return ServerCertificates().take(read_pem_files(home))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"a.example\n:x.pem\n", "line 1: not NAME:FILE"),
        (b":\n", "line 1: not NAME:FILE"),
        (b"# ours\nmx.example:a.pem b.pem\n", "line 1: it has no line that begins with a colon"),
        (b":a b c d e\n", "line 1: not NAME:FILE"),
        (b"", "line 1: it has no line"),
    ],
)
def test_a_line_that_names_no_certificate_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(LineError, match=why):
        unpack_certificate_lines(data)


def test_a_certificate_and_key_in_one_file_are_used_whatever_their_order(home: Home, named: Path) -> None:
    assert faults(home) == []
    certificates = ServerCertificates()
    certificates.take(read_pem_files(home))
    assert certificates.context is not None
    assert certificates.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert certificates.context.verify_mode is ssl.CERT_NONE
    before = certificates.context
    certificates.take(read_pem_files(home))
    assert certificates.context is before


def test_what_cannot_be_used_is_named_with_the_reason(home: Home, named: Path, made: tuple[Path, Path]) -> None:
    good = named.read_bytes()
    certificate, key = made[0].read_bytes(), made[1].read_bytes()
    for data, why in (
        (certificate, "it has no private key in PEM"),
        (key, "it has no certificate in PEM"),
        (b"x" * (1 << 20) + good, "it has more than 1048576 bytes"),
        (good.replace(b"MII", b"!!!"), "it is not PEM, or is damaged|bad base64"),
    ):
        named.write_bytes(data)
        (fault,) = faults(home)
        assert fault.startswith(f"unable to use {named}: ") and fault.endswith("; it is not used")
        assert any(each in fault for each in why.split("|")), fault
    named.write_bytes(good)
    named.chmod(0o644)
    assert "a key is in it, and everybody can use it (mode 0644); chmod o= takes that away" in faults(home)[0]
    named.chmod(0o660)
    assert "a key is in it, and its group can change it (mode 0660); chmod g-wx takes that away" in faults(home)[0]
    named.chmod(0o644)
    named.unlink()
    assert "no such file or directory" in faults(home)[0]
    os.mkfifo(named)
    assert "not a regular file" in faults(home)[0]


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(home: Home, named: Path, made: tuple[Path, Path]) -> None:
    words = [need("openssl"), "pkcs8", "-topk8", "-in", str(made[1]), "-passout", "pass:secret"]
    encrypted = subprocess.run(words, check=True, capture_output=True, timeout=60).stdout
    named.write_bytes(made[0].read_bytes() + encrypted)
    assert "its key is encrypted" in faults(home)[0]


def test_no_key_is_shown_in_a_traceback() -> None:
    assert "secret" not in repr(PemFiles(b"", "/x.pem", b"secret"))


def test_root_reads_for_a_server_that_is_root_no_more(home: Home, named: Path) -> None:
    need_root()
    pem = named.read_bytes()
    asker = os.fork()
    if not asker:
        code = 1
        try:
            read = start_keeper(home)
            os.setgroups([])
            os.setgid(USER)
            os.setuid(USER)
            if is_hidden(home) and all(found[0].data == pem + b"\n" for found in (read(), read())):
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(asker, 0)[1]) == 0


def is_hidden(home: Home) -> bool:
    """Return whether we cannot read them ourselves."""
    try:
        return bool(read_pem_files(home)[0].fault)
    except Temporary:
        return True


def test_an_answer_that_is_cut_off_is_no_answer(home: Home) -> None:
    for data in (b"", b"0:,1:a,", b"0:,0:,1:a,0:,", b"nonsense"):
        with pytest.raises(FormatError):
            unpack_answer(data)
    with pytest.raises(Temporary, match="unable to parse"):
        unpack_answer(b"15:unable to parse,")


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_tls_is_the_same_whatever_the_pieces_in_which_it_comes(made: tuple[Path, Path], size: int) -> None:
    server = TlsChannel(make_context(made[1].read_bytes() + made[0].read_bytes()))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting().wrap_bio(incoming, outgoing, server_hostname="raw.example")
    said = b""
    shaken = False
    for _ in range(10):
        try:
            client.do_handshake()
            if not shaken:
                shaken = True
                client.write(b"EHLO c\r\n" * 3000)
                with pytest.raises(ssl.SSLWantReadError):
                    client.unwrap()
        except ssl.SSLWantReadError:
            pass
        data = outgoing.read()
        for start in range(0, len(data), size):
            server.receive(data[start : start + size])
            if server.established or server.shake_hands():
                said += server.read()
        incoming.write(server.data_to_send())
    assert said == b"EHLO c\r\n" * 3000 and server.ended
    assert server.facts.version == b"TLSv1.3"


def test_the_server_says_nothing_under_tls_before_the_client_does(made: tuple[Path, Path]) -> None:
    # libESMTP reads two tickets as one, and waits.
    server = TlsChannel(make_context(made[1].read_bytes() + made[0].read_bytes()))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting().wrap_bio(incoming, outgoing, server_hostname="raw.example")
    while not server.established:
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        server.receive(outgoing.read())
        server.shake_hands()
        incoming.write(b"" if server.established else server.data_to_send())
    assert client.version() == "TLSv1.3"
    assert server.data_to_send() == b""


def test_bytes_that_are_no_tls_raise_and_leave_an_alert(made: tuple[Path, Path]) -> None:
    server = TlsChannel(make_context(made[1].read_bytes() + made[0].read_bytes()))
    server.receive(b"EHLO c\r\nMAIL FROM:<>\r\n")
    with pytest.raises(ssl.SSLError):
        server.shake_hands()
    assert not server.established


def test_a_client_gets_no_diffie_hellman_over_a_finite_field_in_tls_1_2(made: tuple[Path, Path]) -> None:
    server = TlsChannel(make_context(made[1].read_bytes() + made[0].read_bytes()))
    context = trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("kDHE")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="raw.example")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    server.receive(outgoing.read())
    with pytest.raises(ssl.SSLError, match="NO_SHARED_CIPHER"):
        server.shake_hands()
