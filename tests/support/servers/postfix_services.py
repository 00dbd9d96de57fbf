"""A Postfix with several services, each on a port of its own with options of its own, and deliveries to them."""

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from queue_wire.pipes.report import Report
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.processes.suite import wait_until
from support.servers.certificate import make_certificate
from support.servers.ports import free_ports
from support.servers.postfix import Postfix

TEXT = b"Subject: hello\n\nA message.\n.with a dot\n"
SIZE_LIMIT = 26 * 1024 * 1024
# What master.cf(5) says of a service that is named by its address.
SMTPD = "inet n - n - - smtpd"
POSTSCREEN = "inet n - n - 1 postscreen"
# What postscreen needs.
_MASTER = ["smtpd pass - - n - - smtpd", "dnsblog unix - - n - 0 dnsblog", "tlsproxy unix - - n - 0 tlsproxy"]


class Services:
    """`postfix` is the instance, `ports` are those of its services by name."""

    def __init__(self, postfix: Postfix, ports: Mapping[str, int]) -> None:
        self.postfix = postfix
        self.ports = ports

    def clear(self) -> None:
        """Forget the messages so far, those that are still on their way included."""
        self.postfix.settle()
        self.postfix.clear()

    def log_since(self, before: str, *events: str) -> str:
        """Return what Postfix has logged since, once that has all these events; without any, the session's end."""
        for event in events or ("disconnect from ",):
            wait_until(partial(self._has_logged, event, before), why=event)
        return self.postfix.log().removeprefix(before)

    def _has_logged(self, event: str, before: str) -> bool:
        return event in self.postfix.log().removeprefix(before)


@contextlib.contextmanager
def serve(services: Mapping[str, list[str]], directory: Path) -> Iterator[Services]:
    """Run Postfix with services by name: each is what master(5) runs and its options. TLS files go to `directory`."""
    ports = free_ports(*services)
    master = list(_MASTER)
    for name, (service, *options) in services.items():
        master += [f"127.0.0.1:{ports[name]} {service}", *[f"  -o {option}" for option in options]]
    certificate, key = make_certificate(directory)
    with Postfix(certificate=certificate, key=key, size_limit=SIZE_LIMIT, master=master) as postfix:
        yield Services(postfix, ports)


def deliver(home: RemoteHome, port: int, *recipients: bytes, text: bytes = TEXT, times: int = 1) -> list[Report]:
    """Run a job so many times, one after the other, by one daemon."""
    home.route_all_to(port)
    path = home.message(text)
    with RemoteDaemon(home) as daemon:
        reports = [daemon.deliver(path, *(recipients or [b"to@b.example"])) for _ in range(times)]
        assert daemon.end() == (0, b"")
    return reports


def letters(report: Report) -> bytes:
    """Return the verdicts' letters, in order."""
    return b"".join(letter for letter, _ in report.verdicts)
