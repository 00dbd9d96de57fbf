"""What is wrong in a control file is told with the file, the line as an editor counts it, and what is allowed."""

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.control import read_control
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_base.queue.inflow import read_least
from queue_local.config import DeliveryFiles
from queue_remote.message.arc_key import ArcKey, read_arc_key
from queue_remote.message.dkim_keys import read_keyring
from queue_remote.smtpauth import read_logins
from queue_send.config import read_controls
from queue_wire.control.lines import numbered_lines, unpack_lines
from support.queues.home import make_home
from support.queues.queued import classified_message
from support.send.scripted_send import ScriptedSend
from support.servers.routes import read_config


def read_arc(home: Home) -> ArcKey:
    return read_arc_key(home, b"me.example")


LISTS: list[tuple[Callable[[Home], object], str, str, str]] = [
    (read_controls, "smtproutes", ":relay:port", "not a host or host:port: 'relay:port'"),
    (read_controls, "destinationlimits", "a.ex", "not name concurrency=, initial=, recipients= or rate=: 'a.ex'"),
    (read_controls, "destinationlimits", "a.ex most=3", "not concurrency=, initial=, recipients= or rate=: 'most=3'"),
    (read_controls, "destinationlimits", "a.example rate=5", "not a rate, messages/seconds, both from 1: '5'"),
    (read_controls, "destinationlimits", "a.example initial=1 initial=1", "initial= is there twice"),
    (
        read_controls,
        "destinationlimits",
        "a.example recipients=1001",
        "recipients= has not a number from 1 to 1000: '1001'",
    ),
    (read_controls, "destinationlimits", "a:b:c concurrency=1", "not a host or host:port: 'a:b:c'"),
    (read_controls, "destinationlimits", ". concurrency=1", "not the name of a domain, relay or recipient: '.'"),
    (read_controls, "destinationrate", "a.example:0/5", "not a rate, messages/seconds, both from 1: '0/5'"),
    (read_controls, "destinationrate", "2/5", "not nexthop:messages/seconds: '2/5'"),
    (read_controls, "delaywarning", "4h soon", "not a time: 'soon'"),
    (read_config, "smtproutes", "a.example:one two", "a route with a space or | in it"),
    (read_config, "helohost", "a.example:two words", "not a host name: 'two words'"),
    (read_config, "helohost", "two words", "not a host name: 'two words'"),
    (read_config, "outgoingip", "a.example:here", "not an IPv4 or IPv6 address: 'here'"),
    (read_config, "outgoingip", "nowhere", "not an IPv4 or IPv6 address: 'nowhere'"),
    (read_config, "resolver", "dns.example", "not an address, address:port or [address]:port: 'dns.example'"),
    (read_config, "resolver", "127.0.0.1:0", "not a host or host:port: '127.0.0.1:0'"),
    (read_config, "tlspolicy", "a.example", "not nexthop:level: 'a.example'"),
    (read_config, "tlspolicy", "a.ex:secure", "not one of none, may, encrypt, verify, implicit for level: 'secure'"),
    (read_logins, "smtpauth", "relay:ann", "not nexthop:user:password"),
    (read_keyring, "dkim", "a.example:2026", "not domain:selector:keyfile: 'a.example:2026'"),
    (read_keyring, "dkim", "a.example:s/t:key", "not a selector: 's/t'"),
    (read_arc, "arc", "a.example:2026", "not domain:selector:keyfile: 'a.example:2026'"),
    (read_arc, "arc", "a.example:s:key one two", "not domain:selector:keyfile authserv-id"),
    (read_config, "remoteprogram", "a.example:deliver", "not the whole path of a program: 'deliver'"),
    (read_logins, "smtpauth", "relay fast:ann:pw", "nothing but clear can stand between the nexthop and its colon"),
]
SINGLE: list[tuple[Callable[[Home], object], str, str, str]] = [
    (read_controls, "concurrencyremote", "many", "not a number from 0 to 32000: 'many'"),
    (read_controls, "destinationrecipients", "0", "not a number from 1 to 1000: '0'"),
    (read_controls, "destinationrecipients", "1001", "not a number from 1 to 1000: '1001'"),
    (read_controls, "destinationinitial", "0", "not a number from 1 to 1000000: '0'"),
    (read_controls, "destinationconcurrency", "0", "not a number from 1 to 1000000: '0'"),
    (read_controls, "destinationcohorts", "1000001", "not a number from 1 to 1000000: '1000001'"),
    (
        read_controls,
        "retryschedule",
        "now and then",
        "not quadratic, exponential MIN MAX, or times such as 90s, 15m, 2h, 1d: 'now'",
    ),
    (read_controls, "retryjitter", "-1", "not a number from 0 to 100: '-1'"),
    (read_config, "timeoutremote", "20m", "not a number from 1 to 86400: '20m'"),
    (read_config, "longlines", "cut", "not send, encode or fail: 'cut'"),
    (read_config, "me", "two words", "not a host name: 'two words'"),
    (read_least, "queueminfree", "16X", "not a size, a number with or without K, M, G or T behind it: '16X'"),
    (lambda home: DeliveryFiles(home).read(), "localtimeout", "1h", "not a number from 1 to 86400: '1h'"),
]


