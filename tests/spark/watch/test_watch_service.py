"""queue-report watch --service: the scripts, that they run, and what is left alone."""

import os
import shlex
import stat
import subprocess
from pathlib import Path

import pytest

from queue_base.errors import Permanent
from queue_base.service_log import log_script
from queue_report.main import main
from queue_report.watch.service import run_script, write_service
from support.inject.qmail_queue import snapshot

COMMAND = ["/opt/it's a/queue-report", "watch", "/var/log/a b", "--lake", "/srv/$lake"]


def test_the_scripts_are_queuectl_s_and_the_command_survives_its_quotes(tmp_path: Path) -> None:
    service = tmp_path / "sv"
    written = write_service(str(service), COMMAND, force=False)
    assert written == [f"{service}{name}" for name in ("", "/log", "/log/main", "/log/main/config", "/log/run", "/run")]
    assert (service / "log" / "run").read_bytes() == log_script(None)
    assert (service / "log" / "main" / "config").read_text() == "s1000000\nn20\n"
    assert shlex.split((service / "run").read_text().splitlines()[-1]) == ["exec", *COMMAND]
    for script in (service / "run", service / "log" / "run"):
        assert stat.S_IMODE(script.stat().st_mode) == 0o755
        subprocess.run(["sh", "-n", str(script)], check=True, timeout=30)
    assert [path.name for path in tmp_path.iterdir()] == ["sv"]


def test_run_joins_stderr_to_the_log(tmp_path: Path) -> None:
    fake = tmp_path / "queue-report"
    fake.write_text('#!/bin/sh\necho "$@"\necho trouble >&2\n')
    fake.chmod(0o755)
    (tmp_path / "run").write_bytes(run_script([str(fake), "watch", "/a b"]))
    done = subprocess.run(["sh", str(tmp_path / "run")], capture_output=True, check=True, timeout=30)
    assert (done.stdout, done.stderr) == (b"watch /a b\ntrouble\n", b"")


def test_written_again_it_changes_nothing_and_another_script_only_by_force(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    service = tmp_path / "sv"
    write_service(str(service), COMMAND, force=False)
    before = snapshot(service)
    assert write_service(str(service), COMMAND, force=False) == []
    assert snapshot(service) == before
    assert write_service(str(service), [*COMMAND, "--expire", "3"], force=False) == []
    why = f"warning: {service}/run differs and stays as it is; --force replaces it"
    assert capfd.readouterr().err == f"queue-report: {why}\n"
    assert snapshot(service) == before
    assert write_service(str(service), [*COMMAND, "--expire", "3"], force=True) == [f"{service}/run"]


def test_what_an_interrupted_run_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".sv.new" / "log").mkdir(parents=True)
    (tmp_path / ".sv.new" / "run").write_text("half a scr")
    write_service(str(tmp_path / "sv"), COMMAND, force=False)
    assert (tmp_path / "sv" / "run").read_bytes() == run_script(COMMAND)


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sv").write_text("mine")
    with pytest.raises(Permanent, match="no directory is in its place"):
        write_service(str(tmp_path / "sv"), COMMAND, force=True)


def test_the_command_names_what_it_was_given_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "watch",
        "logs",
        "--lake",
        "a lake",
        "--every",
        "30",
        "--page",
        "p.html",
        "--expire",
        "400",
        "--memory",
        "1g",
    ]
    assert main(["/opt/bin/queue-report", *words, "--conf", "a=b", "--conf", "c=d", "--service", "sv", "--force"]) == 0
    said = shlex.split((tmp_path / "sv" / "run").read_text().splitlines()[-1])
    assert os.path.basename(said[1]) == "queue-report"
    assert said[2:4] == ["watch", str(tmp_path / "logs")]
    given = dict(zip(said[4::2], said[5::2], strict=True))
    assert given == {
        "--lake": str(tmp_path / "a lake"), "--every": "30", "--page": str(tmp_path / "p.html"), "--expire": "400",
        "--memory": str(1 << 30), "--conf": "c=d",
    }  # fmt: skip
    assert "a=b" in said and capsys.readouterr().out.startswith(f"wrote {tmp_path}/sv\n")
