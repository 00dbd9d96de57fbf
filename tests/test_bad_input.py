"""Bad input and bad surroundings, with the whole suite running: each is refused or put aside, and good mail goes on."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from queue_wire.netstring import pack_netstring

from support.letters import letter_text, token_of
from support.sink import Sink
from support.site import LOCAL, Site, mail_site
from support.suite import Suite, enqueue, program, wait_until
from support.trouble import (
    disk_free,
    disk_full,
    held_to_permissions,
    nonsense_program,
    put_in_todo,
    run_enqueue,
)

REMOTE = b"somebody@remote.example"
HERE = b"somebody@me.example.org"
GOOD_ENVELOPE = b"Fjoe@me.example.org\0Tsomebody@me.example.org\0\0"


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink() as found:
        yield found


@pytest.fixture
def site(sink: Sink) -> Iterator[Site]:
    with mail_site() as found:
        found.route(sink.port)
        yield found


def send_good(site: Site, token: str) -> None:
    """Send a message to a local and a remote recipient."""
    done = enqueue(site.home, b"joe@me.example.org", [HERE, REMOTE], letter_text(token))
    assert done.returncode == 0, done.stderr


def check_good(site: Site, sink: Sink, token: str) -> None:
    """Wait until a message has come to both of its recipients."""
    wait_until(lambda: token in [token_of(message) for message in site.delivered()], why=f"the local {token}")
    wait_until(lambda: token in [token_of(taken.content) for taken in sink.taken], why=f"the remote {token}")


def check_alive(site: Site, sink: Sink, suite: Suite, token: str) -> None:
    """Show that the suite that runs takes and delivers mail."""
    assert suite.process.poll() is None
    send_good(site, token)
    check_good(site, sink, token)


def test_queue_inject_refuses_a_message_without_recipients_for_good(site: Site, sink: Sink) -> None:
    with Suite(site.home) as suite:
        done = subprocess.run(
            [*program("queue-inject"), "--home", site.home.path],
            input=b"Subject: for nobody\n\nhello\n",
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 100
        assert done.stderr.startswith(b"queue-inject: fatal: unable to send the message: it has no recipients")
        assert site.files() == []
        check_alive(site, sink, suite, "after-nobody")


def test_queue_enqueue_refuses_an_envelope_without_its_final_nul(site: Site, sink: Sink) -> None:
    with Suite(site.home) as suite:
        done = run_enqueue(site.home, letter_text("cut"), GOOD_ENVELOPE[:-1])
        assert done.returncode == 54
        assert done.stderr.count(b"\n") == 1
        assert b"closing NUL" in done.stderr
        assert site.files() == []
        check_alive(site, sink, suite, "after-cut")


def test_queue_enqueue_refuses_an_envelope_that_is_none(site: Site, sink: Sink) -> None:
    with Suite(site.home) as suite:
        done = run_enqueue(site.home, letter_text("none"), b"Tsomebody@me.example.org\0\0")
        assert done.returncode == 91
        assert site.files() == []
        check_alive(site, sink, suite, "after-none")


@pytest.mark.parametrize("place", ["sender", "recipient"])
def test_queue_enqueue_refuses_an_address_of_1004_bytes_for_good(site: Site, sink: Sink, place: str) -> None:
    long = b"a" * (1004 - len(b"@me.example.org")) + b"@me.example.org"
    envelope = b"F%s\0T%s\0\0" % ((long, HERE) if place == "sender" else (HERE, long))
    with Suite(site.home) as suite:
        done = run_enqueue(site.home, letter_text("long"), envelope)
        assert done.returncode == 11
        assert len(done.stderr) < 300
        assert site.files() == []
        check_alive(site, sink, suite, "after-long")


GARBAGE = {
    "no-nul": b"u0\0p1\0Fjoe@me.example.org\0Tsomebody@me.example.org",
    "unknown-record": b"u0\0p1\0Fjoe@me.example.org\0Xwhat\0",
    "no-sender": b"u0\0p1\0Tsomebody@me.example.org\0",
    "empty": b"",
    "newlines": b"u0\np1\nF\nT\n\0",
    "binary": bytes(range(256)) * 40,
}


@pytest.mark.parametrize("todo", GARBAGE.values(), ids=GARBAGE.keys())
def test_a_todo_file_of_garbage_is_parked_with_an_alert_and_others_go_on(
    site: Site, sink: Sink, request: pytest.FixtureRequest, todo: bytes
) -> None:
    token = f"beside-{request.node.callspec.id}"
    with Suite(site.home) as suite:
        number = put_in_todo(site.home, letter_text("garbage"), todo)
        send_good(site, token)
        suite.wait_for(rf"corrupt msg {number}: ")
        suite.wait_for(rf"alert: msg {number} cannot be read and is parked in corrupt: ")
        check_good(site, sink, token)
        suite.wait_for(r"end msg")
    # Nothing of it was touched, and nobody tried it.
    wait_until(lambda: len(site.files()) == 4, why="the good message to be removed")
    reason = Path(site.home.queue, "corrupt", str(number % 23), str(number)).read_text()
    assert reason.count("\n") == 1
    assert Path(site.home.queue, "todo", str(number % 23), str(number)).read_bytes() == todo
    assert suite.count(rf"new msg {number}$") == 0
    with Suite(site.home) as suite:
        check_alive(site, sink, suite, f"again-{token}")
        assert suite.count(rf"msg {number}") == 0


def test_queue_send_does_not_start_with_a_control_file_that_it_cannot_parse(site: Site, sink: Sink) -> None:
    path = site.control("concurrencyremote", "many\n")
    suite = Suite(site.home)
    assert suite.process.wait(30) == 111
    suite.stop()
    assert [line for line in suite.lines if "queue-send" in line] == [
        f"queue-send: alert: cannot start: unable to parse {path}: not a number: 'many'"
    ]
    path.write_text("5\n")
    with Suite(site.home) as suite:
        check_alive(site, sink, suite, "parsed")


def test_queue_send_does_not_start_with_a_control_file_that_it_may_not_read(site: Site, sink: Sink) -> None:
    path = site.control("concurrencyremote", "5\n")
    path.chmod(0)
    suite = Suite(site.home, wrapper=held_to_permissions())
    assert suite.process.wait(30) == 111
    suite.stop()
    assert [line for line in suite.lines if "queue-send" in line] == [
        f"queue-send: alert: cannot start: unable to read {path}: permission denied"
    ]
    path.chmod(0o644)
    with Suite(site.home) as suite:
        check_alive(site, sink, suite, "readable")


def test_control_files_that_cannot_be_read_at_hup_leave_the_old_ones_in_force(site: Site, sink: Sink) -> None:
    limit, hosts = site.control("concurrencyremote", "5\n"), site.control("locals", f"{LOCAL}\n")
    with Suite(site.home, wrapper=held_to_permissions()) as suite:
        check_alive(site, sink, suite, "first-controls")
        hosts.chmod(0)
        suite.signal(signal.SIGHUP)
        suite.wait_for(rf"alert: unable to reread controls: unable to read {hosts}: permission denied; the old ones stay")
        limit.write_text("-1\n")
        suite.signal(signal.SIGHUP)
        suite.wait_for(rf"alert: unable to reread controls: unable to parse {limit}: not a number: '-1'")
        check_alive(site, sink, suite, "old-controls")
        hosts.chmod(0o644)
        limit.write_text("6\n")
        suite.signal(signal.SIGHUP)
        suite.wait_for(r"status: local 0/10 remote 0/6")
        check_alive(site, sink, suite, "new-controls")


def test_nothing_is_classified_by_rules_that_cannot_be_read_until_they_can(site: Site, sink: Sink) -> None:
    hosts = site.control("locals", f"{LOCAL}\n")
    hosts.chmod(0)
    with Suite(site.home, wrapper=held_to_permissions()) as suite:
        send_good(site, "patient")
        suite.wait_for(rf"alert: unable to reread controls: unable to read {hosts}: permission denied; nothing is classified")
        assert suite.count("new msg") == 0
        hosts.chmod(0o644)
        suite.signal(signal.SIGHUP)
        check_good(site, sink, "patient")


def test_routes_that_cannot_be_parsed_defer_mail_and_bounce_none(site: Site, sink: Sink) -> None:
    site.control("smtproutes", ":127.0.0.1:port\n")
    with Suite(site.home) as suite:
        suite.wait_for(r"queue-remote: alert: unable to parse .*/smtproutes")
        send_good(site, "routed")
        suite.wait_for(r"^delivery \d+: deferral: ")
        wait_until(lambda: "routed" in [token_of(message) for message in site.delivered()], why="the local copy")
        site.route(sink.port)
        suite.signal(signal.SIGALRM)
        check_good(site, sink, "routed")
        suite.wait_for("end msg")
        assert suite.count("bounce|failure") == 0


def test_an_injector_on_a_full_disk_exits_53_and_leaves_nothing(site: Site, sink: Sink) -> None:
    with Suite(site.home) as suite:
        done = run_enqueue(site.home, b"Subject: large\n\n" + b"x" * 100_000, GOOD_ENVELOPE, largest_file=50_000)
        assert done.returncode == 53
        assert b"unable to write" in done.stderr
        assert b"file too large" in done.stderr
        assert site.files() == []
        check_alive(site, sink, suite, "after-full")


def test_queue_todo_on_a_full_disk_defers_with_a_warning_and_loses_nothing(site: Site, sink: Sink) -> None:
    with Suite(site.home) as suite:
        disk_full(suite.daemon("queue-todo"))
        send_good(site, "waits")
        suite.wait_for(r"warning: unable to classify msg \d+: .*file too large; will try again later")
        assert suite.count("new msg") == 0
        disk_free(suite.daemon("queue-todo"))
        check_alive(site, sink, suite, "beside-waits")
        assert suite.stop() == 0
    with Suite(site.home):
        check_good(site, sink, "waits")
        wait_until(lambda: site.files() == [], why="the queue to be empty")


def test_a_delivery_to_a_full_disk_is_deferred_and_leaves_nothing_in_the_maildir(site: Site, sink: Sink) -> None:
    with Suite(site.home) as suite:
        disk_full(suite.daemon("queue-local"))
        send_good(site, "kept")
        suite.wait_for(r"^delivery \d+: deferral: .*[Ff]ile_too_large")
        assert [path for path in site.maildir.rglob("*") if path.is_file()] == []
        disk_free(suite.daemon("queue-local"))
        suite.signal(signal.SIGALRM)
        check_good(site, sink, "kept")
        suite.wait_for("end msg")


def test_an_injector_that_may_not_write_to_the_queue_says_so_and_exits_with_a_temporary_code(
    site: Site, sink: Sink
) -> None:
    pid = Path(site.home.queue, "pid")
    pid.chmod(0o555)
    with Suite(site.home) as suite:
        done = run_enqueue(site.home, letter_text("shut"), GOOD_ENVELOPE, wrapper=held_to_permissions())
        assert done.returncode == 63
        assert done.stderr.startswith(f"queue-enqueue: fatal: unable to create {pid}/".encode())
        assert b"permission denied" in done.stderr
        assert site.files() == []
        pid.chmod(0o755)
        check_alive(site, sink, suite, "after-shut")


def test_mail_waits_with_a_warning_where_queue_todo_may_not_write(site: Site, sink: Sink) -> None:
    buckets = [*Path(site.home.queue, "info").iterdir()]
    with Suite(site.home, wrapper=held_to_permissions()) as suite:
        for bucket in buckets:
            bucket.chmod(0o555)
        send_good(site, "barred")
        suite.wait_for(r"warning: unable to classify msg \d+: .*/info/.*: permission denied; will try again later")
        for bucket in buckets:
            bucket.chmod(0o755)
        check_alive(site, sink, suite, "beside-barred")
    with Suite(site.home):
        check_good(site, sink, "barred")


def test_a_second_set_on_the_same_queue_is_refused_with_a_clear_line_and_the_first_goes_on(
    site: Site, sink: Sink
) -> None:
    with Suite(site.home) as suite:
        second = subprocess.run(
            [*program("queue-start"), "--home", site.home.path], capture_output=True, check=False, timeout=30
        )
        assert second.returncode == 111
        lock = f"{site.home.queue}/lock/sendmutex"
        assert second.stderr.decode() == (
            f"queue-start: alert: cannot start: unable to lock {lock}: queue-send is already running on this queue\n"
        )
        check_alive(site, sink, suite, "first")


def test_queue_send_by_itself_says_who_starts_it(site: Site, sink: Sink) -> None:
    with Suite(site.home) as suite:
        alone = subprocess.run(
            [*program("queue-send"), "--home", site.home.path], capture_output=True, check=False, timeout=30
        )
        assert alone.returncode == 100
        assert b"queue-start starts queue-send" in alone.stderr
        check_alive(site, sink, suite, "not-alone")


# What the daemon says first, and what the log says about it; after that the real one goes on.
HARMLESS = {
    "a report for an unknown job": (
        "queue-remote", pack_netstring(b"999\0m\0Kfine\n"), "warning: internal error: delivery report out of range",
    ),
    "a report with words for a number": (
        "queue-remote", pack_netstring(b"one\0m\0Kfine\n"),
        "warning: internal error: queue-remote sent something impossible",
    ),
    "a report of an unknown scope": (
        "queue-local", pack_netstring(b"1\0x\0Kfine\n"),
        "warning: internal error: queue-local sent something impossible",
    ),
    "an empty report": (
        "queue-local", pack_netstring(b""), "warning: internal error: queue-local sent something impossible",
    ),
    "an answer that nobody asked for": (
        "queue-clean", b"+", "warning: internal error: queue-clean sent something impossible",
    ),
    "an unknown notice": (
        "queue-todo", b"Zwhat\0", "warning: internal error: queue-todo sent something impossible",
    ),
    "a notice about a message that is not there": (
        "queue-todo", b"DR4711\0L4711 was here\0", "4711 was here",
    ),
    "a log line of two lines": (
        "queue-pickup", b"Lone\nalert: two\0", "warning: internal error: queue-pickup sent something impossible",
    ),
}


@pytest.mark.parametrize(("name", "said", "logged"), HARMLESS.values(), ids=HARMLESS.keys())
def test_a_daemon_that_talks_nonsense_is_logged_and_mail_goes_on(
    site: Site, sink: Sink, request: pytest.FixtureRequest, tmp_path: Path, name: str, said: bytes, logged: str
) -> None:
    token = request.node.callspec.id.replace(" ", "-")
    with Suite(site.home, programs=nonsense_program(tmp_path, name, said)) as suite:
        suite.wait_for(logged)
        check_alive(site, sink, suite, token)
        assert suite.count("^alert: two") == 0
        assert suite.count("Traceback") == 0


def test_a_report_with_too_many_verdicts_defers_its_delivery(site: Site, sink: Sink, tmp_path: Path) -> None:
    report = pack_netstring(b"2\0m\0Kone\n\0Ktwo\n\0Kthree\n")
    programs = nonsense_program(tmp_path, "queue-remote", report, answer=True)
    with Suite(site.home, programs=programs) as suite:
        # Delivery 1 is the local one, 2 the remote one.
        send_good(site, "mangled")
        suite.wait_for(r"^delivery 2: report mangled, will defer")
        suite.signal(signal.SIGALRM)
        check_good(site, sink, "mangled")


# What has no framing cannot be read on from; the set is started anew, and nothing is lost.
FATAL = {
    "no netstring": ("queue-remote", b"hello, this is queue-remote\n"),
    "an endless netstring": ("queue-local", b"99999999999:"),
    "a netstring without its comma": ("queue-remote", b"3:abc;"),
}


@pytest.mark.parametrize(("name", "said"), FATAL.values(), ids=FATAL.keys())
def test_a_daemon_whose_reports_have_no_framing_ends_the_set_and_the_next_one_delivers(
    site: Site, sink: Sink, request: pytest.FixtureRequest, tmp_path: Path, name: str, said: bytes
) -> None:
    token = request.node.callspec.id.replace(" ", "-")
    send_good(site, token)
    suite = Suite(site.home, programs=nonsense_program(tmp_path, name, said))
    assert suite.process.wait(30) == 111
    suite.stop()
    assert suite.count(f"warning: internal error: {name} sent something impossible") == 1
    assert suite.count(rf"alert: oh no! lost {name} connection! dying\.\.\.$") == 1
    assert suite.lines[-1] == "status: exiting" or suite.count("status: exiting") == 1
    with Suite(site.home):
        check_good(site, sink, token)
