"""queuectl route: where mail for an address would go, and why, as queue-todo and queue-remote themselves decide."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_wire.control.registry import NO_COLON
from support.processes.forked import run_program
from support.processes.suite import program
from support.queues.home import make_home
from support.servers.dns.unbound import Unbound

ZONE = """
two         MX 20 far
            MX 10 near
            MX 30 me
            MX 40 beyond
near        A 198.51.100.1
            AAAA 2001:db8::1
far         A 198.51.100.2
null        MX 0 .
half        MX 10 broken
            MX 20 far
broken      CNAME broken2
broken2     CNAME broken
bare        A 198.51.100.3
"""


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unbound]:
    with Unbound(tmp_path_factory.mktemp("unbound"), {"example": ZONE}) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, resolver: Unbound) -> Home:
    home = make_home(tmp_path / "home")
    control(home, "me", "me.example")
    control(home, "resolver", resolver.address)
    Path(home.alias, ".qmail-default").write_text("./Maildir/\n")
    return home


def control(home: Home, name: str, text: str) -> None:
    Path(home.control, name).write_text(text + "\n")


def route(home: Home, *addresses: str) -> tuple[int, list[str], str]:
    """Return the exit code, the lines on stdout and what is on stderr."""
    done = run_program("queuectl", "--home", home.path, "route", *addresses)
    return done.returncode, done.stdout.decode().splitlines(), done.stderr.decode()


def test_remote_mail_is_told_step_by_step(home: Home) -> None:
    assert route(home, "joe@Two.example") == (
        0,
        [
            "joe@Two.example",
            "  neither locals nor virtualdomains have Two.example",
            "  remote: the nexthop is two.example",
            "  smtproutes: no line for it",
            "  MX 10 near.example: 198.51.100.1, 2001:db8::1",
            "  MX 20 far.example: 198.51.100.2",
            "  MX 30 me.example: this host (control/me): left out, with all at 30 or more",
            "  try 1: 198.51.100.1 (near.example) port 25",
            "  try 2: 2001:db8::1 (near.example) port 25",
            "  try 3: 198.51.100.2 (far.example) port 25",
            "  tls: no control/tlspolicy: TLS where it is offered, with any certificate, else in clear",
        ],
        "",
    )


def test_local_mail_for_an_lmtp_server_is_told_with_its_socket(home: Home) -> None:
    control(home, "virtualdomains", "v.example:vmail")
    control(home, "localroutes", "v.example:lmtp:/run/dovecot/lmtp\nboss@v.example:")
    control(home, "destinationlimits", "lmtp:/run/dovecot/lmtp concurrency=5")
    assert route(home, "joe@v.example") == (
        0,
        [
            "joe@v.example",
            "  virtualdomains: v.example:vmail",
            "  local: an LMTP server takes the mail of joe@v.example",
            "  localroutes: lmtp:/run/dovecot/lmtp",
            "  relay lmtp:/run/dovecot/lmtp: a Unix socket",
            "  try 1: /run/dovecot/lmtp, LMTP",
            "  tls 1: in clear: a Unix socket",
            "  limits: destinationlimits line 1: lmtp:/run/dovecot/lmtp concurrency=5",
        ],
        "",
    )
    assert "  local: queue-local delivers it as vmail-boss@v.example" in route(home, "boss@v.example")[1]


def test_a_route_is_told_with_its_line_and_its_relays(home: Home) -> None:
    control(home, "smtproutes", ".example:near.example:26, 198.51.100.9")
    control(home, "tlspolicy", "two.example:verify\n:may")
    assert route(home, "joe@two.example")[1][2:] == [
        "  remote: the nexthop is two.example",
        "  smtproutes: .example:near.example:26,198.51.100.9",
        "  relay near.example: 198.51.100.1, 2001:db8::1 port 26",
        "  relay 198.51.100.9: port 25",
        "  try 1: 198.51.100.1 (near.example) port 26",
        "  try 2: 2001:db8::1 (near.example) port 26",
        "  try 3: 198.51.100.9 port 25",
        "  tls: control/tlspolicy has two.example:verify",
        "  tls 1: required, with a certificate for near.example from a CA that is trusted, by verify",
        "  tls 2: required, with a certificate for near.example from a CA that is trusted, by verify",
        "  tls 3: required, with a certificate for 198.51.100.9 from a CA that is trusted, by verify",
    ]


def test_the_relay_of_a_domain_on_demand_precedes_that_of_smtproutes(home: Home) -> None:
    control(home, "smtproutes", "joe.example:192.0.2.1\n:192.0.2.2")
    control(home, "ondemand", "joe.example:etrn relay [2001:DB8::7]:2525\nann.example:atrn\neve.example:etrn")
    code, lines, _ = route(home, "a@Joe.example", "a@ann.example", "a@eve.example")
    assert code == 0
    shown = [line for line in lines if not line.startswith(("  neither", "  tls"))]
    assert shown == [
        "a@Joe.example",
        "  remote: the nexthop is joe.example",
        "  ondemand: joe.example:etrn; its mail is stored if the first attempt is deferred",
        "  ondemand: joe.example relay [2001:db8::7]:2525",
        "  relay 2001:DB8::7: port 2525",
        "  try 1: 2001:db8::7 port 2525",
        "a@ann.example",
        "  remote: the nexthop is ann.example",
        "  ondemand: ann.example:atrn; its mail is stored, and its host fetches it",
        "a@eve.example",
        "  remote: the nexthop is eve.example",
        "  ondemand: eve.example:etrn; its mail is stored if the first attempt is deferred",
        "  smtproutes: :192.0.2.2",
        "  relay 192.0.2.2: port 25",
        "  try 1: 192.0.2.2 port 25",
    ]


def test_users_and_programs_are_told_and_passwords_are_not(home: Home) -> None:
    control(home, "smtproutes", ".example:198.51.100.9")
    control(home, "smtpauth", "198.51.100.9:ann:secret")
    control(home, "remoteprogram", "/usr/bin/wrapper -v")
    os.chmod(f"{home.control}/smtpauth", 0o600)
    last = ["  auth: as ann (control/smtpauth)", "  program: /usr/bin/wrapper -v delivers it (control/remoteprogram)"]
    assert route(home, "joe@two.example")[1][-2:] == last
    os.chmod(f"{home.control}/smtpauth", 0o604)
    assert route(home, "joe@two.example")[1][-2].startswith("  auth: control/smtpauth is not used: everybody")


@pytest.mark.parametrize(
    ("address", "lines"),
    [
        ("joe", ["envnoathost: no host, so it is joe@me.example", "locals: me.example", "local: * as joe@me.example"]),
        ("joe@ME.example", ["locals: ME.example", "local: queue-local delivers it as joe@ME.example"]),
        (
            "joe%me.example@hack.example",
            ["percenthack: hack.example: *", "locals: me.example", "local: queue-local delivers it as joe@me.example"],
        ),
        (
            "joe@virtual.example",
            ["virtualdomains: virtual.example:ann", "local: queue-local delivers it as ann-joe@virtual.example"],
        ),
    ],
)
def test_local_mail_is_told_with_the_line_that_makes_it_local(home: Home, address: str, lines: list[str]) -> None:
    control(home, "virtualdomains", "virtual.example:ann")
    control(home, "percenthack", "hack.example")
    code, shown, _ = route(home, address)
    assert code == 0
    assert shown[len(lines) + 1].startswith("  alias/: ")
    for found, expected in zip(shown[1 : len(lines) + 1], lines, strict=True):
        begin, _, end = expected.partition("*")
        assert found.startswith("  " + begin) and found.endswith(end)


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("joe@nowhere.example", 100, "failure: Sorry, I couldn't find any host named nowhere.example. (#5.1.2)"),
        ("joe@null.example", 100, "failure: Sorry, null.example has a null MX"),
        ("two lines\n@bare.example", 100, "failure: SMTP cannot carry this address"),
        ("two\u00a0words@bare.example", 100, "failure: SMTP cannot carry this address: address holds U+00A0"),
        ("joe@broken.example", 111, "deferral: CNAME lookup failed temporarily. (#4.4.3) DNS: broken.example MX: "),
        ("joe@half.example", 0, "try 1: 198.51.100.2 (far.example) port 25"),
        ("joe@half.example.", 0, "try 1: 198.51.100.2 (far.example) port 25"),
        ("joe@me.example.", 0, "local: queue-local delivers it as joe@me.example"),
        ("joe@[198.51.100.7]", 0, "try 1: 198.51.100.7 port 25"),
        ("joe@[127.0.0.1]", 100, "mail loops back to me"),
    ],
)
def test_the_exit_code_says_whether_there_is_a_way(home: Home, address: str, code: int, words: str) -> None:
    found, lines, errors = route(home, address)
    assert (found, errors) == (code, "")
    assert any(words in line for line in lines)


def test_of_several_addresses_the_worst_counts_and_all_are_told(home: Home) -> None:
    code, lines, _ = route(home, "a@bare.example", "b@null.example", "c@broken.example", "d@me.example")
    assert code == 111
    assert [line[0] for line in lines if not line.startswith(" ")] == ["a", "b", "c", "d"]
    assert route(home, "b@null.example", "a@bare.example")[0] == 100


def test_json_is_one_object_for_each_address(home: Home) -> None:
    control(home, "virtualdomains", "no colon")
    code, shown, said = route(home, "--format", "json", "joe@me.example", "joe@null.example")
    assert (code, said) == (100, f"control/virtualdomains line 1: {NO_COLON}\n")
    local, remote = map(json.loads, shown)
    assert local.pop("steps")[0] == "locals: me.example"
    assert local == {"address": "joe@me.example", "channel": "local", "target": "joe@me.example", "code": 0}
    assert remote["steps"][1] == "remote: the nexthop is null.example"
    assert (remote["channel"], remote["code"]) == ("remote", 100)


def test_a_local_address_without_a_mailbox_is_told_as_a_failure(home: Home) -> None:
    Path(home.alias, ".qmail-default").unlink()
    code, shown, _ = route(home, "joe@me.example")
    assert (code, shown[-1]) == (100, "  failure: no mailbox here by that name")


@pytest.mark.parametrize("name", ["smtproutes", "resolver"])
def test_a_control_file_that_makes_no_sense_is_named(home: Home, name: str) -> None:
    control(home, name, ":a:b:c")
    code, _, errors = route(home, "joe@bare.example")
    assert code == 111
    assert f"{home.control}/{name}" in errors


def test_queue_remote_tells_of_one_nexthop_only(home: Home) -> None:
    words = [*program("queue-remote"), "--home", home.path, "--route"]
    for more in ([], ["a.example", "b.example"]):
        done = subprocess.run([*words, *more], capture_output=True, timeout=60)
        assert (done.returncode, done.stdout) == (100, b"")
        assert done.stderr.startswith(b"queue-remote: fatal: ")


def test_the_lines_that_limit_the_mail_are_told_with_those_of_its_relay(home: Home) -> None:
    control(home, "smtproutes", ":127.0.0.1:2525")
    control(home, "destinationlimits", "# mine\nbulk.example concurrency=5 rate=2/5\njoe@me.example concurrency=1")
    control(home, "destinationrate", "127.0.0.1:2525:100/60")

    def limits(address: str) -> list[str]:
        code, lines, _ = route(home, address)
        assert code == 0
        return [line.strip() for line in lines if "limits" in line]

    relay = "limits: destinationrate line 1: 127.0.0.1:2525 rate=100/60"
    assert limits("ann@Bulk.example") == [
        "limits: destinationlimits line 2: bulk.example concurrency=5 rate=2/5",
        f"{relay}, over all that goes by this relay",
    ]
    assert limits("ann@other.example") == [relay]
    assert limits("Joe@me.example") == ["limits: destinationlimits line 3: joe@me.example concurrency=1"]
    assert limits("ann@me.example") == ["limits: no line of destinationlimits or destinationrate is for it"]
    control(home, "destinationlimits", "bulk.example concurrency=0")
    [told] = limits("ann@Bulk.example")
    assert told.startswith("limits: not known: unable to parse ")
    assert "destinationlimits line 1: concurrency= has" in told


def test_without_lines_nothing_is_told_of_limits(home: Home) -> None:
    assert not [line for line in route(home, "joe@me.example", "joe@two.example")[1] if "limits" in line]


def test_lines_that_are_skipped_are_named_but_not_shown(home: Home) -> None:
    control(home, "virtualdomains", "a.example:a\nb.example")
    control(home, "smtproutes", "relay secret")
    code, lines, _ = route(home, "joe@me.example")
    assert code == 0
    assert lines[:2] == [
        "control/virtualdomains line 2: it has no colon, and has no effect",
        "control/smtproutes line 1: it has no colon, and has no effect",
    ]
