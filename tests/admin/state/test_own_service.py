"""queuectl metrics and web with --service: what is written, and that it runs."""

import os
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from queue_admin.main import main
from queue_base.home import Home
from support.processes.suite import program, wait_until
from support.queues.home import make_home
from support.servers.ports import free_port


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "a home", split=3)


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are looked for beside the one that runs, which is pytest here."""
    monkeypatch.setattr(sys, "argv", program("queuectl")[-1:])


def queuectl(home: Home, *words: str) -> int:
    return main(["queuectl", "--home", home.path, *words])


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@pytest.mark.parametrize(("command", "path"), [("metrics", "/metrics"), ("web", "/")])
def test_the_script_of_a_service_directory_serves_the_home(
    home: Home, tmp_path: Path, command: str, path: str
) -> None:
    place = f"127.0.0.1:{free_port()}"
    assert queuectl(home, command, "--listen", place, "--service", str(tmp_path / "sv"), "--kind", "runit") == 0
    assert (tmp_path / "sv/log/run").stat().st_mode & 0o111
    # The checkout's own programs are run by the first Python.
    path_here = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    script = [str(tmp_path / "sv/run")]
    with subprocess.Popen(script, stdout=subprocess.PIPE, env={**os.environ, "PATH": path_here}) as process:
        try:
            wait_until(lambda: answers(f"http://{place}{path}"), 60, "an answer")
        finally:
            process.kill()


def test_written_again_it_changes_nothing_and_another_script_only_by_force(
    home: Home, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    service = str(tmp_path / "sv")
    assert queuectl(home, "web", "--service", service, "--host", "it's.example") == 0
    words = shlex.split((tmp_path / "sv/run").read_text().splitlines()[-1])
    assert words[-5:] == ["web", "--listen", "127.0.0.1:8080", "--host", "it's.example"]
    assert f"wrote {service}/run\n" in capfd.readouterr().out
    assert queuectl(home, "web", "--service", service, "--host", "it's.example") == 0
    assert capfd.readouterr() == ("", "")
    assert queuectl(home, "web", "--service", service) == 0
    assert f"warning: {service}/run differs and stays as it is; --force replaces it" in capfd.readouterr().err
    assert queuectl(home, "web", "--service", service, "--force") == 0
    assert capfd.readouterr().out == f"wrote {service}/run\n"


def test_for_systemd_it_is_a_unit(home: Home, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ("metrics", "--service", str(tmp_path / "units"), "--kind", "systemd")
    assert queuectl(home, *words) == 100
    assert "--service needs --listen ADDR:PORT" in capfd.readouterr().err
    assert queuectl(home, *words, "--listen", "127.0.0.1:9125") == 0
    unit = (tmp_path / "units/queue-metrics-a_home.service").read_text()
    assert f'queuectl --home "{home.path}" metrics --listen 127.0.0.1:9125\n' in unit
    assert "Restart=always\n" in unit and "WantedBy=default.target\n" in unit
    assert not Path(f"{home.path}/log-metrics").exists()
