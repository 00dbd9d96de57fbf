"""queuectl init --kind systemd: units that systemd-analyze accepts, and how exposed they are."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from queue_admin.home.service import SYSTEMD, Service, write_service
from queue_admin.home.systemd_units import NOTIFY_RELOAD, UnitFacts, unit_name, units
from queue_admin.system_accounts import myself
from queue_base.errors import Permanent
from queue_base.home import Home
from support.processes.forked import BIN
from support.tools import need


def analyze(*words: str) -> str:
    """Return what systemd-analyze prints; it must succeed."""
    done = subprocess.run([need("systemd-analyze"), *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def write(
    path: Path, account: str | None = "daemon", home: str = "/var/queue", version: int = 252, *, smtpd: bool = False
) -> list[Path]:
    """Write the units for this machine's queue-start or queue-smtpd; return their paths."""
    logger = ["/bin/cat", "it's 100%", "/var/log/queue"]
    start = str(BIN / ("queue-smtpd" if smtpd else "queue-start"))
    facts = UnitFacts(unit_name(home, smtpd), home, start, logger, "/var/log/queue", account, version, smtpd)
    made = []
    for name, text in units(facts).items():
        made.append(path / name)
        made[-1].write_bytes(text)
    return made


@pytest.mark.parametrize("smtpd", [False, True])
@pytest.mark.parametrize(("account", "home"), [("daemon", "/var/queue"), (None, '/srv/a home/100% "mine"')])
def test_systemd_accepts_the_units_without_a_word(
    tmp_path: Path, account: str | None, home: str, smtpd: bool
) -> None:
    paths = write(tmp_path, account, home, smtpd=smtpd)
    assert {path.suffix for path in paths} == {".service", ".socket"} and len(paths) == 3
    assert analyze("verify", *map(str, paths)) == ""


def test_the_units_are_exposed_no_more_than_their_work_needs(tmp_path: Path) -> None:
    for path in write(tmp_path):
        if path.suffix == ".service":
            found = re.search(r"exposure level for \S+: ([0-9.]+)", analyze("security", "--offline=true", str(path)))
            assert found is not None
            # queue-local becomes any user; the logger needs nothing.
            assert float(found[1]) <= (1.5 if path.name.endswith("-log.service") else 5.0), (path, found[1])


def test_the_smtp_server_is_exposed_little(tmp_path: Path) -> None:
    service, log, fifo = write(tmp_path, smtpd=True)
    assert [path.name for path in (service, log, fifo)] == [
        f"queue-smtpd{end}" for end in (".service", "-log.service", "-log.socket")
    ]
    found = re.search(r"exposure level for \S+: ([0-9.]+)", analyze("security", "--offline=true", str(service)))
    assert found is not None and float(found[1]) <= 3.0, found


def test_a_reload_is_waited_for_where_systemd_can_do_that(tmp_path: Path) -> None:
    old, new = (write(tmp_path, version=version)[0].read_text() for version in (252, NOTIFY_RELOAD))
    assert "Type=notify\nExecReload=kill -HUP $MAINPID\n" in old
    assert "Type=notify-reload\n" in new and "ExecReload" not in new


def test_a_reload_reaches_the_smtp_server_which_is_not_root_any_more(tmp_path: Path) -> None:
    """Root without CAP_KILL, as in this unit, may signal no process of another user."""
    system = write(tmp_path, smtpd=True)[0].read_text()
    assert "CapabilityBoundingSet=CAP_NET_BIND_SERVICE CAP_SETUID CAP_SETGID\n" in system
    assert "ExecReload=+kill -HUP $MAINPID\n" in system
    assert "ExecReload=kill -HUP $MAINPID\n" in write(tmp_path, None, smtpd=True)[0].read_text()


def test_term_goes_to_queue_send_alone_and_the_log_through_the_fifo(tmp_path: Path) -> None:
    service, log, fifo = (path.read_text() for path in write(tmp_path))
    assert "KillMode=mixed\nTimeoutStopSec=600\n" in service
    assert "StandardOutput=file:/run/queue-suite.log\nStandardError=inherit\n" in service
    assert "ListenFIFO=/run/queue-suite.log\n" in fifo and "StandardInput=socket\n" in log


def test_a_queue_that_cannot_be_used_is_not_started_again_and_again(tmp_path: Path) -> None:
    """queue-start exits with 100 then; with 111 for what may pass."""
    service = write(tmp_path)[0].read_text()
    assert "Restart=always\n" in service and "RestartPreventExitStatus=100\n" in service


def test_units_are_written_with_the_logger_that_is_there_and_kept_unless_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(Home("/srv/mail"), "/opt/queue-start", str(tmp_path / "log"), None, myself())
    directory = tmp_path / "units"
    monkeypatch.setattr(shutil, "which", lambda name, path: f"/opt/{name}" if name == "svlogd" else None)
    made = write_service(service, str(directory), SYSTEMD, myself(), False)
    assert {Path(path).name for path in made} >= {f"queue-suite-mail{end}" for end in (".service", "-log.service")}
    log = directory / "queue-suite-mail-log.service"
    assert f"ExecStart=/opt/svlogd -t -l 2000 -b 8192 {tmp_path}/log\n" in log.read_text()
    assert write_service(service, str(directory), SYSTEMD, myself(), False) == []
    log.write_text("mine\n")
    assert write_service(service, str(directory), SYSTEMD, myself(), False) == []
    assert log.read_text() == "mine\n"
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    with pytest.raises(Permanent, match="install multilog"):
        write_service(service, str(directory), SYSTEMD, myself(), True)
