"""unbound from Debian as the resolver of a test, on a loopback port: it recurses through zones that the test writes.

So answers are what a resolver in the field says: CNAME chains are followed, NXDOMAIN and NODATA have their SOA, what
cannot be resolved is SERVFAIL, long answers come truncated and then by TCP.
"""

import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

import dns.exception
import dns.message
import dns.query

from support.servers.ports import free_port
from support.tools import need

DEADLINE = 60.0

_SERVER = """server:
    interface: 127.0.0.1@{port}
    port: {port}
    do-daemonize: no
    use-syslog: no
    logfile: ""
    username: ""
    chroot: ""
    directory: "{directory}"
    pidfile: ""
    do-not-query-localhost: no
    do-ip6: no
    module-config: "{modules}"
    target-fetch-policy: "0 0 0 0 0"
    num-threads: 1
    rrset-roundrobin: no
    local-zone: "ready.invalid" redirect
    local-data: "ready.invalid A 127.0.0.1"
{server}
remote-control:
    control-enable: no
"""
_ZONE = """auth-zone:
    name: "{name}"
    zonefile: "{path}"
    for-downstream: no
    for-upstream: yes
    fallback-enabled: no
"""
_HEAD = """$TTL 60
@ SOA ns hostmaster 1 3600 600 86400 30
@ NS ns
ns A 127.0.0.1
"""


class Unbound:
    """Runs from `with` on; `port` is its port (UDP and TCP), `address` is what control/resolver says.

    `zones` are {name: lines of a zone file}, which get a SOA and NS of their own where they have no SOA; two names
    that are each other's CNAME are SERVFAIL. Questions about names in `refused` are refused, those about names in
    `silent` get no answer. `server` are more lines for unbound.conf(5)'s server clause, `validate` turns DNSSEC on.
    """

    def __init__(
        self,
        directory: Path,
        zones: Mapping[str, str],
        *,
        refused: Iterable[str] = (),
        silent: Iterable[str] = (),
        server: Iterable[str] = (),
        validate: bool = False,
    ) -> None:
        self._program = need("unbound")
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._log = directory / "unbound.log"
        self._config = directory / "unbound.conf"
        lines = [*server, *(f'local-zone: "{name}" always_refuse' for name in refused)]
        lines += [f'local-zone: "{name}" always_deny' for name in silent]
        text = _SERVER.format(
            port=self.port,
            directory=directory,
            modules="validator iterator" if validate else "iterator",
            server="".join(f"    {line}\n" for line in lines),
        )
        # An empty root, so that nothing is asked of the world's.
        for name, records in {"": "", **zones}.items():
            path = directory / f"{name}.zone"
            path.write_text((f"$ORIGIN {name}.\n" + ("" if " SOA " in records else _HEAD)) + records + "\n")
            text += _ZONE.format(name=name or ".", path=path)
        self._config.write_text(text)

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [self._program, "-d", "-c", str(self._config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        end = time.monotonic() + DEADLINE
        question = dns.message.make_query("ready.invalid.", "A")
        while True:
            assert self._process.poll() is None, f"unbound ended: {self._log.read_text()}"
            assert time.monotonic() < end, f"unbound does not answer: {self._log.read_text()}"
            try:
                dns.query.udp(question, "127.0.0.1", port=self.port, timeout=0.05)
            except (OSError, dns.exception.Timeout):
                time.sleep(0.005)
            else:
                return self

    def __exit__(self, *exc: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
