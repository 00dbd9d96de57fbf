"""queuectl config set: of every setting it says when it is in force, and that is so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from queue_admin.metrics.smtpd_client import ask_processes
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_base.server_certificates import read_pem_files
from queue_local.config import DeliveryFiles
from queue_ondemand.ondemand_files import OnDemandFiles
from queue_remote.setup import CurrentSetup
from queue_send.config import read_controls
from queue_smtpd.config import read_config
from queue_todo.config import RuleFiles
from queue_wire.admin.settings import unpack_in_force
from queue_wire.control.control_file import CONNECTION, DELIVERY, HUP, NUMBER, SECOND, SIZE, ControlFile
from queue_wire.control.registry import FILES
from support.processes.forked import run_program
from support.processes.suite import Suite, wait_until
from support.queues.home import make_several
from support.servers.certificate import make_certificate
from support.smtpd.smtpd_daemon import SmtpdDaemon, free_ports

pytestmark = [pytest.mark.filterwarnings("ignore:unclosed"), pytest.mark.home(locals="me.example.org")]

LATER = "not in force yet; queue-start reads it when it starts the suite again"
INJECTORS = "each program that injects reads it before its next message"
KEEPER = "queue-ondemand does not run; it reads it when it starts"
SMTPD_START = "not in force yet; queue-smtpd reads it when it starts"
# What is not in force at once; `in force` of all others.
WHEN = {
    "defaulthost": INJECTORS,
    "defaultdomain": INJECTORS,
    "plusdomain": INJECTORS,
    "idhost": INJECTORS,
    "queueminfree": INJECTORS,
    "priorities": f"{INJECTORS}; queue-todo and queue-send when the suite is started again",
    "priorityrules": f"{INJECTORS}, queue-intake within a second",
    "intake": "not in force yet; queue-start opens the ports when it starts the suite again",
    "smtpd": SMTPD_START,
    "processessmtpd": SMTPD_START,
    "smtpdusers": "queue-smtpd reads it at the next AUTH",
    "processesremote": LATER,
    "queuefilesystem": LATER,
    "queues": LATER,
    "ondemand": "not in force yet; start the suite again, because queue-ondemand does not run",
    "etrninterval": KEEPER,
    "clustersize": KEEPER,
    "srssecrets": "in force; queue-local reads it for each forward",
    "localstoptimeout": "queue-local reads it at the next stop",
}
# A value of each file that is no number and no size; `{}` is where a certificate is.
VALUES = {
    "locals": "me.example.org",
    "virtualdomains": "a.example:joe",
    "intake": "127.0.0.1:1628 qmqp 192.0.2.0/24",
    "smtpd": "127.0.0.1:2525 mx",
    "smtpdlimits": "connections 50",
    "dnslists": "bl.example",
    "greylist": "delay 5m",
    "smtpdcert": ":{}",
    "checkpassword": "/bin/true",
    "submitters": "joe:joe@example.org",
    "relayrecipients": "ann@a.example",
    "badmailfrom": "@a.example",
    "relayclients": "192.0.2.0/24",
    "proxyclients": "192.0.2.1",
    "xclients": "192.0.2.1",
    "milters": "unix:/run/x",
    "headerfaults": "copy",
    "priorities": "normal",
    "priorityrules": "uid:1:bulk",
    "delaywarning": "4h",
    "retryschedule": "15m 30m",
    "destinationlimits": "a.example concurrency=1",
    "destinationrate": "a.example:1/1",
    "smtproutes": ":relay.invalid",
    "localroutes": "a.example:lmtp:/l",
    "ondemand": "a.example:etrn",
    "ondemandusers": "joe:a.example",
    "outgoingip": "127.0.0.1",
    "resolver": "127.0.0.1",
    "tlspolicy": "a.example:none",
    "smtpauth": "relay.example:joe:x",
    "remoteprogram": "/bin/true",
    "longlines": "fail",
    "locallimits": "files 500",
    "srssecrets": "x" * 64,
    "queues": "queue",
    "smtpdusers": "",
    "dkim": "",
    "arc": "",
}

DAEMONS = ("queue-send", "queue-todo", "queue-remote", "queue-local", "queue-ondemand", "queue-smtpd")


def config(home: Home, *words: str, code: int = 0) -> str:
    """Run queuectl config; return what it prints."""
    done = run_program("queuectl", "--home", home.path, "config", *words)
    assert done.returncode == code, (words, done)
    return (done.stdout or done.stderr).decode()


def value_of(file: ControlFile[Any], certificate: str) -> str:
    """Return a value of a file that can be used."""
    if file.shape in (NUMBER, SIZE):
        return file.range.split()[0]
    return VALUES.get(file.name, "b.example").format(certificate)


@pytest.mark.long
def test_of_every_setting_the_command_says_that_it_is_in_force_or_when_it_will_be(home: Home, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    both.chmod(0o600)
    with Suite(home), SmtpdDaemon(home) as daemon:
        wait_until(lambda: ask_processes(home, False).processes, 60, "queue-smtpd to answer")
        for file in FILES:
            if file.name == "srs":
                config(home, "set", "srssecrets", "x" * 64)
            said = config(home, "set", file.name, value_of(file, str(both)))
            assert said == f"control/{file.name} changed: {WHEN.get(file.name, 'in force')}\n"
            if file.name != "me":
                assert config(home, "set", "--unset", file.name).startswith(f"control/{file.name} removed: ")
        assert b"alert" not in daemon.log


def find_readers(home: Home) -> set[str]:
    """Return which daemons cannot use their control files, each by what reads those that count until it reads again."""

    def keeper() -> None:
        if why := unpack_in_force(OnDemandFiles(home).reread()).error:
            raise Temporary(why)

    reads: dict[str, Callable[[], object]] = {
        "queue-send": lambda: read_controls(home),
        "queue-todo": lambda: RuleFiles(home).read(),
        "queue-remote": lambda: CurrentSetup(home, "queue-remote").get(),
        "queue-local": lambda: DeliveryFiles(home).read(),
        "queue-ondemand": keeper,
        "queue-smtpd": lambda: (read_config(home), read_pem_files(home)),
    }
    found = set()
    for name, read in reads.items():
        try:
            read()
        except Temporary:
            found.add(name)
    return found


def test_the_registry_names_all_daemons_that_keep_what_they_have_read_of_a_file(home: Home) -> None:
    for file in FILES:
        path = Path(home.control, file.name)
        old = path.read_bytes() if path.exists() else None
        path.write_bytes(b"\0\n")
        if not {HUP, SECOND, DELIVERY, CONNECTION}.isdisjoint(file.read.split(", ")):
            # queue-local reads `me` for each forward, and queue-smtpd takes mail without smtproutes.
            named = {*DAEMONS} - {"queue-local"} if file.readers == ("all",) else {*DAEMONS} & {*file.readers}
            named -= {"queue-smtpd"} if file.name == "smtproutes" else set()
            assert find_readers(home) == named, file.name
        path.unlink() if old is None else path.write_bytes(old)


def test_what_queue_smtpd_reads_is_in_force_when_the_set_ends(home: Home) -> None:
    Path(home.control, "rcpthosts").write_text("a.example\n")
    Path(home.control, "processessmtpd").write_text("2\n")
    with SmtpdDaemon(home) as daemon:
        wait_until(lambda: len(ask_processes(home, False).processes) == 2, 60, "both processes")
        assert config(home, "set", "rcpthosts", "b.example") == "control/rcpthosts changed: in force\n"
        for _ in range(10):
            with daemon.smtp() as client:
                client.ehlo()
                client.mail("x@c.example")
                assert client.rcpt("x@a.example")[0] == 550
                assert client.rcpt("x@b.example")[0] != 550
        # Another file is wrong: the old values stay.
        Path(home.control, "greylist").write_text("delay soon\n")
        said = config(home, "set", "rcpthosts", "a.example", code=111)
        assert "control/rcpthosts is changed, but not in force: queue-smtpd: unable to parse" in said
        assert "greylist line 1: " in said
        with daemon.smtp() as client:
            client.ehlo()
            client.mail("x@c.example")
            assert client.rcpt("x@b.example")[0] != 550


def test_a_domain_that_is_made_local_is_so_for_queue_smtpd_too(home: Home) -> None:
    with Suite(home), SmtpdDaemon(home) as daemon:
        wait_until(lambda: ask_processes(home, False).processes, 60, "queue-smtpd to answer")
        config(home, "set", "checkrcpt", "0")
        assert config(home, "set", "locals", "b.example") == "control/locals changed: in force\n"
        with daemon.smtp() as client:
            client.ehlo()
            client.mail("x@c.example")
            assert client.rcpt("x@b.example")[0] == 250


def test_without_a_daemon_the_command_says_when_queue_smtpd_reads_a_file(home: Home) -> None:
    assert config(home, "set", "rcpthosts", "a.example") == (
        "control/rcpthosts changed: no queue-smtpd that runs as a daemon is found here; it reads the file when it "
        "starts and on HUP, and under a super-server for its next connection\n"
    )


def test_networks_of_an_open_port_are_in_force_at_once_and_a_new_port_is_not(home: Home) -> None:
    place = f"127.0.0.1:{free_ports(1)[0]}"
    Path(home.control, "intake").write_text(f"{place} qmqp 192.0.2.0/24\n")
    with Suite(home):
        assert config(home, "set", "intake", f"{place} qmtp 192.0.2.1") == "control/intake changed: in force\n"
        said = config(home, "set", "intake", f"{place} qmtp 192.0.2.1", "127.0.0.1:1628 qmqp 192.0.2.2")
        assert said == f"control/intake changed: {WHEN['intake']}\n"
        assert config(home, "set", "--unset", "intake") == "control/intake removed: in force\n"


def test_with_several_queues_the_command_says_when_the_service_of_queue_intake_reads_a_file(tmp_path: Path) -> None:
    several = make_several(tmp_path / "several", "a", "b")
    with Suite(several, options=("--queue", "a")):
        for name, value, when in (
            ("databytes", "1M", "queue-intake reads it within a second"),
            ("intake", "*:1628 qmqp 192.0.2.0/24", "queue-intake reads it on HUP to its service"),
        ):
            said = config(several, "set", name, value)
            other = "queue b: queue-send does not run; in force at its start"
            assert said == f"control/{name} changed: queue a: {when}; {other}\n"
