"""From the SMTP session to the deliveries and back: queuectl log, where each has a logger of its own."""

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from queue_admin.main import main
from queue_admin.web.status_site import StatusSite
from support.processes.suite import Suite, wait_until
from support.site import LOCAL, Site
from support.smtpd.smtpd_daemon import SmtpdDaemon, free_ports
from support.tools import need


@contextlib.contextmanager
def logger(top: Path) -> Iterator[IO[str]]:
    """Run a multilog, and give its input."""
    with subprocess.Popen(["multilog", "t", str(top)], stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        yield process.stdin


def test_the_id_of_a_message_shows_its_session_and_its_deliveries_and_the_id_is_in_both_logs(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need("multilog")
    home = site.home
    site.control("rcpthosts", f"{LOCAL}\nbusy.example\n")
    site.route(free_ports(1)[0])
    smtpd_log = tmp_path / "smtpd"
    shell = f"exec 2> >(exec multilog t {smtpd_log}); "
    with (
        logger(tmp_path / "send") as log,
        Suite(home, on_line=lambda line: print(line, file=log, flush=True)),
        SmtpdDaemon(home, shell=shell) as daemon,
    ):
        wait_until(Path(home.queue, "intake", "socket").exists, 60, "queue-intake")
        with daemon.smtp() as client:
            for number in range(3):
                client.sendmail(f"ann{number}@far.example", [f"joe@{LOCAL}"], b"Subject: x\r\n\r\nhello\r\n")
        current = smtpd_log / "current"
        wait_until(lambda: b": end QUIT" in current.read_bytes(), 60, "the log of queue-smtpd")
        ended = tmp_path / "send" / "current"
        wait_until(lambda: ended.read_bytes().count(b"end msg ") == 3, 60, "the log of queue-send")
        ids = re.findall(rb"queued (\S+) ", current.read_bytes())
        assert len(ids) == 3
        for number, long_id in enumerate(ids):
            words = ["log", long_id.decode(), "--logs", str(tmp_path / "send")]
            assert main(["queuectl", "--home", home.path, *words]) == 0
            shown = [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
            assert [line.split()[2] for line in shown[:4]] == ["connect", "from", "to", "queued"], shown
            assert f" from <ann{number}@far.example> " in shown[1] and long_id.decode() in shown[3]
            assert shown[4].startswith("new msg ") and shown[-1].startswith("end msg ")
            assert shown[5].split()[6] == f"<ann{number}@far.example>"
        with daemon.smtp() as client:
            client.sendmail("ann@far.example", ["sue@busy.example"], b"Subject: x\r\n\r\nhello\r\n")
        wait_until(lambda: len(re.findall(rb"queued (\S+) ", current.read_bytes())) == 4, 60, "the log of queue-smtpd")
        waiting = re.findall(r"queued (\S+) ", current.read_text())[-1]
        page = StatusSite(home).answer(f"/message/{waiting}", "").body.decode()
        for text in (": connect 127.0.0.1:", ": to &lt;sue@busy.example&gt;", f"queued {waiting}"):
            assert text in page, text
