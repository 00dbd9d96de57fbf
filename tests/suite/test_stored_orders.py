"""The administrator's orders about stored mail, carried out by a running suite, or by the next one."""

import os
import re
import socket
import subprocess
from typing import Any

from queue_wire.admin.ondemand_socket import ETRN, LATER, STARTED
from support.local.good_mail import GoodMail
from support.processes.ondemand_client import ask
from support.processes.suite import Suite, enqueue, program, wait_until
from support.queues.letters import letter_text, token_of
from support.servers.smtp.sink import Sink

STORED = r"^ondemand customer\.example stored "


def send(mail: GoodMail, suite: Suite, *tokens: str) -> None:
    before = suite.count(STORED)
    for token in tokens:
        done = enqueue(mail.home, b"joe@me.example.org", [b"%s@customer.example" % token.encode()], letter_text(token))
        assert done.returncode == 0, done.stderr
        before += 1
        suite.wait_for(STORED, times=before)
        suite.wait_for(r"^end msg ", times=before)


def run_queuectl(mail: GoodMail, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [*program("queuectl"), "--home", mail.home.path, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def queuectl(mail: GoodMail, *words: str) -> list[str]:
    done = run_queuectl(mail, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def listed(mail: GoodMail) -> list[str]:
    """Return the long ids of what is stored, in order."""
    return [line.split()[0] for line in queuectl(mail, "stored", "customer.example")]


def test_stored_mail_is_deleted_returned_and_requeued_while_the_suite_runs(customer: GoodMail, port: int) -> None:
    with Suite(customer.home) as suite:
        send(customer, suite, "kept", "deleted", "returned", "again")
        kept, deleted, returned, again = listed(customer)
        shown = "\n".join(queuectl(customer, "show", kept))
        assert "; waits for its host to ask; no probe is planned\n  pending <kept@customer.example>" in shown

        assert queuectl(customer, "delete", deleted)== ["deleted 1 stored message of customer.example"]
        suite.wait_for(rf"^ondemand customer\.example done {deleted}: to deleted@customer\.example failure: deleted_by")
        done = queuectl(customer, "bounce", "--recipient", "returned@customer.example")
        assert done == ["bounced 1 stored message of customer.example"]
        suite.wait_for(rf"^ondemand customer\.example bounced {returned}: qp \d+")
        assert listed(customer) == [kept, again]

        # It goes back into the queue, where it is tried at once; now its host is there.
        with Sink(port) as sink:
            told, account = queuectl(customer, "requeue", again)
            assert account == "requeued 1 stored message of customer.example"
            new = re.fullmatch(rf"{again}: is (\d+)-[0-9a-z]+ now, from customer\.example", told)
            assert new is not None, told
            suite.wait_for(rf"^new msg {new[1]}$")
            suite.wait_for(rf"^ondemand customer\.example requeued {again}: qp \d+ to again@customer\.example")
            wait_until(lambda: len(sink.taken) >= 1, why="the requeued message")
            assert "again" in [token_of(taken.content) for taken in list(sink.taken)]


def test_an_order_is_carried_out_by_the_next_suite_and_what_is_on_hold_waits(customer: GoodMail, port: int) -> None:
    with Suite(customer.home) as suite:
        send(customer, suite, "held", "gone", "free")
        held, gone, _ = listed(customer)
        suite.kill()
    queuectl(customer, "hold", held, "--reason", "ask Jo")
    # queue-send may have been killed before it had removed the message.
    [account] = queuectl(customer, "delete", gone)
    assert account.endswith("1 stored message of customer.example when queue-ondemand comes to it")
    with Suite(customer.home) as suite, Sink(port) as sink:
        suite.wait_for(rf"^ondemand customer\.example done {gone}: ")
        suite.wait_for(r"^ondemand customer\.example ended: ")
        ask(customer.home, b"customer.example")
        suite.wait_for(r"^ondemand customer\.example ended: delivered 1 failed 0 deferred 0")
        assert [token_of(taken.content) for taken in list(sink.taken)] == ["free"]
        assert listed(customer) == [held]
        queuectl(customer, "release", held)
        ask(customer.home, b"customer.example")
        wait_until(lambda: len(sink.taken) == 2, why="the message that was on hold")
        wait_until(lambda: not queuectl(customer, "stored"), why="an empty store")


def test_a_domain_on_hold_stores_new_mail_without_an_attempt_and_is_not_delivered(
    customer: GoodMail, port: int
) -> None:
    with Suite(customer.home) as suite:
        send(customer, suite, "first")
        queuectl(customer, "hold", "--domain", "customer.example", "--reason", "moving")
        with Sink(port) as sink:
            send(customer, suite, "second")
            assert ask(customer.home, b"customer.example").word == LATER
            assert ask(customer.home, b"customer.example", ETRN, b"192.0.2.1").word == LATER
            assert queuectl(customer, "list", "--held", "--stored")[1].endswith("held: moving")
            flushed = run_queuectl(customer, "flush", "--domain", "customer.example")
            assert (flushed.returncode, flushed.stdout) == (1, "flushed 0 messages\n")
            assert flushed.stderr == (
                "customer.example is on hold as a whole; queuectl release --domain customer.example releases it\n"
            )
            assert not sink.taken
            queuectl(customer, "release", "--domain", "customer.example")
            # A request that had no effect does not count.
            assert ask(customer.home, b"customer.example", ETRN, b"192.0.2.1").word == STARTED
            suite.wait_for(r"^ondemand customer\.example ended: delivered 2 failed 0 deferred 0")
            assert [token_of(taken.content) for taken in list(sink.taken)] == ["first", "second"]


class Counting(Sink):
    """Counts the connections."""

    connections = 0

    def _begin(self, connection: socket.socket) -> Any:
        self.connections += 1
        return super()._begin(connection)


def test_a_domain_that_is_probed_while_it_is_on_hold_is_delivered_by_a_later_probe(
    customer: GoodMail, port: int
) -> None:
    customer.control("ondemand", "customer.example:etrn probe 1s\n")
    with Suite(customer.home) as suite:
        send(customer, suite, "waits")
        queuectl(customer, "hold", "--domain", "customer.example")
        with Counting(port) as sink:
            wait_until(lambda: sink.connections > 0, why="a probe")
            assert not sink.taken
            queuectl(customer, "release", "--domain", "customer.example")
            suite.wait_for(r"^ondemand customer\.example started: probe")
            suite.wait_for(r"^ondemand customer\.example ended: delivered 1 failed 0 deferred 0")


def test_the_first_message_of_a_class_is_stored_with_its_birth(customer: GoodMail) -> None:
    with Suite(customer.home) as suite:
        os.environ["QUEUE_PRIORITY"] = "bulk"
        try:
            send(customer, suite, "later")
        finally:
            del os.environ["QUEUE_PRIORITY"]
        [name] = listed(customer)
        assert not name.endswith("-0")
        assert queuectl(customer, "show", name)[0] == f"message: {name}"
