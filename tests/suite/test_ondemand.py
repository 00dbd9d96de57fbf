"""The suite with on-demand domains: mail that cannot be delivered is stored, and delivered when it is asked for."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from queue_wire.admin.ondemand_socket import EMPTY, ETRN, LATER, NO_LINE, ORDERS, STARTED, UNKNOWN, RunAnswer
from queue_wire.files.stored_order import DELETE_STORED
from support.faults.trouble import disk_free, disk_full, refusing
from support.local.good_mail import GoodMail
from support.processes.ondemand_client import ask
from support.processes.suite import Suite, enqueue, program, wait_until
from support.queues.inflow import patched_programs
from support.queues.letters import letter_text, token_of
from support.queues.queued import store_on_demand
from support.queues.stored_mail import order_about_all
from support.send.control import queuectl
from support.servers.smtp.sink import Sink
from support.tools import need, need_tracing

STORED = r"^delivery \d+: success: stored_for_customer\.example"
DONE = r"^ondemand customer\.example done "


def send(mail: GoodMail, token: str, *recipients: bytes, sender: bytes = b"joe@me.example.org") -> None:
    done = enqueue(mail.home, sender, list(recipients or [b"ann@customer.example"]), letter_text(token))
    assert done.returncode == 0, done.stderr


def stored(mail: GoodMail) -> list[str]:
    return os.listdir(f"{mail.home.queue}/ondemand")


def tokens(sink: Sink) -> list[str]:
    return [token_of(taken.content) for taken in list(sink.taken)]


def test_mail_for_a_host_that_is_down_is_stored_and_delivered_when_asked_for(customer: GoodMail, port: int) -> None:
    with Suite(customer.home) as suite:
        for number in range(5):
            send(customer, f"m{number}", b"ann@customer.example", b"bob@Customer.Example", b"eve@remote.example")
            suite.wait_for(r"^end msg ", times=number + 1)
        assert suite.count(STORED) == 10
        assert suite.count(r"^ondemand customer\.example stored \d+-\w+: bytes \d+ from <joe@me\.example\.org>") == 10
        assert stored(customer) == ["customer.example"]
        assert len(customer.sink.taken) == 5, "other recipients go on as usual"

        with Sink(port) as sink:
            assert ask(customer.home, b"customer.example").word == STARTED
            suite.wait_for(r"^ondemand customer\.example ended: delivered 10 failed 0 deferred 0")
        assert tokens(sink) == [f"m{number}" for number in range(5)]
        assert [len(taken.recipients) for taken in sink.taken] == [2] * 5
        assert suite.count(DONE) == 10
        wait_until(lambda: not stored(customer), why="an empty store")
        assert ask(customer.home, b"customer.example").word == EMPTY
        assert ask(customer.home, b"other.example").word == UNKNOWN
        shown = queuectl(customer.home, "stat").stdout
        assert f"\nqueue-ondemand: pid {suite.daemon('queue-ondemand')}, " in shown
        assert shown.count("\nqueue-remote: ") == 2


def test_what_is_stored_is_delivered_by_the_next_suite_after_a_kill(customer: GoodMail, port: int) -> None:
    with Suite(customer.home) as suite:
        send(customer, "before")
        suite.wait_for(STORED)
        wait_until(customer.site.is_empty, why="the end of the message")
        suite.kill()
    with Sink(port) as sink:
        with Suite(customer.home) as suite:
            assert ask(customer.home, b"customer.example").word == STARTED
            suite.wait_for(DONE)
        assert tokens(sink) == ["before"]
    assert not stored(customer)


def test_a_run_keeps_to_the_rate_of_its_domain_and_goes_on_by_itself(customer: GoodMail, port: int) -> None:
    customer.control("destinationrate", "customer.example:2/1\n")
    store_on_demand(customer.home, b"customer.example", [[b"u%d@customer.example" % number] for number in range(3)])
    with Sink(port) as sink, Suite(customer.home) as suite:
        asked = time.monotonic()
        assert ask(customer.home, b"customer.example").word == STARTED
        suite.wait_for(r"^ondemand customer\.example ended: delivered 3 failed 0 deferred 0")
        assert time.monotonic() - asked >= 1.0
        assert [taken.recipients for taken in sink.taken] == [[b"u%d@customer.example" % number] for number in range(3)]


def test_all_mail_for_a_domain_with_a_relay_goes_there(customer: GoodMail, port: int) -> None:
    # Of smtproutes the line of the domain is not used, nor is the one for all domains.
    customer.control("ondemand", f"customer.example:etrn probe 1s relay [127.0.0.1]:{port}\n")
    other = f"127.0.0.1:{customer.sink.port}"
    customer.control("smtproutes", f"customer.example:{other}\n:{other}\n")
    with Suite(customer.home) as suite:
        send(customer, "stored")
        suite.wait_for(STORED)
        with Sink(port) as sink:
            suite.wait_for(r"^ondemand customer\.example started: probe")
            suite.wait_for(r"^ondemand customer\.example ended: delivered 1 failed 0 deferred 0")
            send(customer, "at once")
            suite.wait_for(r"^delivery 2: success: 127\.0\.0\.1_accepted_message")
            assert tokens(sink) == ["stored", "at once"]
        assert not customer.sink.taken


def test_mail_of_a_domain_whose_line_is_removed_stays_stored_and_is_requeued(
    customer: GoodMail, port: int
) -> None:
    with Suite(customer.home) as suite:
        send(customer, "stays")
        suite.wait_for(STORED)
        customer.control("ondemand", "other.example:etrn\n")
        suite.signal(signal.SIGHUP)
        suite.wait_for(r"^queue-ondemand: alert: control/ondemand has no line for customer\.example; ")
        assert ask(customer.home, b"customer.example", ETRN, b"192.0.2.1") == RunAnswer(UNKNOWN, NO_LINE)
        command = [*program("queuectl"), "--home", customer.home.path]
        why = "customer.example has no line in control/ondemand any more"
        flushed = subprocess.run([*command, "flush", "--domain", "customer.example"], capture_output=True, text=True)
        assert flushed.returncode == 1 and flushed.stderr.startswith(why)
        listed = subprocess.run([*command, "stored", "customer.example"], capture_output=True, text=True, check=True)
        shown = subprocess.run([*command, "show", listed.stdout.split()[0]], capture_output=True, text=True, check=True)
        assert f"; {why}; queuectl requeue sends it by normal routing" in shown.stdout

        with Sink(port) as sink:
            subprocess.run([*command, "requeue", "--domain", "customer.example"], check=True)
            suite.wait_for(r"^delivery 2: success: 127\.0\.0\.1_accepted_message")
            assert tokens(sink) == ["stays"]


def test_what_fails_for_good_is_returned_and_what_is_deferred_stays(customer: GoodMail, port: int) -> None:
    with Suite(customer.home) as suite:
        send(customer, "three", b"refused@customer.example", b"never@customer.example", b"ann@customer.example")
        suite.wait_for(STORED, times=3)
        with Sink(port):
            ask(customer.home, b"customer.example")
            suite.wait_for(r"^ondemand customer\.example ended: delivered 1 failed 1 deferred 1")

        suite.wait_for(r"^ondemand customer\.example bounced \d+-\w+: qp \d+")
        wait_until(lambda: len(customer.site.delivered()) == 1, why="the bounce")
        [bounce] = customer.site.delivered()
        assert b"<refused@customer.example>:" in bounce and b"Action: failed" in bounce
        assert b"never@customer.example" not in bounce.partition(b"text/rfc822-headers")[0]
        assert stored(customer) == ["customer.example"]
        assert suite.count(r"^ondemand customer\.example stays \d+-\w+: to never@customer\.example deferral: ") == 1


def test_a_probe_finds_the_host_and_the_mail_is_delivered_by_itself(customer: GoodMail, port: int) -> None:
    customer.control("ondemand", "customer.example:etrn probe 1s\n")
    with Suite(customer.home) as suite:
        send(customer, "probed")
        suite.wait_for(STORED)
        with Sink(port) as sink:
            suite.wait_for(r"^ondemand customer\.example started: probe")
            suite.wait_for(r"^ondemand customer\.example ended: delivered 1 failed 0 deferred 0")
            assert tokens(sink) == ["probed"]


def test_while_the_host_is_down_no_further_attempt_is_made_for_new_mail(customer: GoodMail) -> None:
    with Suite(customer.home) as suite:
        send(customer, "first")
        suite.wait_for(STORED)
        send(customer, "second")
        suite.wait_for(STORED, times=2)

        assert suite.count(r"stored_for_customer\.example/The_host_could_not_be_reached_a_short_while_ago") == 1


def test_mail_that_is_too_old_is_returned_without_an_attempt(customer: GoodMail) -> None:
    with Suite(customer.home) as suite:
        send(customer, "old")
        suite.wait_for(STORED)
        suite.wait_for(r"^end msg ")
        suite.signal(signal.SIGTERM)
        suite.process.wait(60)
    customer.control("ondemand", "customer.example:etrn probe 1s expire 1s\n")
    with Suite(customer.home) as suite:
        suite.wait_for(r"^ondemand customer\.example done \d+-\w+: to ann@customer\.example failure: It_was_stored_for")
        wait_until(lambda: len(customer.site.delivered()) == 1, why="the bounce")
        wait_until(lambda: not stored(customer), why="an empty store")


def test_etrn_has_an_effect_once_in_its_interval(customer: GoodMail) -> None:
    with Suite(customer.home) as suite:
        send(customer, "one")
        suite.wait_for(STORED)

        assert ask(customer.home, b"#customer.example", ETRN, b"192.0.2.1").word == STARTED
        suite.wait_for(r"^ondemand customer\.example ended: delivered 0 failed 0 deferred 1")
        assert ask(customer.home, b"@example", ETRN, b"192.0.2.1").word == LATER
        assert ask(customer.home, b"customer.example").word == STARTED, "the administrator's has no limit"


def test_mail_over_the_size_of_its_domain_stays_in_the_queue_and_is_tried_as_other_mail(
    customer: GoodMail, port: int
) -> None:
    customer.control("ondemand", "customer.example:etrn probe never size 1\n")
    with Suite(customer.home) as suite:
        send(customer, "large")
        suite.wait_for(r"^delivery 1: deferral: .*/unable_to_store_it:_disk_quota_exceeded/")
        assert suite.count(STORED) == 0
        with Sink(port) as sink:
            suite.signal(signal.SIGALRM)
            suite.wait_for(r"^delivery 2: success: 127\.0\.0\.1_accepted_message")
            assert tokens(sink) == ["large"]


def test_a_run_opens_the_files_of_its_own_domain_alone(customer: GoodMail, port: int, tmp_path: Path) -> None:
    need_tracing()
    domains = [f"d{number}.example" for number in range(6)]
    customer.control("ondemand", "".join(f"{domain}:etrn probe never\n" for domain in domains))
    customer.control("smtproutes", f":127.0.0.1:{port}\n")
    trace, wanted = tmp_path / "trace", domains[3]
    with Suite(customer.home) as suite:
        send(customer, "each", *[f"{name}@{domain}".encode() for domain in domains for name in ("ann", "bob")])
        suite.wait_for(r"^delivery \d+: success: stored_for_", times=12)
        traced = [suite.daemon("queue-ondemand"), *suite.daemons("queue-remote", 2)]
        tasks = [word for pid in traced for word in ("-p", str(pid))]
        options = ["-f", "-qq", "-e", "signal=none", "-e", "trace=open,openat,openat2", "-o", str(trace)]
        tracer = subprocess.Popen([need("strace"), *options, *tasks], stderr=subprocess.DEVNULL)
        try:
            line = f"TracerPid:\t{tracer.pid}\n"
            wait_until(lambda: all(line in Path(f"/proc/{pid}/status").read_text() for pid in traced), why="strace")
            with Sink(port):
                assert ask(customer.home, wanted.encode()).word == STARTED
                suite.wait_for(rf"^ondemand {re.escape(wanted)} ended: delivered 2 failed 0 deferred 0")
        finally:
            tracer.terminate()
            tracer.wait()
    assert sorted(stored(customer)) == [domain for domain in domains if domain != wanted]
    opened = re.findall(r'"[^"]*ondemand/([^/"]+)([^"]*)"', trace.read_text())
    assert (wanted, "/1.cluster") in opened
    assert {domain for domain, _ in opened} == {wanted}


def test_a_run_whose_marks_fail_ends_so_that_little_is_delivered_twice(customer: GoodMail, port: int) -> None:
    with Suite(customer.home) as suite:
        for number in range(3):
            send(customer, f"m{number}")
            suite.wait_for(r"^end msg ", times=number + 1)
        keeper = suite.daemon("queue-ondemand")
        with Sink(port) as sink:
            # A disk that takes no changes is noticed before anything is delivered, a mark that fails after one message.
            with refusing(keeper, "fremovexattr", "EROFS"):
                ask(customer.home, b"customer.example")
                suite.wait_for(r"^ondemand customer\.example ended: delivered 0 failed 0 deferred 0")
            assert suite.count(r"warning: trouble marking cluster 1 of customer\.example: read-only file system") == 1
            assert not sink.taken
            disk_full(keeper)
            ask(customer.home, b"customer.example")
            suite.wait_for(r"^ondemand customer\.example ended: delivered 1 failed 0 deferred 0")
            disk_free(keeper)
            ask(customer.home, b"customer.example")
            suite.wait_for(r"^ondemand customer\.example ended: delivered 3 failed 0 deferred 0")
            assert tokens(sink) == ["m0", "m0", "m1", "m2"]


def test_an_order_whose_marks_fail_stays(customer: GoodMail) -> None:
    with Suite(customer.home) as suite:
        send(customer, "deleted")
        suite.wait_for(r"^end msg ")
        keeper = suite.daemon("queue-ondemand")
        orders = Path(customer.home.queue, "ondemand", "customer.example", "order")
        orders.mkdir(0o2750)
        (orders / "1").write_bytes(order_about_all(customer.home, b"customer.example", DELETE_STORED))
        disk_full(keeper)
        ask(customer.home, b"customer.example", ORDERS)
        suite.wait_for(r"^ondemand customer\.example ended: ")
        assert stored(customer) and [each.name for each in orders.iterdir()] == ["1"]
        disk_free(keeper)
        ask(customer.home, b"customer.example", ORDERS)
        wait_until(lambda: not stored(customer), why="an empty store")


def test_a_queue_ondemand_that_is_lost_is_started_again_and_other_mail_goes_on(customer: GoodMail, port: int) -> None:
    with Suite(customer.home) as suite:
        send(customer, "stored")
        suite.wait_for(r"^delivery \d+: success: stored_for_")
        keeper = suite.daemon("queue-ondemand")
        os.kill(keeper, signal.SIGSTOP)
        send(customer, "in flight")
        suite.wait_for(r"^starting delivery 2: ")
        os.kill(keeper, signal.SIGKILL)
        suite.wait_for(r"^alert: oh no! lost queue-ondemand connection! mail for its domains waits until it runs again")
        suite.wait_for(r"^delivery 2: deferral: queue-ondemand_does_not_run_at_the_moment")
        send(customer, "other", b"eve@remote.example")
        suite.wait_for(r"^delivery \d+: success: 127\.0\.0\.1_accepted_message")
        suite.wait_for(r"^warning: queue-ondemand was started again")
        suite.wait_for(r"^delivery \d+: success: stored_for_", times=2)
        with Sink(port) as sink:
            assert ask(customer.home, b"customer.example").word == STARTED
            suite.wait_for(r"^ondemand customer\.example ended: delivered 2 failed 0 deferred 0")
            assert sorted(tokens(sink)) == ["in flight", "stored"]
        assert suite.stop() == 0


def test_a_queue_ondemand_that_cannot_run_holds_up_no_other_mail(customer: GoodMail, tmp_path: Path) -> None:
    programs = patched_programs(tmp_path, queue_ondemand="import os; os._exit(1)")
    with Suite(customer.home, programs=programs) as suite:
        suite.wait_for(r"^alert: oh no! lost queue-ondemand connection!", times=2)
        send(customer, "one", b"ann@customer.example", b"eve@remote.example")
        suite.wait_for(r"^delivery \d+: success: 127\.0\.0\.1_accepted_message")
        suite.wait_for(r"^delivery \d+: deferral: queue-ondemand_does_not_run_at_the_moment")
        assert suite.stop() == 0


def test_a_queue_ondemand_that_is_not_understood_is_ended_and_started_again(
    customer: GoodMail, tmp_path: Path
) -> None:
    once = tmp_path / "once"
    code = f"""
