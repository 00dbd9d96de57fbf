"""The units that queuectl init writes give the suite every right that it needs, under setpriv and systemd."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_admin.home.systemd_units import UnitFacts, units
from support.processes.forked import BIN
from support.processes.suite import Suite
from support.processes.systemd import RunningSystemd
from support.queues.home import make_home
from support.tools import need, need_root

# What follows is run in the system of the test; PROGRAMS has the programs of the checkout.
SET_UP = """
PATH=PROGRAMS:$PATH
useradd -m -s /bin/sh ann
queuectl init /var/queue --me mail.example.org --local example.org >/dev/null
cd /var/queue
printf '127.0.0.1:209 qmtp 127.0.0.0/8\\n127.0.0.1:628 qmqp 127.0.0.0/8\\n' >control/intake
printf '127.0.0.1:25 mx\\n' >control/smtpd
printf 'files 200000\\nmemory 2G\\n' >control/locallimits
queuectl config check
su ann -c 'PROGRAMS/maildirmake ~/Maildir; umask 077; printf "./Maildir/\\n./mbox\\n|id -un >who\\n" >~/.qmail'
queuectl init /var/queue --service /etc/systemd/system --kind systemd >/dev/null
queuectl init /var/queue --smtpd-service /etc/systemd/system --kind systemd >/dev/null
systemctl daemon-reload
systemctl start queue-suite-log.socket queue-smtpd-log.socket queue-suite queue-smtpd
"""
CHECK = """
PATH=PROGRAMS:$PATH
for port in 209 628; do
    python3 -c "import socket; socket.create_connection(('127.0.0.1', $port), 10)"
done
python3 - <<'END'
import smtplib
with smtplib.SMTP("127.0.0.1", 25, "client.example", 60) as server:
    server.sendmail("me@example.net", ["ann@example.org"], "From: me@example.net\\r\\n\\r\\nhello\\r\\n")
END
end=$(($(date +%s) + 60))
until [ "$(cat ~ann/who 2>/dev/null)" = ann ]; do
    [ "$(date +%s)" -lt "$end" ] || { cat /var/log/queue/current /var/log/queue-smtpd/current; exit 1; }
    sleep 0.1
done
ls ~ann/Maildir/new | wc -l
stat -c %U ~ann/mbox
systemctl reload queue-suite queue-smtpd
systemctl is-active queue-suite queue-smtpd
systemctl stop queue-suite queue-smtpd
systemctl show -p Result,NRestarts queue-suite queue-smtpd
grep -h -e 'alert:' -e 'warning:' /var/log/queue/current /var/log/queue-smtpd/current || true
"""


def capabilities(unit: bytes) -> str:
    """Return the capabilities of a unit in the form of setpriv(1): none but those."""
    found = re.findall(r"^CapabilityBoundingSet=(.+)$", unit.decode(), re.MULTILINE)
    return "-all," + ",".join(f"+{name.removeprefix('CAP_').lower()}" for line in found for name in line.split())


def test_with_the_capabilities_of_its_unit_the_suite_opens_the_ports_of_qmtp_and_qmqp(tmp_path: Path) -> None:
    need_root()
    home = make_home(tmp_path / "home", split=3)
    Path(home.control, "intake").write_text("*:209 qmtp 127.0.0.0/8\n*:628 qmqp 127.0.0.0/8\n")
    facts = UnitFacts("queue-suite", home.path, str(BIN / "queue-start"), ["cat"], "/var/log/queue", "queue", 252)
    allowed = capabilities(units(facts)["queue-suite.service"])
    # The ports are those of a network of its own.
    wrapper = (need("unshare"), "--net", need("setpriv"), "--bounding-set", allowed)
    with Suite(home, wrapper=wrapper) as suite:
        assert not suite.count("alert: ")


@pytest.fixture
def system(tmp_path: Path) -> Iterator[RunningSystemd]:
    with RunningSystemd(tmp_path) as running:
        yield running


@pytest.mark.exhaustive
def test_under_systemd_mail_comes_in_at_all_ports_and_is_delivered_as_its_user(system: RunningSystemd) -> None:
    programs = str(BIN.parent / ".venv/bin")
    system.run(SET_UP.replace("PROGRAMS", programs))
    lines = system.run(CHECK.replace("PROGRAMS", programs)).stdout.splitlines()
    assert lines == [
        "1", "ann", "active", "active", "Result=success", "NRestarts=0", "", "Result=success", "NRestarts=0",
    ]  # fmt: skip
