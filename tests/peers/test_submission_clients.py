"""swaks, esmtp and Postfix's SMTP client authenticate to queue-smtpd and hand in mail under TLS."""

import os
import shutil
import smtplib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_smtp.auth_server import make_verifier
from queue_wire.control.smtpdusers import UserPasswords, pack_users
from support.inject.injectors import is_empty, only, queued, shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.processes.suite import wait_until
from support.servers.certificate import make_certificate
from support.servers.postfix import Postfix
from support.smtpd.smtpd_daemon import SmtpdDaemon
from support.tools import need

ANN, FAR = "ann@example.net", "x@elsewhere.example"
PASSWORD = "sesame"


@pytest.fixture
def smtpd_home(tmp_path: Path) -> Iterator[Home]:
    """Yield a home with a certificate and a user joe."""
    with shared_home(0) as home:
        certificate, key = make_certificate(tmp_path)
        Path(home.control, "smtpdcert").write_text(f":{certificate} {key}\n")
        users = Path(home.control, "smtpdusers")
        users.touch(0o640)
        users.write_bytes(pack_users(UserPasswords({b"joe": make_verifier(PASSWORD.encode(), b"0123456789abcdef")})))
        yield home


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
@pytest.mark.parametrize("role", ["submission", "submissions"])
def test_swaks_hands_in_a_message_with_its_password_and_none_without(
    smtpd_home: Home, role: str, mechanism: str
) -> None:
    with IntakeDaemon(smtpd_home), SmtpdDaemon(smtpd_home, (role,)) as daemon:
        words = [need("swaks"), "--server", "127.0.0.1", "--port", str(daemon.ports[0]), "--from", ANN, "--to", FAR]
        words.append("--tls" if role == "submission" else "--tls-on-connect")
        ran = [
            subprocess.run([*words, *more], capture_output=True, timeout=60, check=False)
            for more in ([], ["--auth", mechanism, "--auth-user", "joe", "--auth-password", "wrong"])
        ]
        assert b"530 5.7.0 Authentication required" in ran[0].stdout
        assert b"535 5.7.8 Authentication credentials invalid" in ran[1].stdout
        assert is_empty(smtpd_home)
        words += ["--auth", mechanism, "--auth-user", "joe", "--auth-password", PASSWORD]
        done = subprocess.run(words, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout
    assert b"with ESMTPSA id " in only(smtpd_home).message


def test_esmtp_hands_in_messages_under_starttls_with_tls_1_3(smtpd_home: Home, tmp_path: Path) -> None:
    """Where two session tickets came at once, libESMTP took them for one and waited: one message in three hung."""
    trusted, config = tmp_path / ".config" / "libesmtp" / "ca.pem", tmp_path / "esmtprc"
    trusted.parent.mkdir(mode=0o700, parents=True)
    # It takes no file that others may read.
    trusted.touch(0o600)
    shutil.copyfile(make_certificate(tmp_path, "localhost")[0], trusted)
    config.touch(0o600)
    with IntakeDaemon(smtpd_home), SmtpdDaemon(smtpd_home, ("submission",)) as daemon:
        config.write_text(
            f"hostname = localhost:{daemon.ports[0]}\nstarttls = required\nusername = joe\npassword = {PASSWORD}\n"
        )
        for _ in range(12):
            done = subprocess.run(
                [need("esmtp"), "-v", "-C", str(config), "-f", ANN, FAR],
                input=b"Subject: x\n\nhello\n",
                env={"HOME": str(tmp_path), "PATH": os.defpath},
                capture_output=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert daemon.said(b": tls TLSv1.3 ")
    found = queued(smtpd_home)
    assert len(found) == 12 and all(b"with ESMTPSA id " in each.message for each in found)


def test_postfix_as_a_client_relays_by_auth_under_starttls(smtpd_home: Home) -> None:
    with IntakeDaemon(smtpd_home), SmtpdDaemon(smtpd_home, ("submission",)) as daemon:
        place = f"[127.0.0.1]:{daemon.ports[0]}"
        main = [
            "virtual_mailbox_domains =",
            "mynetworks = 127.0.0.0/8",
            f"default_transport = smtp:{place}",
            "smtp_tls_security_level = encrypt",
            "smtp_sasl_auth_enable = yes",
            f"smtp_sasl_password_maps = inline:{{ {place}=joe:{PASSWORD} }}",
            "smtp_sasl_tls_security_options = noanonymous",
        ]
        with Postfix(main=main, master=["smtp unix - - n - - smtp"]) as postfix:
            with smtplib.SMTP("127.0.0.1", postfix.port, timeout=60) as client:
                client.sendmail(ANN, [FAR], "Subject: x\r\n\r\nhello\r\n")
            wait_until(lambda: bool(queued(smtpd_home)), 60, "Postfix's message")
            wait_until(lambda: "status=sent" in postfix.log(), 60, "Postfix to note it")
        assert daemon.said(b": auth joe ")
    assert b"with ESMTPSA id " in only(smtpd_home).message