import os
try:
    os.mkdir({str(once)!r})
except FileExistsError:
    pass
else:
    os.write(1, b"no netstring")
    while os.read(0, 1024):
        pass
    os._exit(0)
"""
    once.parent.chmod(0o777)
    with Suite(customer.home, programs=patched_programs(tmp_path, queue_ondemand=code)) as suite:
        suite.wait_for(r"^warning: internal error: queue-ondemand sent something impossible")
        suite.wait_for(r"^warning: queue-ondemand was started again")
        send(customer, "one")
        suite.wait_for(r"^delivery \d+: success: stored_for_")
        assert suite.count(r"^alert: oh no! lost ") == 1
        assert suite.stop() == 0


def test_without_the_process_that_starts_it_again_the_loss_of_queue_ondemand_ends_the_suite(customer: GoodMail) -> None:
    with Suite(customer.home) as suite:
        keeper = suite.daemon("queue-ondemand")
        guard = int(Path(f"/proc/{keeper}/stat").read_text().rpartition(")")[2].split()[1])
        assert guard != suite.process.pid
        os.kill(guard, signal.SIGKILL)
        os.kill(keeper, signal.SIGKILL)
        suite.wait_for(r"^alert: oh no! lost queue-ondemand connection! dying\.\.\.")
        assert suite.process.wait(30) == 111
