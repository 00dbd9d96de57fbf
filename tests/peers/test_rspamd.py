"""Debian's rspamd as a milter of queue-smtpd: spam is refused with its words, and other mail comes in."""

import smtplib
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_wire.pipes.qmtp import AnswerReader, pack_package
from support.inject.injectors import queued, shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.processes.suite import wait_until
from support.servers.ports import free_ports
from support.smtpd.smtpd_daemon import SmtpdDaemon
from support.tools import need

HEADER = (
    "From: ann@example.org\r\nTo: bob@example.net\r\nMessage-Id: <x@example.org>\r\n"
    "Date: 20 Nov 2026 13:00:00 -0000\r\nSubject: hello\r\n\r\n"
)
# What every spam filter refuses (spamassassin.apache.org/gtube).
SPAM = "XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X\r\n"
REFUSAL = b"5.7.1 Gtube pattern"


@contextmanager
def rspamd(place: Path) -> Iterator[int]:
    """Run rspamd as a milter that scans by itself, without rules, redis and DNS; yield its port."""
    port = free_ports("rspamd")["rspamd"]
    # By these it finds addresses in texts. It would compile its own list at its start, for five seconds.
    domains = place / "domains"
    domains.write_text("org\nnet\n")
    config = place / "rspamd.conf"
    config.write_text(f"""
        options {{ pidfile = "{place}/pid"; tempdir = "{place}"; hs_cache_dir = "{place}"; filters = "";
                   url_tld = "{domains}";
                   dns {{ nameserver = ["127.0.0.1:1"]; timeout = 1s; }} }}
        logging {{ type = "console"; level = "warning"; }}
        metric {{ name = "default"; actions {{ reject = 15; }} }}
        worker "rspamd_proxy" {{ bind_socket = "127.0.0.1:{port}"; count = 1; milter = yes;
                                upstream "local" {{ default = yes; self_scan = yes; }} }}
    """)
    with (place / "said").open("wb") as said:
        # Without -i it would not run as root.
        words = [need("rspamd"), "-f", "-i", "-c", str(config)]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        wait_until(lambda: _listens(port) or process.poll() is not None, 30, "rspamd to listen")
        assert process.poll() is None, (place / "said").read_text()
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def home() -> Iterator[Home]:
    with shared_home(0) as home:
        for name, text in (("rcpthosts", "example.net"), ("checkrcpt", "0")):
            Path(home.control, name).write_text(text + "\n")
        with IntakeDaemon(home):
            yield home


def test_rspamd_refuses_spam_by_smtp_and_by_qmtp_and_takes_other_mail(home: Home, tmp_path: Path) -> None:
    with rspamd(tmp_path) as port:
        Path(home.control, "milters").write_text(f"inet:127.0.0.1:{port}\n")
        with SmtpdDaemon(home, ["mx", "qmtp"]) as daemon:
            with daemon.smtp() as client:
                client.sendmail("ann@example.org", ["bob@example.net"], HEADER + "How are you?\r\n")
                with pytest.raises(smtplib.SMTPDataError) as refused:
                    client.sendmail("ann@example.org", ["bob@example.net"], HEADER + SPAM)
                assert (refused.value.smtp_code, refused.value.smtp_error) == (554, REFUSAL)
                client.sendmail("ann@example.org", ["bob@example.net"], HEADER + "x" * 70 + "\r\n" * 20000)
            answers = []
            with daemon.connect(1) as stranger:
                for body in ("How are you?\r\n", SPAM):
                    text = (HEADER + body).replace("\r\n", "\n").encode()
                    stranger.sendall(pack_package(text, b"ann@example.org", [b"bob@example.net"]))
                    reader = AnswerReader()
                    while not (found := reader.feed(stranger.recv(4096))):
                        pass
                    answers += [each.letter + each.text for each in found]
            assert answers[0][:1] == b"K" and answers[1] == b"DGtube pattern (#5.7.1)"
            daemon.wait_for(b" refuses message: 554_5.7.1_Gtube_pattern")
            daemon.wait_for(b" accepts message")
    assert len(queued(home)) == 3
