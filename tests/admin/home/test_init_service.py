"""queuectl init --service: the scripts, and that a logger really runs under them."""

import os
import re
import select
import shlex
import smtplib
import stat
import subprocess
from pathlib import Path

import pytest

from queue_admin.home.service import DAEMONTOOLS, KINDS, Service, run_script, write_service
from queue_admin.main import main
from queue_admin.system_accounts import myself
from queue_base.home import Home
from queue_base.service_log import WEEK, log_script
from queue_wire import logline
from support.inject.qmail_queue import snapshot
from support.processes.suite import program
from support.servers.ports import free_port
from support.tools import need

STAMP = re.compile(rb"@[0-9a-f]{24} ")


def make(path: Path, *options: str) -> Path:
    """Run the real command; return the service directory."""
    service = path / "it's a \"service\""
    words = [*program("queuectl"), "init", str(path / "a home"), "--as-me", "--me", "mail.example.org"]
    subprocess.run([*words, "--service", str(service), *options], check=True, capture_output=True, timeout=60)
    return service


def write(path: Path, force: bool = False, kind: str = DAEMONTOOLS) -> list[str]:
    service = Service(Home(str(path / "home")), "/opt/queue-start", str(path / "log"), None, myself())
    return write_service(service, str(path / "sv"), kind, myself(), force)


def with_only(path: Path, name: str) -> dict[str, str]:
    """Return an environment whose PATH has one logger and what the script itself needs; its sleep only says so."""
    path.mkdir()
    for each in (name, "mkdir"):
        (path / each).symlink_to(need(each))
    (path / "sleep").write_text("#!/bin/sh\necho slept $1 s\n")
    (path / "sleep").chmod(0o755)
    return {"PATH": str(path)}


def test_the_scripts_are_valid_shell(tmp_path: Path) -> None:
    service = make(tmp_path)
    for script in (service / "run", service / "log/run"):
        assert stat.S_IMODE(script.stat().st_mode) == 0o755
        subprocess.run(["sh", "-n", str(script)], check=True, timeout=30)
    account = tmp_path / "account"
    account.write_bytes(log_script("queue"))
    subprocess.run(["sh", "-n", str(account)], check=True, timeout=30)


def test_run_names_the_queue_start_beside_queuectl(tmp_path: Path) -> None:
    words = shlex.split((make(tmp_path) / "run").read_text().splitlines()[-1])
    assert words == ["exec", "env", f"QUEUE_HOME={tmp_path}/a home", program("queue-start")[1]]


def test_run_survives_quotes_and_spaces_and_joins_stderr_to_the_log(tmp_path: Path) -> None:
    fake = tmp_path / "it's a queue-start"
    fake.write_text('#!/bin/sh\necho "home $QUEUE_HOME"\necho trouble >&2\n')
    fake.chmod(0o755)
    script = tmp_path / "run"
    script.write_bytes(run_script(Service(Home("/a 'home' $x"), str(fake), "/log", None, myself())))
    done = subprocess.run(["sh", str(script)], capture_output=True, check=True, timeout=30)
    assert (done.stdout, done.stderr) == (b"home /a 'home' $x\ntrouble\n", b"")


