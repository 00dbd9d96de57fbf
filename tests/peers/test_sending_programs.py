"""What s-nail and Postfix's smtp-source hand in by SMTP is in the queue once, as they wrote it.

swaks, curl, smtplib and Postfix's client have tests of their own (test_submission_clients, tests/smtpd).
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from support.inject.injectors import only, queued, shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.processes.suite import wait_until
from support.smtpd.smtpd_daemon import SmtpdDaemon
from support.tools import need

ANN, BOB, FAR = "ann@example.net", "bob@elsewhere.example", "x@elsewhere.example"
SECONDS = 300.0


@pytest.fixture
def smtpd_home() -> Iterator[Home]:
    """Yield a home that relays for this host."""
    with shared_home(0) as home:
        Path(home.control, "relayclients").write_text("127.0.0.1\n")
        yield home


def test_s_nail_hands_in_a_message_by_smtp(smtpd_home: Home, tmp_path: Path) -> None:
    text = "Dear all,\n.\n..\n.dots\n\nGr\u00fc\u00dfe\nFrom here on\n"
    with IntakeDaemon(smtpd_home), SmtpdDaemon(smtpd_home) as daemon:
        options = {
            "mta": f"smtp://127.0.0.1:{daemon.ports[0]}", "smtp-config": "-all", "smtp-auth": "none", "from": ANN,
            "ttycharset": "utf-8", "sendcharsets": "utf-8", "mime-encoding": "8b",
        }  # fmt: skip
        words = [need("s-nail"), "-n", "-S", "v15-compat", "-S", "sendwait"]
        words += [word for name, value in options.items() for word in ("-S", f"{name}={value}")]
        done = subprocess.run(
            [*words, "-s", "typed", BOB, FAR],
            input=text.encode(),
            env={**os.environ, "LC_ALL": "C.UTF-8", "HOME": str(tmp_path)},
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
    found = only(smtpd_home)
    assert found.envelope.sender == ANN.encode()
    assert found.envelope.recipients == [BOB.encode(), FAR.encode()]
    assert found.message.partition(b"\n\n")[2] == text.encode()


@pytest.mark.parametrize(
    ("connections", "messages"),
    [
        (20, 300),
        pytest.param(20, 20_000, marks=pytest.mark.exhaustive),
        pytest.param(200, 5000, marks=pytest.mark.exhaustive),
    ],
)
def test_each_message_of_smtp_source_comes_once(smtpd_home: Home, connections: int, messages: int) -> None:
    with IntakeDaemon(smtpd_home) as intake, SmtpdDaemon(smtpd_home) as daemon:
        words = [need("smtp-source"), "-s", str(connections), "-m", str(messages), "-l", "2048", "-N", "-f", ANN]
        words += ["-t", BOB, f"127.0.0.1:{daemon.ports[0]}"]
        with subprocess.Popen(words, stderr=subprocess.PIPE) as source:

            def has_ended() -> bool:
                # A log that nobody reads would stop the daemons.
                daemon.said(b"")
                intake.said(b"")
                return source.poll() is not None

            wait_until(has_ended, SECONDS, "smtp-source")
            assert source.stderr is not None
            assert (source.returncode, source.stderr.read()) == (0, b"")
        daemon.said(b"")
        assert daemon.log.count(b": queued ") == messages
    found = queued(smtpd_home)
    # -N puts a number before each recipient.
    recipients = [recipient for each in found for recipient in each.envelope.recipients]
    assert sorted(recipients) == sorted([b"%d%s" % (number, BOB.encode()) for number in range(1, messages + 1)])
    bodies = {each.message.partition(b"\n\n")[2] for each in found}
    assert len(bodies) == 1 and len(bodies.pop()) > 1500
    assert len({re.findall(rb"(?m)^Message-Id: (.*)$", each.message)[0] for each in found}) == messages
