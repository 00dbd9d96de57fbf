"""Debian's opendkim as a milter of queue-smtpd: it signs mail, and checks what was signed."""

import os
import smtplib
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from queue_base.home import Home
from support.inject.injectors import queued, shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.processes.suite import wait_until
from support.smtpd.smtpd_daemon import SmtpdDaemon
from support.tools import need

TEXT = "From: ann@example.org\r\nDate: 20 Nov 2026 13:00:00 -0000\r\nSubject: hello\r\n\r\nHow are\r\n\r\nyou?\r\n"


@contextmanager
def opendkim(place: Path, name: str, *lines: str) -> Iterator[Path]:
    """Run opendkim with these lines of its configuration; yield its socket."""
    path = place / f"{name}.sock"
    config = place / f"{name}.conf"
    ours = (f"Socket local:{path}", "Syslog no", "Nameservers 127.0.0.1", "Background no", "RequireSafeKeys no")
    config.write_text("\n".join((*ours, *lines, "")))
    process = subprocess.Popen(
        [need("opendkim"), "-f", "-x", str(config)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        wait_until(lambda: path.exists() or process.poll() is not None, 30, "opendkim to listen")
        assert process.poll() is None, process.stderr and process.stderr.read()
        yield path
    finally:
        # At TERM, libmilter waits for five seconds.
        process.kill()
        process.communicate(timeout=60)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Make a key, and a file with its record; return their directory."""
    key = tmp_path / "key.pem"
    subprocess.run([need("openssl"), "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    words = [need("openssl"), "rsa", "-in", str(key), "-pubout", "-outform", "PEM"]
    public = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    record = "".join(line for line in public.splitlines() if not line.startswith("-"))
    (tmp_path / "records").write_text(f"sel._domainkey.example.org v=DKIM1; k=rsa; p={record}\n")
    os.chmod(key, 0o600)
    return tmp_path


def configure(home: Home, *milters: str) -> None:
    Path(home.control, "rcpthosts").write_text("example.net\n")
    Path(home.control, "relayclients").write_text("127.0.0.1\n")
    Path(home.control, "milters").write_text("".join(f"{each}\n" for each in milters))


def test_opendkim_signs_and_checks_what_passes_through(keys: Path) -> None:
    signs = (f"KeyFile {keys}/key.pem", "Domain example.org", "Selector sel", "Mode s", "InternalHosts 127.0.0.1")
    checks = ("Mode v", f"TestPublicKeys {keys}/records", "InternalHosts 192.0.2.1", "AuthservID checker.example")
    with ExitStack() as stack:
        home = stack.enter_context(shared_home(0))
        signer = stack.enter_context(opendkim(keys, "signer", *signs))
        checker = stack.enter_context(opendkim(keys, "checker", *checks))
        configure(home, f"unix:{signer}", f"unix:{checker}")
        stack.enter_context(IntakeDaemon(home))
        daemon = stack.enter_context(SmtpdDaemon(home))
        with daemon.smtp() as client:
            client.sendmail("ann@example.org", ["bob@example.net"], TEXT)
            # The second message of a session is signed as well.
            client.sendmail("ann@example.org", ["bob@example.net"], TEXT + "more\r\n" * 20000)
        for message in [each.message for each in queued(home)]:
            header = message.partition(b"\n\n")[0]
            assert b"DKIM-Signature: v=1; a=rsa-sha256;" in header and b"d=example.org; s=sel;" in header
            assert b"Authentication-Results: checker.example;\n\tdkim=pass" in header, header.decode()


def test_a_field_that_libmilter_does_not_take_lets_no_message_pass_unfiltered(keys: Path) -> None:
    keyed = (f"KeyFile {keys}/key.pem", "Domain example.org", "Selector sel", "Mode s", "InternalHosts 127.0.0.1")
    # That of opendkim itself is 65,536 bytes.
    signs = (*keyed, "MaximumHeaders 0")
    with ExitStack() as stack:
        home = stack.enter_context(shared_home(0))
        configure(home, f"unix:{stack.enter_context(opendkim(keys, 'signer', *signs))} default=accept")
        stack.enter_context(IntakeDaemon(home))
        daemon = stack.enter_context(SmtpdDaemon(home))
        with daemon.smtp() as client:
            client.sendmail("ann@example.org", ["bob@example.net"], "X: " + "x" * 65_531 + "\r\n" + TEXT)
            with pytest.raises(smtplib.SMTPDataError) as refused:
                client.sendmail("ann@example.org", ["bob@example.net"], "X: " + "x" * 65_534 + "\r\n" + TEXT)
            assert refused.value.smtp_code == 552
            client.sendmail("ann@example.org", ["bob@example.net"], TEXT)
            # 3,000 recipients that all can see.
            lines = ",\r\n ".join(f"User {number} <user{number:04d}@example.net>" for number in range(1500))
            client.sendmail("ann@example.org", ["bob@example.net"], f"To: {lines}\r\nCc: {lines}\r\n" + TEXT)
        assert [b"DKIM-Signature: " in each.message for each in queued(home)] == [True, True, True]
