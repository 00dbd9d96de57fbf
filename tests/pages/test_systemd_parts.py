"""The commands of pages that are for systemd are run as they stand there, under a real systemd."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pages.test_pages import NO_PACKAGES, QUICK
from support.pages.machine import Ran
from support.pages.page import Page, Walk
from support.processes.forked import BIN
from support.processes.systemd import RunningSystemd
from support.tools import need, need_shared_python

pytestmark = pytest.mark.exhaustive
FIRST_HOUR = Page(
    "docs/first-hour.md",
    "Start: under systemd",
    left={"apt-get ": NO_PACKAGES},
    # How long ago it was started.
    replaced={"18ms ago": "…"},
    awaited=("systemctl status",),
)
INSTALL = Page("docs/install.md", "systemd", left={"apt-get ": NO_PACKAGES})
SMTP_SERVER = Page(
    "docs/smtp-server.md",
    "Run it",
    texts={"*:25 mx": "a control file; test_pages.py looks at it"},
    left={
        "queuectl init /var/queue --smtpd-service /etc/queue-smtpd": "for runit; test_pages.py has it",
        "ln -s /etc/queue-smtpd": "for runit; test_pages.py has it",
    },
    replaced={"mx.example.org": "127.0.0.1"},
    before={
        # This host is a stranger to it.
        "swaks --server mx.example.org:25 --from me@example.net --to ann@": """touch /var/queue/control/relayclients
            systemctl reload queue-smtpd
            while swaks --server 127.0.0.1:25 --to joe@example.com --quit-after RCPT >/run/swaks
            do sleep 0.1; done""",
    },
    codes={"swaks --server mx.example.org:25 --from me@example.net --to joe@example.com": 24},
)
REMOVAL = """set -e
    systemctl disable --now queue-smtpd queue-suite queue-smtpd-log.socket queue-suite-log.socket
    rm /etc/systemd/system/queue-s*
    systemctl daemon-reload
    [ "$(systemctl is-active queue-suite)" = inactive ]"""


class SystemdMachine:
    """A machine for Walk whose process 1 is systemd, with the suite installed and a home; each command has a shell."""

    def __init__(self, system: RunningSystemd) -> None:
        self._system = system
        path = f"/opt/queue-suite/programs:{sys.base_prefix}/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        system.variables = {"PATH": path, "LANG": "C.UTF-8"}
        libraries = [directory for directory in sys.path if directory.endswith("-packages")]
        self.must(f"""set -e
            useradd -m ann
            mkdir /libraries
            for library in {' '.join(libraries)}; do ln -s $library $(mktemp -u /libraries/XXXXXX); done
            cd {BIN.parent}
            {chr(10).join(QUICK.values())}
            queuectl init /var/queue --me mail.example.org --local example.org
            su ann -c 'mkdir -p ~/Maildir/cur ~/Maildir/new ~/Maildir/tmp'""")

    def run(self, command: str) -> Ran:
        """Run a command."""
        done = self._system.run(command, check=False)
        return Ran(done.returncode, done.stdout + done.stderr)

    def must(self, command: str) -> str:
        """Run a command that has to succeed; return what it printed."""
        ran = self.run(command)
        assert ran.code == 0, f"{command}\n{ran.text}"
        return ran.text


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[SystemdMachine]:
    need_shared_python()
    for command in ("multilog", "swaks"):
        need(command)
    with RunningSystemd(tmp_path) as system:
        yield SystemdMachine(system)


@pytest.mark.timeout(900)
def test_the_commands_for_systemd_start_the_suite_and_queue_smtpd_which_take_and_deliver_mail(
    machine: SystemdMachine,
) -> None:
    for page in (FIRST_HOUR, INSTALL, SMTP_SERVER):
        Walk(page, machine).run()
    machine.must("""set -e
        for unit in queue-suite queue-suite-log.socket queue-smtpd queue-smtpd-log.socket; do
            systemctl is-active $unit
            systemctl is-enabled $unit
        done
        until [ $(ls ~ann/Maildir/new | wc -l) = 1 ]; do sleep 0.1; done""")
    machine.must(REMOVAL)