@pytest.mark.parametrize("logger", ["multilog", "svlogd"])
def test_the_log_is_stamped_and_long_lines_stay_whole(tmp_path: Path, logger: str) -> None:
    service = make(tmp_path)
    lines = b"status: local 0/10 remote 0/20\n" + b"x" * 1000 + b"\n"
    done = subprocess.run(
        ["/bin/sh", "./run"],
        cwd=service / "log",
        env=with_only(tmp_path / "bin", logger),
        input=lines,
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (0, b"")
    written = (tmp_path / "a home/log/current").read_bytes()
    assert len(STAMP.findall(written)) == 2
    assert STAMP.sub(b"", written) == lines


def test_svlogd_keeps_files_of_the_same_size_and_number_as_multilog(tmp_path: Path) -> None:
    service = make(tmp_path)
    log = tmp_path / "a home/log"
    assert (log / "config").read_bytes() == b"s16000000\nn64\n"
    assert f"multilog t s16000000 n64 '{log}'".encode() in (service / "log/run").read_bytes()


def test_a_week_of_a_hundred_thousand_messages_a_day_fits_in_the_log() -> None:
    recipient = b"somebody.with.a.name@mail.department.example.org"
    sender = b"bounces-12345-joe=example.org@lists.example.com"
    reason = b"192.0.2.1_accepted_message./Remote_host_said:_250_2.0.0_Ok:_queued_as_4XyZ123456z9abc/"
    status = logline.status(3, 10, 120, 250, False)
    lines = [
        logline.new_message(123456789), logline.info_message(123456789, 23456, sender, 1234567, 1000), status,
        logline.starting_delivery(123456, 123456789, b"remote", recipient), status,
        logline.delivery_result(123456, b"Z", reason), status,
        logline.starting_delivery(123457, 123456789, b"remote", recipient), status,
        logline.delivery_result(123457, b"K", reason), logline.end_message(123456789),
    ]  # fmt: skip
    # A stamp and a space before each line, a newline behind it.
    size = sum(26 + len(line) + 1 for line in lines)
    assert 7 * 100_000 * size < WEEK[0] * WEEK[1]


def test_only_the_owner_of_the_log_and_its_group_may_read_it(tmp_path: Path) -> None:
    write(tmp_path)
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o2750
    assert b"umask 027\n" in (tmp_path / "sv/log/run").read_bytes()


def test_without_a_logger_the_script_says_what_is_missing(tmp_path: Path) -> None:
    service = make(tmp_path)
    done = subprocess.run(
        ["/bin/sh", "./run"],
        cwd=service / "log",
        env={**with_only(tmp_path / "bin", "true")},
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 111
    assert b"neither multilog (daemontools) nor svlogd (runit)" in done.stdout
    # Else the supervisor would start it again at once.
    assert done.stdout.endswith(b"\nslept 10 s\n")


@pytest.mark.parametrize("tool", ["setuidgid", "chpst"])
def test_with_an_account_the_logger_runs_as_it_in_a_directory_of_its_own(tmp_path: Path, tool: str) -> None:
    logger = {"setuidgid": "multilog", "chpst": "svlogd"}[tool]
    for name in (tool, "chown", logger):
        fake = tmp_path / "bin" / name
        fake.parent.mkdir(exist_ok=True)
        fake.write_text(f'#!/bin/sh\necho {name} "$@" >>{shlex.quote(str(tmp_path / "calls"))}\n')
        fake.chmod(0o755)
    (tmp_path / "bin/mkdir").symlink_to(need("mkdir"))
    (tmp_path / "run").write_bytes(log_script("queue"))
    subprocess.run(["/bin/sh", "./run"], cwd=tmp_path, env={"PATH": str(tmp_path / "bin")}, check=True, timeout=30)
    asked, ran = (tmp_path / "calls").read_text().splitlines()
    assert asked == "chown -h queue ./main"  # A directory that is missing is made; no link is followed.
    assert ran.startswith({"setuidgid": "setuidgid queue multilog t", "chpst": "chpst -u queue svlogd -t"}[tool])


def test_a_second_time_nothing_is_written(tmp_path: Path) -> None:
    write(tmp_path)
    before = snapshot(tmp_path / "sv")
    assert write(tmp_path) == []
    assert snapshot(tmp_path / "sv") == before


def test_a_script_that_differs_is_kept_with_a_warning_unless_forced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    script = tmp_path / "sv/run"
    script.write_bytes(b"#!/bin/sh\nexec mine\n")
    assert write(tmp_path) == []
    said = f"queuectl: warning: {script} differs and stays as it is; --force replaces it\n"
    assert capfd.readouterr().err == said
    assert script.read_bytes() == b"#!/bin/sh\nexec mine\n"
    assert write(tmp_path, force=True) == [str(script)]
    assert b"queue-start" in script.read_bytes()


def test_a_service_directory_appears_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(old: str, new: str, **directories: int) -> None:
        if new == "sv":
            raise KeyboardInterrupt
        rename(old, new, **directories)

    rename = os.rename
    monkeypatch.setattr(os, "rename", dying)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path)
    assert {entry.name for entry in tmp_path.iterdir()} == {".sv.new", "log"}
    monkeypatch.undo()
    write(tmp_path)
    assert {entry.name for entry in tmp_path.iterdir()} == {"sv", "log"}
    assert (tmp_path / "sv/log/run").exists()


def test_a_service_can_be_added_to_a_home_that_is_there(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    assert main(["queuectl", "init", str(home), "--as-me", "--me", "mail.example.org"]) == 0
    before = snapshot(home)
    assert (make(tmp_path) / "run").exists()
    log = {name for name in snapshot(home) if name == "log" or name.startswith("log/")}
    assert {name: found for name, found in snapshot(home).items() if name not in log} == before


def test_the_smtp_server_gets_a_service_of_its_own(tmp_path: Path) -> None:
    make(tmp_path)
    log, service = tmp_path / "a home/log-smtpd", tmp_path / "smtpd"
    words = [*program("queuectl"), "init", str(tmp_path / "a home"), "--as-me", "--smtpd-service", str(service)]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    assert stat.S_IMODE(log.stat().st_mode) == 0o2750
    assert stat.S_IMODE((tmp_path / "a home/greylist").stat().st_mode) == 0o700
    assert str(log) in (service / "log/run").read_text()
    line = (service / "run").read_text().splitlines()[-1]
    run = ["exec", "env", f"QUEUE_HOME={tmp_path}/a home", program("queue-smtpd")[1], "</dev/null"]
    assert shlex.split(line) == run


def test_each_supervisor_gets_what_it_needs_for_the_smtp_server(tmp_path: Path) -> None:
    make(tmp_path)
    home, script = str(tmp_path / "a home"), {"log", "run"}
    units = {f"queue-smtpd-a_home{end}" for end in (".service", "-log.service", "-log.socket")}
    found = {}
    for kind in KINDS:
        directory = tmp_path / kind
        words = ["init", home, "--as-me", "--smtpd-service", str(directory), "--kind", kind]
        assert main(["queuectl", *words]) == 0
        found[kind] = {path.name for path in directory.iterdir()}
    assert found == {"daemontools": script, "runit": script, "s6": {*script, "notification-fd"}, "systemd": units}


def test_the_written_script_serves_smtp(tmp_path: Path) -> None:
    make(tmp_path)
    home, service, port = tmp_path / "a home", tmp_path / "smtpd", free_port()
    (home / "control/smtpd").write_text(f"127.0.0.1:{port} mx\n")
    words = [*program("queuectl"), "init", str(home), "--as-me", "--smtpd-service", str(service), "--kind", "s6"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    assert (service / "notification-fd").read_text() == "3\n"
    reader, writer = os.pipe()
    words = ["sh", "-c", f"exec 3>/dev/fd/{writer}; exec ./run"]
    process = subprocess.Popen(words, cwd=service, pass_fds=(writer,), stdout=subprocess.DEVNULL)
    try:
        os.close(writer)
        assert select.select([reader], [], [], 60)[0] and os.read(reader, 1) == b"\n"
        with smtplib.SMTP("127.0.0.1", port, timeout=30) as client:
            assert client.ehlo()[0] == 250
    finally:
        os.close(reader)
        process.terminate()
        assert process.wait(60) == 0
