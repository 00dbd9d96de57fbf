"""A stranger tries to relay through queue-smtpd of a running suite: nothing leaves but for the relayed domains."""

import smtplib
from itertools import product
from pathlib import Path

import pytest

from support.processes.suite import Suite, wait_until
from support.servers.smtp.smtp_server import SmtpServer
from support.site import LOCAL, Site
from support.smtpd.smtpd_daemon import SmtpdDaemon

VICTIM = "victim@elsewhere.example"
LOCAL_PARTS = ("joe", "victim%elsewhere.example", "elsewhere.example!victim", f'"{VICTIM}"', f'"{VICTIM}%{LOCAL}"')
DOMAINS = (
    *(LOCAL, LOCAL.upper(), "b\u00fccher.example", "b\uff55\u0308cher\uff0eexample", "XN--BCHER-KVA.example"),
    *("virtual.example", "away.sub.example", "x.sub.example", "backup.example", "h.below.example", "below.example"),
    *("[127.0.0.1]", "[IPv6:::ffff:127.0.0.1]", "[127.0.0.2]", "[IPv6:::1]", "elsewhere.example", "backup.example."),
)
FORMS = (
    *(f"<{local}@{domain}>" for local, domain in product(LOCAL_PARTS, DOMAINS)),
    *(f"<@{LOCAL},@{domain}:{VICTIM}>" for domain in DOMAINS),
    *(f"<{VICTIM}@{LOCAL}>", f'<"{VICTIM}">', f"<{VICTIM}>,<joe@{LOCAL}>", f"<{VICTIM}> <joe@{LOCAL}>"),
    *(VICTIM, "<victim>"),
)
LISTS = {"rcpthosts": f"{LOCAL}\nvirtual.example\nb\u00fccher.example\nbackup.example\n.below.example\n", "none": None}

pytestmark = pytest.mark.home(
    locals=f"{LOCAL}\nxn--bcher-kva.example",
    percenthack=f"{LOCAL}\nvirtual.example",
    virtualdomains="virtual.example:virt\n.sub.example:subs\naway.sub.example:",
    smtpdlimits="exempt 127.0.0.0/8",
)


@pytest.mark.parametrize("name", LISTS)
def test_no_form_of_an_address_takes_mail_of_a_stranger_elsewhere(site: Site, name: str) -> None:
    hosts = LISTS[name]
    if hosts is not None:
        site.control("rcpthosts", hosts)
    with SmtpServer() as elsewhere:
        site.route(elsewhere.port)
        with Suite(site.home), SmtpdDaemon(site.home) as daemon:
            wait_until(Path(site.home.queue, "intake", "socket").exists, 60, "queue-intake")
            accepted = 0
            for form in FORMS:
                with smtplib.SMTP("127.0.0.1", daemon.ports[0], timeout=60) as client:
                    client.ehlo()
                    client.docmd("MAIL FROM:<stranger@far.example> SMTPUTF8")
                    client.send(f"RCPT TO:{form}\r\n".encode())
                    if client.getreply()[0] == 250:
                        accepted += 1
                        assert client.data(b"Subject: x\r\n\r\nhello\r\n")[0] == 250
                daemon.said(b"")
            wait_until(site.is_empty, 60, "the queue to be empty")
        out = {recipient for message in elsewhere.received for recipient in message.recipients}
    assert out == ({"joe@backup.example", "joe@h.below.example"} if hosts is not None else set())
    assert accepted == len(elsewhere.received) + len(site.delivered()) > 20
