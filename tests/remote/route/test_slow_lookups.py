"""The time that DNS takes is no time of the server's."""

import time
from pathlib import Path

import dns.message

from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.dns.dns_server import DnsServer
from support.servers.smtp.smtp_server import SmtpServer

SECONDS = 1.2


class SlowDnsServer(DnsServer):
    """Takes its time for each answer."""

    def _answer(self, query: dns.message.Message) -> dns.message.Message:
        time.sleep(SECONDS)
        return super()._answer(query)


def test_a_server_is_tried_although_its_address_took_the_time_of_a_job_to_find(tmp_path: Path) -> None:
    with SlowDnsServer({("relay.example", "A"): ["127.0.0.1"]}) as resolver, SmtpServer() as server:
        home = RemoteHome(tmp_path, resolver=f"127.0.0.1:{resolver.port}", timeoutconnect="1", timeoutremote="1")
        home.control("smtproutes", f":relay.example:{server.port}")
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(b"Subject: hello\n\nA message.\n"), b"to@b.example")
    assert report.verdicts[0][0] == b"K", report