@pytest.mark.parametrize(("read", "name", "line", "why"), LISTS)
def test_a_line_that_is_wrong_is_named_with_its_number_in_the_file(
    home: Home, read: Callable[[Home], object], name: str, line: str, why: str
) -> None:
    path = Path(home.control, name)
    path.write_text(f"# {line}\n\n{line}\n")
    with pytest.raises(Temporary, match=f"^unable to parse {re.escape(f'{path} line 3: {why}')}"):
        read(home)


@pytest.mark.parametrize(("read", "name", "line", "why"), SINGLE)
def test_a_file_with_one_value_is_named_with_what_is_allowed(
    home: Home, read: Callable[[Home], object], name: str, line: str, why: str
) -> None:
    path = Path(home.control, name)
    path.write_text(f"{line}\n")
    with pytest.raises(Temporary, match=f"^unable to parse {re.escape(f'{path} line 1: {why}')}"):
        read(home)


def test_a_nul_byte_is_found_with_its_line(home: Home) -> None:
    path = Path(home.control, "locals")
    path.write_bytes(b"a.example\n\nb\0.example\n")
    with pytest.raises(Temporary, match=rf"^unable to parse {path} line 3: it holds a NUL byte$"):
        read_control(home, "locals")


@given(st.binary(max_size=200))
def test_the_number_of_a_line_is_that_of_an_editor(data: bytes) -> None:
    found = numbered_lines(data)
    assert [line for _, line in found] == unpack_lines(data)
    assert all(data.split(b"\n")[number - 1].rstrip(b" \t\r") == line for number, line in found)


@pytest.mark.parametrize("name", ["destinationrecipients", "destinationconcurrency", "destinationinitial"])
def test_a_number_out_of_its_range_is_an_alert_and_the_default_or_the_last_good_one_counts(
    tmp_path: Path, name: str
) -> None:
    home = make_home(tmp_path / "home")
    path = Path(home.control, name)
    path.write_text("0\n")
    why = rf"unable to parse {path} line 1: not a number from 1 to \d+: '0'"
    with ScriptedSend(home) as send:
        send.wait_for(rf"alert: {why}; the default is used until it is mended and HUP comes")
        send.control(name, "5\n")
        send.signal(signal.SIGHUP)
        send.fence()
        send.control(name, "0\n")
        send.signal(signal.SIGHUP)
        send.wait_for(rf"alert: unable to reread controls: {why}; the old ones stay")


def test_a_last_good_number_is_what_jobs_are_made_by(home: Home) -> None:
    with ScriptedSend(home) as send:
        send.fence()
        for text in ("2\n", "0\n"):
            send.control("destinationrecipients", text)
            send.signal(signal.SIGHUP)
            send.fence()
        send.wait_for("alert: .*")
        send.todo.classified(classified_message(home, remote=[b"%d@c.example" % number for number in range(5)]))
        assert len(send.remote.job().recipients) == 2
