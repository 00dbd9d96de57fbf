"""queuectl config: what it shows, what it names as a mistake, and how a change comes into force."""

import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_admin.main import main
from queue_admin.metrics.smtpd_client import ask_processes
from queue_admin.settings.control_faults import _first_denied
from queue_base.accounts import Owner
from queue_base.home import Home
from queue_wire.control.registry import FILES
from support.processes.forked import run_program
from support.processes.suite import Suite, program, wait_until
from support.queues.home import make_home, make_several
from support.servers.certificate import make_certificate
from support.smtpd.smtpd_daemon import SmtpdDaemon
from support.tools import need_root

pytestmark = pytest.mark.filterwarnings("ignore:unclosed")


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are looked for beside the one that runs, which is pytest here."""
    monkeypatch.setattr(sys, "argv", program("queuectl")[-1:])


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = make_home(tmp_path / "home", split=3)
    Path(made.control, "locals").write_text("me.example.org\n")
    Path(made.control, "classifyafter").unlink(missing_ok=True)
    return made


@pytest.fixture
def suite(home: Home) -> Iterator[Suite]:
    with Suite(home) as running:
        running.wait_for(r"status: local 0/\d+ remote 0/\d+")
        yield running


def queuectl(home: Home, *words: str, code: int = 0, given: bytes = b"") -> tuple[str, str]:
    """Run the real queuectl; return what it prints on stdout and stderr."""
    done = run_program("queuectl", "--home", home.path, *words, given=given)
    assert done.returncode == code, done
    return done.stdout.decode(), done.stderr.decode()


def listed(home: Home, *words: str) -> dict[str, dict[str, object]]:
    lines = queuectl(home, "config", *words, "--format", "json")[0].splitlines()
    return {found["name"]: found for found in map(json.loads, lines)}


def test_a_mistake_is_named_once_with_its_file(home: Home) -> None:
    path = Path(home.control, "locals")
    path.write_bytes(b"me.example.org\na\0b\n")
    assert queuectl(home, "config", "check", code=1)[0] == "control/locals line 2: it holds a NUL byte\n"
    path.unlink()
    path.mkdir()
    assert queuectl(home, "config", "check", code=1)[0] == "control/locals: unable to read it: is a directory\n"
    path.rmdir()
    path.write_bytes(b"me.example.org\n")
    for contents, line in ((None, "control/me: it is missing or empty"), (b"\n", "control/me line 1: it is empty")):
        Path(home.control, "me").unlink()
        if contents is not None:
            Path(home.control, "me").write_bytes(contents)
        assert queuectl(home, "config", "check", code=1)[0] == f"{line}; write this host's name into it\n"
        Path(home.control, "me").write_bytes(b"\n")


def run(home: Home, *words: str) -> int:
    return main(["queuectl", "--home", home.path, "config", *words])


def test_every_control_file_is_shown_with_default_range_and_source(home: Home) -> None:
    Path(home.control, "timeoutremote").write_text("600\n")
    out, err = queuectl(home, "config")
    assert [line.split()[0] for line in out.splitlines()] == ["name", *(file.name for file in FILES)]
    (line,) = [line for line in out.splitlines() if line.startswith("timeoutremote")]
    assert line.split() == [
        "timeoutremote",
        "600",
        "1200",
        "s",
        "1",
        "to",
        "86400",
        "file",
        "time",
        "for",
        "each",
        "reply",
    ]
    assert "queue-send does not run; these values are in force at its start" in err


def test_only_what_differs_from_the_default_is_shown_with_n(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    Path(home.control, "smtpauth").write_text(":ann:secret\n")
    Path(home.control, "smtpauth").chmod(0o600)
    assert run(home, "-n", "--format", "json") == 0
    out = capsys.readouterr().out
    found = {each["name"]: each for each in map(json.loads, out.splitlines())}
    assert found.keys() == {"me", "locals", "smtpauth"}
    assert found["smtpauth"]["value"] == "1 line" and "secret" not in out


def test_the_default_that_is_the_name_of_this_host_is_shown_as_that(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, "show", "bouncehost", "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["value"], found["default"], found["source"]) == ("me.example.org (me)", "me", "default")


def test_check_names_each_mistake_and_each_unknown_file_and_exits_1(home: Home) -> None:
    assert queuectl(home, "config", "check") == ("", "")
    for name, text in {
        "concurencyremote": "5\n",
        "queuelifetime": "0\n",
        "virtualdomains": "a.example:a\nb.example\n",
        "tlspolicy": "a.example:perhaps\n",
        "smtpauth": ":ann:secret\n",
        "destinationlimits": "me.example.org concurrency=1\n",
        "mine": "x\n",
        "rcpthosts": "x\n.example.org\n@example.org\n",
        "badmailfrom": "a@b.example\n@b.example\n@\n",
        "smtpd": "*:25 mx\n*:2525 mx proxy\n",
        "locals~": "x\n",
        ".hidden": "x\n",
    }.items():
        Path(home.control, name).write_text(text)
    Path(home.control, "smtpauth").chmod(0o644)
    Path(home.control, "mine").chmod(0o666)
    out, _ = queuectl(home, "config", "check", code=1)
    lines = out.splitlines()
    expected = [
        "control/mine: everybody may write to it (mode 0666); chmod o-w",
        "control/queuelifetime line 1: not a number from 60 to 315360000: '0'",
        "control/virtualdomains line 2: it has no colon, and has no effect",
        "control/rcpthosts line 3: neither a domain nor .domain, so no recipient matches: '@example.org'",
        "control/badmailfrom line 3: neither an address nor @domain, so no sender matches: '@'",
        "control/tlspolicy line 1: ",
        "control/smtpauth: everybody can use it (mode 0644)",
        "control/destinationlimits line 1: mail for me.example.org is local",
        "control/smtpd line 2: port 2525 has option proxy, and control/proxyclients has no host; every client is ",
        "control/concurencyremote: there is no such control file; the nearest name is concurrencyremote",
        "control/mine: there is no such control file",
    ]
    assert len(lines) == len(expected), lines
    for line in expected:
        assert any(each.startswith(line) for each in lines), (line, lines)
    found = [json.loads(line) for line in queuectl(home, "config", "check", "--format", "json", code=1)[0].splitlines()]
    assert {"file": "queuelifetime", "line": 1, "fault": "not a number from 60 to 315360000: '0'"} in found


def test_check_names_patterns_of_localroutes_that_match_nothing(home: Home) -> None:
    lines = "list-*@example.org:\n*@example.org:lmtp:/l\nexample.com:lmtp:/l\n*.example.net:lmtp:/l\n"
    Path(home.control, "localroutes").write_text(lines)
    found = queuectl(home, "config", "check", code=1)[0].splitlines()
    why = "can match nothing; a pattern is name-*@domain or name+*@domain"
    why += ", and for all names there are domain and .domain"
    assert found == [
        f"control/localroutes line 2: '*@example.org' {why}",
        f"control/localroutes line 4: '*.example.net' {why}",
    ]


def test_check_names_classes_that_there_are_not_and_a_class_that_stands_twice(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines() -> list[str]:
        run(home, "check")
        return [line for line in capsys.readouterr().out.splitlines() if "class" in line]

    rules, listeners, classes = (Path(home.control, name) for name in ("priorityrules", "smtpd", "priorities"))
    rules.write_text("uid:1:bulk\n# slow\nuid:2:slow\nsender:@a.example:normal\n")
    listeners.write_text("127.0.0.1:25 mx\n127.0.0.1:26 mx priority=later\n127.0.0.1:27 mx priority=bulk\n")
    why = "there is no class {} in control/priorities, so it has no effect; the classes are {}"
    assert lines() == [
        f"control/priorityrules line 3: {why.format('slow', 'normal, bulk')}",
        f"control/smtpd line 2: {why.format('later', 'normal, bulk')}",
    ]
    classes.write_text("normal\nslow\nlater\n")
    assert lines() == [
        f"control/priorityrules line 1: {why.format('bulk', 'normal, slow, later')}",
        f"control/smtpd line 3: {why.format('bulk', 'normal, slow, later')}",
    ]
    # Which classes there are is not known then.
    classes.write_text("normal\nslow\nnormal\n")
    assert lines() == ["control/priorities line 3: a second class normal"]


def test_check_names_certificates_that_cannot_be_used_and_listeners_by_which_nobody_could_send(home: Home) -> None:
    control = Path(home.control)
    certificate, key = make_certificate(control)
    (control / "smtpd").write_text("*:25 mx\n*:465 submissions\n*:587 submission\n")
    assert queuectl(home, "config", "check", code=1)[0].splitlines()[:2] == [
        "control/smtpd line 2: role submissions needs a certificate, which control/smtpdcert would name",
        "control/smtpd line 3: only programs of this host may send by role submission: no AUTH is offered without a "
        "certificate, which control/smtpdcert would name",
    ]
    # Names without a slash are files in control/, which are not unknown then.
    (control / "smtpdcert").write_text(f":{certificate.name} {key.name}\n.example:/no/such.pem\n")
    nobody = "only programs of this host may send by role submissions: there are no users; queuectl passwd makes one"
    assert queuectl(home, "config", "check", code=1)[0].splitlines() == [
        "control/smtpdcert line 2: unable to use /no/such.pem: no such file or directory; it is not used",
        f"control/smtpd line 2: {nobody}",
        f"control/smtpd line 3: {nobody.replace('submissions', 'submission')}",
    ]
    (control / "smtpdcert").write_text(f":{certificate.name} {key.name}\n")
    queuectl(home, "passwd", "joe", given=b"secret\n")
    assert queuectl(home, "config", "check") == ("", "")
    (control / "smtpd").write_text("*:587 submission noauth\n")
    assert "may send by role submission: with `noauth`" in queuectl(home, "config", "check", code=1)[0]
    (control / "relayclients").write_text("192.0.2.1\n")
    assert queuectl(home, "config", "check") == ("", "")


def test_check_names_what_stands_behind_the_only_line_of_a_file(home: Home) -> None:
    control = Path(home.control)
    (control / "queuelifetime").write_text("86400\n# a week is too long\n\n604800\n3600\n")
    (control / "me").write_text("me.example.org\n# comment\n")
    (control / "queueminfree").write_text("32M \n\n")
    assert queuectl(home, "config", "check", code=1)[0].splitlines() == [
        "control/queuelifetime line 4: only the first line of this file counts; remove this one"
    ]


def test_check_names_all_faults_also_before_the_queues_are_made(home: Home) -> None:
    control = Path(home.control)
    second = f"{home.path}/second"
    (control / "queues").write_text(f"queue\n{second}\n")
    (control / "smtpdusers").write_text("")
    (control / "zzz").touch()
    output, errors = queuectl(home, "config", "check", code=1)
    assert output.splitlines() == [
        f"control/queues: {home.path}/run is not there; queuectl init makes it",
        f"control/queues line 2: {second} is not there; mount its disk, or queuectl --queue second init makes it",
        "control/zzz: there is no such control file",
    ]
    assert errors == ""


def test_check_names_queues_that_are_not_there(tmp_path: Path) -> None:
    home = make_several(tmp_path / "home", "a", "b", "c")
    assert queuectl(home, "config", "check") == ("", "")
    Path(home.control, "queues").write_text(f"# the disks\na\n\nb\n{tmp_path}/disk/c\n")
    shutil.rmtree(home.queues["b"] + "/mess")
    assert queuectl(home, "config", "check", code=1)[0].splitlines() == [
        f"control/queues line 4: {home.path}/b/mess is not there; mount its disk, or queuectl --queue b init makes it",
        f"control/queues line 5: {tmp_path}/disk/c is not there; mount its disk, or queuectl --queue c init makes it",
    ]


def test_check_names_domains_and_listeners_by_which_nobody_could_take_mail(home: Home) -> None:
    control = Path(home.control)
    (control / "smtpd").write_text("*:366 odmr\n")
    assert queuectl(home, "config", "check", code=1)[0].splitlines() == [
        "control/smtpd line 1: nobody can take mail by role odmr: control/ondemandusers says who may, and "
        "control/ondemand which domains are `atrn`",
    ]
    (control / "ondemand").write_text("a.example:atrn\nb.example:etrn\n")
    (control / "ondemandusers").write_text("joe:b.example,c.example\n")
    (control / "smtpd").write_text("*:25 mx\n*:366 odmr\n")
    assert queuectl(home, "config", "check", code=1)[0].splitlines() == [
        "control/smtpd line 2: nobody may take mail by role odmr: no AUTH is offered without a certificate, which "
        "control/smtpdcert would name",
        "control/ondemandusers line 1: 'b.example' has no line with `atrn` in control/ondemand, so its user gets 451",
        "control/ondemandusers line 1: 'c.example' has no line with `atrn` in control/ondemand, so its user gets 451",
        "control/ondemand line 1: 'a.example' has no user in control/ondemandusers, so nobody can take its mail",
    ]


def test_check_names_users_without_a_password_and_domains_on_demand_that_are_local(home: Home) -> None:
    control = Path(home.control)
    (control / "locals").write_text("mail.example.org\nA.example\n")
    (control / "virtualdomains").write_text(".example.net:joe\n")
    (control / "ondemand").write_text("a.example:etrn\nb.example.net:atrn\nc.example:atrn\n")
    (control / "ondemandusers").write_text("joe:b.example.net\nann:c.example\n")
    queuectl(home, "passwd", "ann", given=b"secret\n")
    assert queuectl(home, "config", "check", code=1)[0].splitlines() == [
        "control/ondemandusers line 1: there is no user 'joe' in control/smtpdusers; queuectl passwd makes one",
        "control/ondemand line 1: 'a.example' is local by control/locals, so nothing is stored for it; remove it from "
        "one of them",
        "control/ondemand line 2: 'b.example.net' is local by control/virtualdomains, so nothing is stored for it; "
        "remove it from one of them",
    ]
    (control / "checkpassword").write_text("/bin/true\n")
    assert "joe" not in queuectl(home, "config", "check", code=1)[0]


def test_check_names_domains_that_have_two_relays(home: Home) -> None:
    control = Path(home.control)
    (control / "ondemand").write_text("a.example:etrn relay [::1]:26\nb.example:etrn relay c\nc.example:etrn\n")
    (control / "smtproutes").write_text("A.example:d\n.example:d\nc.example:d\n:d\n")
    assert queuectl(home, "config", "check", code=1)[0].splitlines() == [
        "control/smtproutes line 1: 'a.example' has a relay in control/ondemand, so this line is not used; remove one "
        "of them"
    ]


def test_check_looks_at_the_program_that_knows_the_passwords(home: Home, tmp_path: Path) -> None:
    program = tmp_path / "check"
    line = Path(home.control, "checkpassword")
    line.write_text(f"{program} /bin/true\n")
    place = "control/checkpassword line 1"
    why = f"{place}: unable to run {program}: no such file or directory\n"
    assert queuectl(home, "config", "check", code=1)[0] == why
    program.mkdir()
    why = f"{place}: unable to run {program}: it is not a regular file\n"
    assert queuectl(home, "config", "check", code=1)[0] == why
    program.rmdir()
    program.write_text("#!/bin/sh\n")
    why = f"{place}: this user may not run {program}; chmod a+x allows it\n"
    assert queuectl(home, "config", "check", code=1)[0] == why
    program.chmod(0o755)
    assert queuectl(home, "config", "check") == ("", "")


def test_what_keeps_another_account_from_a_program_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    program = tmp_path / "check"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    other = Owner(os.getuid() + 12345, os.getgid() + 12345)
    denied = _first_denied(str(program), other)
    assert denied in map(str, program.parents) and not os.stat(denied).st_mode & 0o001
    assert _first_denied("/bin/true", other) == ""
    assert _first_denied(str(program), Owner(os.getuid(), os.getgid())) == ""


def test_set_takes_no_certificate_that_cannot_be_used(home: Home, tmp_path: Path) -> None:
    control = Path(home.control)
    certificate, key = make_certificate(control)
    _, err = queuectl(home, "config", "set", "smtpdcert", f":{certificate.name}", code=100)
    assert f"unable to use {certificate}: it has no private key in PEM; it is not used; nothing was changed" in err
    assert not (control / "smtpdcert").exists()
    queuectl(home, "config", "set", "smtpdcert", f":{certificate.name} {key.name}")
    assert (control / "smtpdcert").read_text() == f":{certificate.name} {key.name}\n"


def test_check_without_a_home_says_so_once(tmp_path: Path) -> None:
    gone = Home(str(tmp_path / "gone"))
    assert queuectl(gone, "config", "check", code=111) == (
        "",
        f"queuectl: fatal: unable to read {gone.control}: it is not there; queuectl init makes a home\n",
    )


def test_a_set_is_in_force_when_it_ends_and_the_log_says_what_changed(home: Home, suite: Suite) -> None:
    assert queuectl(home, "config", "set", "concurrencyremote", "40")[0] == (
        "control/concurrencyremote changed: in force\n"
    )
    suite.wait_for(r"^config concurrencyremote 40, was default$")
    assert listed(home, "-n").keys() == {"me", "locals", "concurrencyremote"}
    # queue-todo has these, and is waited for.
    assert queuectl(home, "config", "set", "locals", "me.example.org", "b.example")[0].endswith(": in force\n")
    suite.wait_for(r"^config locals 2 lines, was 1 line$")
    # By hand: the file says one thing, queue-send has another in force.
    Path(home.control, "concurrencyremote").write_text("50\n")
    found = listed(home)["concurrencyremote"]
    assert (found["value"], found["pending"], found["source"]) == ("40", "50", "running")
    # Another file is wrong: all old values stay, and the command says so.
    Path(home.control, "activelimit").write_text("0\n")
    _, err = queuectl(home, "config", "set", "concurrencylocal", "4", code=111)
    assert "control/concurrencylocal is changed, but not in force: queue-send: unable to parse" in err
    assert "activelimit line 1: not a number from 1 to 1000000: '0'" in err
    Path(home.control, "activelimit").unlink()
    queuectl(home, "config", "set", "--unset", "concurrencyremote")
    suite.wait_for(r"^config concurrencyremote default, was 40$")
    suite.wait_for(r"status: local 0/4 remote 0/250$")


def test_what_queue_remote_reads_is_in_force_when_the_set_ends_or_the_command_says_why_not(
    home: Home, suite: Suite
) -> None:
    for name, value in ("timeoutremote", "60"), ("smtproutes", ":relay.invalid"), ("tlspolicy", "a.example:none"):
        assert queuectl(home, "config", "set", name, value)[0] == f"control/{name} changed: in force\n"
        suite.wait_for(f"^queue-remote: config {name} .*, was default$")
    # Another file is wrong: queue-remote keeps its old values.
    policies = Path(home.control, "tlspolicy")
    policies.write_text("a.example:perhaps\n")
    _, err = queuectl(home, "config", "set", "timeoutremote", "90", code=111)
    assert "control/timeoutremote is changed, but not in force: queue-remote: unable to parse" in err
    policies.unlink()
    assert queuectl(home, "config", "set", "timeoutremote", "91")[0].endswith(": in force\n")
    # A change by hand, which queue-remote takes with its next job: what it said before is not told as in force.
    Path(home.control, "timeoutremote").write_text("92\n")
    assert listed(home)["timeoutremote"]["value"] == "92"


def test_srs_is_not_set_before_there_is_a_secret_and_check_says_when_it_is_gone(home: Home) -> None:
    _, error = queuectl(home, "config", "set", "srs", "srs.example.org", code=100)
    assert "control/srs: with it all forwards are deferred: unable to rewrite senders: " in error
    assert "srssecrets has no secret; `openssl rand -hex 32 | queuectl config set srssecrets -` makes a secret" in error
    assert not Path(home.control, "srs").exists()
    queuectl(home, "config", "set", "srssecrets", "-", given=b"x" * 64)
    secrets = Path(home.control, "srssecrets")
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o640
    assert secrets.stat().st_gid == os.stat(f"{home.queue}/mess").st_gid
    queuectl(home, "config", "set", "srs", "srs.example.org")
    secrets.chmod(0o644)
    assert "control/srs: with it all forwards are deferred" in queuectl(home, "config", "check", code=1)[0]
    # Without the domain nothing is deferred.
    queuectl(home, "config", "set", "--unset", "srs")
    assert "srs" not in queuectl(home, "config", "check", code=0)[0]


def test_a_secret_that_the_owner_of_the_queue_may_not_read_is_named(home: Home) -> None:
    need_root()
    os.chown(home.queue, 54321, 54321)
    secrets = Path(home.control, "srssecrets")
    secrets.write_text("x\n")
    secrets.chmod(0o600)
    _, error = queuectl(home, "config", "set", "srs", "srs.example.org", code=100)
    assert f"unable to read {secrets}: its owner or its group should be that of queue/" in error
    os.chown(secrets, -1, 54321)
    os.chown(f"{home.queue}/mess", -1, 54321)
    secrets.chmod(0o640)
    queuectl(home, "config", "set", "srs", "srs.example.org")


def test_what_queue_local_reads_is_in_force_when_the_set_ends_or_the_command_says_why_not(
    home: Home, suite: Suite
) -> None:
    for name, value in ("localtimeout", "60"), ("defaultdelivery", "./Mailbox"), ("locallimits", "files 500"):
        assert queuectl(home, "config", "set", name, value)[0] == f"control/{name} changed: in force\n"
    # Another file is wrong: queue-local keeps its old values.
    limits = Path(home.control, "locallimits")
    limits.write_text("files many\n")
    _, err = queuectl(home, "config", "set", "localtimeout", "90", code=111)
    assert "control/localtimeout is changed, but not in force: queue-local: unable to parse" in err
    limits.unlink()
    assert queuectl(home, "config", "set", "localtimeout", "91")[0].endswith(": in force\n")


def test_the_first_line_of_ondemand_is_not_in_force_before_queue_ondemand_runs(home: Home, suite: Suite) -> None:
    assert queuectl(home, "config", "set", "ondemand", "shop.example:etrn")[0] == (
        "control/ondemand changed: not in force yet; start the suite again, because queue-ondemand does not run\n"
    )
    assert queuectl(home, "config", "check", code=1)[0] == (
        "control/ondemand: queue-ondemand does not run, so nothing is stored; start the suite again\n"
    )
    suite.stop()
    assert queuectl(home, "config", "check") == ("", "")


def test_what_is_not_confirmed_is_not_told_as_in_force(home: Home, suite: Suite) -> None:
    for name, value, when in (
        ("processesremote", "2", "not in force yet; queue-start reads it when it starts the suite again"),
        ("defaulthost", "a.example", "each program that injects reads it before its next message"),
        ("localstoptimeout", "5", "queue-local reads it at the next stop"),
    ):
        assert queuectl(home, "config", "set", name, value)[0] == f"control/{name} changed: {when}\n"


def test_a_value_that_cannot_be_used_is_refused_and_nothing_is_changed(
    home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    for words, why in {
        (
            "queuelifetime",
            "0",
        ): "not a number from 60 to 315360000: '0' (allowed: 60 to 315360000); nothing was changed",
        ("smtproutes", "relay.example"): "control/smtproutes line 1: it has no colon, and has no effect",
        ("tlspolicy", "a.example:perhaps"): "control/tlspolicy line 1: not one of none, may, ",
        ("queuelifetme", "60"): "there is no control file queuelifetme; do you mean queuelifetime?",
        ("locals",): "config set needs either values or --unset",
        ("--unset", "me"): "unable to remove control/me: it has no default",
    }.items():
        assert run(home, "set", *words) == 100
        assert why in capfd.readouterr().err
    assert sorted(os.listdir(home.control)) == ["locals", "me"]


def test_a_changed_file_keeps_its_mode_and_one_of_secrets_is_not_for_all(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(home.control, "locals")
    path.chmod(0o640)
    assert run(home, "set", "locals", "a.example", "b.example") == 0
    assert path.read_text() == "a.example\nb.example\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert run(home, "set", "smtpauth", "relay.example.net:ann:se:cret") == 0
    assert stat.S_IMODE(Path(home.control, "smtpauth").stat().st_mode) == 0o640
    assert run(home, "set", "timeoutremote", "60") == 0
    assert stat.S_IMODE(Path(home.control, "timeoutremote").stat().st_mode) == 0o644
    assert sorted(os.listdir(home.control)) == ["locals", "me", "smtpauth", "timeoutremote"]
    assert capsys.readouterr().out.splitlines() == [
        "control/locals changed: queue-send does not run; in force at its start",
        "control/smtpauth changed: queue-send does not run; in force at its start",
        "control/timeoutremote changed: queue-send does not run; in force at its start",
    ]
    assert queuectl(home, "config", "check") == ("", "")


def test_a_value_that_cannot_be_used_is_not_shown_as_in_force_and_is_marked(home: Home) -> None:
    control = Path(home.control)
    (control / "timeoutremote").write_text("600\n")
    (control / "greylist").write_text("delay 5m\n")
    with Suite(home), SmtpdDaemon(home):
        wait_until(lambda: ask_processes(home, False).processes, 60, "queue-smtpd to answer")
        assert listed(home, "-n").keys() == {"me", "locals", "timeoutremote", "greylist", "smtpd", "relayclients"}
        (control / "timeoutremote").write_text("abc\n")
        (control / "queuelifetime").write_text("0\n")
        (control / "localtimeout").write_text("soon\n")
        (control / "greylist").write_text("delay soon\n")
        (control / "databytes").write_text("much\n")
        (control / "tlspolicy").write_text("a.example:perhaps\n")
        found = listed(home, "-n")
        for name, value in {
            "timeoutremote": "600",
            "queuelifetime": "604800 s",
            "localtimeout": "1200 s",
            "greylist": "1 line",
            "databytes": "0, none",
            "tlspolicy": "none",
        }.items():
            assert (found[name]["value"], found[name]["source"]) == (value, "running"), name
            assert found[name]["pending"] is None
            assert str(found[name]["trouble"]).startswith(f"control/{name} line 1: "), found[name]
        lines = queuectl(home, "config", "show", "timeoutremote")[0].splitlines()
        assert lines[1].split()[1] == "600"
        assert lines[2] == "  control/timeoutremote line 1: not a number from 1 to 86400: 'abc'"
    # What no daemon has: the default where queue-send takes that, and nothing else.
    found = listed(home, "-n")
    assert (found["queuelifetime"]["value"], found["queuelifetime"]["source"]) == ("604800 s", "default")
    assert (found["timeoutremote"]["value"], found["timeoutremote"]["source"]) == ("not usable", "file")
    assert found["timeoutremote"]["trouble"]


def test_check_names_the_file_that_is_at_fault_with_its_line(home: Home) -> None:
    control = Path(home.control)
    certificate, key = make_certificate(control)
    (control / "smtpdcert").write_text(f"# ours\n:{certificate} {key.name}\n.example:/no/such.pem\n")
    (control / "old.pem").write_text("x\n")
    (control / "locals").chmod(0o666)
    (control / "smtproutes").write_text(":d\na.example:d\n")
    (control / "ondemand").write_text("# ours\na.example:etrn relay c\nb.example:atrn\nme.example.org:etrn\n")
    (control / "ondemandusers").write_text("ann:c.example\njoe:d.example\n")
    (control / "smtpd").write_text("*:25 mx\n*:26 mx proxy\n")
    queuectl(home, "passwd", "ann", given=b"secret\n")
    found = queuectl(home, "config", "check", code=1)[0].splitlines()
    assert [line.partition(": ")[0] for line in found] == [
        "control/locals",
        "control/smtpdcert line 3",
        "control/ondemandusers line 1",
        "control/ondemandusers line 2",
        "control/ondemand line 3",
        "control/ondemandusers line 2",
        "control/ondemand line 4",
        "control/smtproutes line 2",
        "control/smtpd line 2",
        "control/old.pem",
    ]
    assert found[-1] == "control/old.pem: no line of control/smtpdcert, dkim, arc or tlspolicy names it"
    assert found[0] == "control/locals: everybody may write to it (mode 0666); chmod o-w"
