"""ETRN of clients, and the commands of the administrator, make a running suite deliver what is stored."""

import json
import subprocess

import pytest

from support.local.good_mail import GoodMail
from support.processes.suite import Suite, enqueue, program
from support.queues.letters import letter_text, token_of
from support.servers.smtp.sink import Sink
from support.smtpd.smtpd_daemon import SmtpdDaemon
from support.tools import need

STORED = r"^delivery \d+: success: stored_for_customer\.example"
ENDED = r"^ondemand customer\.example ended: delivered 1 failed 0 deferred 0"


def send(mail: GoodMail, suite: Suite, token: str, count: int = 1) -> None:
    done = enqueue(mail.home, b"joe@me.example.org", [b"ann@customer.example"], letter_text(token))
    assert done.returncode == 0, done.stderr
    suite.wait_for(STORED, times=count)


def tokens(sink: Sink) -> list[str]:
    return [token_of(taken.content) for taken in list(sink.taken)]


def test_a_client_asks_and_is_told_what_is_done(customer: GoodMail, port: int) -> None:
    with Suite(customer.home) as suite, SmtpdDaemon(customer.home) as smtpd:
        send(customer, suite, "asked")
        with smtpd.smtp() as client:
            assert client.ehlo()[0] == 250 and client.has_extn("etrn")
            assert client.docmd("ETRN", "other.example")[0] == 459
            assert client.docmd("ETRN", "two words")[0] == 501
            with Sink(port) as sink:
                assert client.docmd("ETRN", "Customer.Example")[0] == 250
                suite.wait_for(ENDED)
                assert tokens(sink) == ["asked"]
            assert client.docmd("ETRN", "@example")[0] == 251
            send(customer, suite, "later", 2)
            assert client.docmd("ETRN", "#customer.example")[0] == 458
        smtpd.wait_for(b"etrn Customer.Example: 250")
        smtpd.wait_for(b"refused ETRN other.example: 459_4.7.1_")
        assert suite.count(r"^ondemand customer\.example started: etrn") == 1


def test_without_queue_ondemand_a_client_is_told_to_come_again(customer: GoodMail) -> None:
    with SmtpdDaemon(customer.home) as smtpd, smtpd.smtp() as client:
        client.ehlo()
        assert client.docmd("ETRN", "customer.example")[0] == 458


def test_fetchmail_asks_in_its_etrn_mode(customer: GoodMail, port: int) -> None:
    words = [need("fetchmail"), "-f", "/dev/null", "--protocol", "ETRN", "--fetchdomains", "customer.example"]
    with Suite(customer.home) as suite, SmtpdDaemon(customer.home) as smtpd:
        send(customer, suite, "fetched")
        with Sink(port) as sink:
            command = [*words, "--service", str(smtpd.ports[0]), "127.0.0.1"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=customer.home.path)
            suite.wait_for(ENDED)
            assert tokens(sink) == ["fetched"], done.stderr


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["queuectl", "flush", "--domain", "customer.example"], id="flush"),
        pytest.param(["queuectl", "flush", "--all"], id="flush all"),
        pytest.param(["sendmail", "-qRcustomer.example"], id="sendmail"),
    ],
)
def test_the_administrator_has_it_delivered(customer: GoodMail, port: int, words: list[str]) -> None:
    environment = {"QUEUE_HOME": customer.home.path, "PATH": "/usr/bin:/bin"}
    with Suite(customer.home) as suite:
        send(customer, suite, "flushed")
        suite.wait_for(r"^end msg ")
        with Sink(port) as sink:
            command = [*program(words[0]), *words[1:]]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
            assert done.returncode == 0, done.stderr
            assert "delivering what is stored for 1 on-demand domain" in done.stdout
            suite.wait_for(ENDED)
            assert tokens(sink) == ["flushed"]


def queuectl(mail: GoodMail, *words: str, code: int = 0) -> str:
    command = [*program("queuectl"), "--home", mail.home.path, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_stored_mail_is_listed_and_deleted_and_returned_by_its_long_id(customer: GoodMail) -> None:
    with Suite(customer.home) as suite:
        assert queuectl(customer, "stored") == ""
        for number, token in enumerate(("kept", "deleted", "returned"), 1):
            send(customer, suite, token, number)
        suite.wait_for(r"^end msg ", times=3)

        [line] = queuectl(customer, "stored").splitlines()
        assert line.startswith("customer.example: 3 recipients of 3 messages, ")
        lines = queuectl(customer, "stored", "customer.example", "--format", "json").splitlines()
        found = [json.loads(line) for line in lines]
        assert [each["recipient"] for each in found] == ["ann@customer.example"] * 3
        kept, deleted, returned = (each["id"] for each in found)
        assert queuectl(customer, "stored", "Customer.Example", kept).split()[-2:] == [
            "joe@me.example.org", "ann@customer.example",
        ]  # fmt: skip
        queuectl(customer, "stored", "other.example", code=1)
        queuectl(customer, "stored", "customer.example", "1-1", "--delete", code=1)

        queuectl(customer, "stored", "customer.example", deleted, "--delete")
        suite.wait_for(rf"^ondemand customer\.example done {deleted}: to ann@customer\.example failure: deleted_by")
        suite.wait_for(r"^ondemand customer\.example ended: ")
        queuectl(customer, "stored", "customer.example", returned, "--bounce")
        suite.wait_for(rf"^ondemand customer\.example bounced {returned}: qp \d+")
        suite.wait_for(r"^ondemand customer\.example ended: ", times=2)
        assert [line.split()[0] for line in queuectl(customer, "stored", "customer.example").splitlines()] == [kept]


def test_messages_that_are_chosen_are_delivered_and_the_others_stay(customer: GoodMail, port: int) -> None:
    with Suite(customer.home) as suite:
        for number, token in enumerate(("first", "second", "third"), 1):
            send(customer, suite, token, number)
        suite.wait_for(r"^end msg ", times=3)
        lines = queuectl(customer, "stored", "customer.example").splitlines()
        first, second, third = (line.split()[0] for line in lines)
        with Sink(port) as sink:
            assert queuectl(customer, "flush", third, second).splitlines()[-1] == (
                "delivering 2 stored messages of 1 on-demand domain"
            )
            suite.wait_for(r"^ondemand customer\.example ended: delivered 2 failed 0 deferred 0")
            assert tokens(sink) == ["second", "third"]
            assert queuectl(customer, "stored", "customer.example").split()[0] == first
            queuectl(customer, "flush", "--sender", "joe@me.example.org", "--recipient", "ann@customer.example")
            suite.wait_for(ENDED)
            assert tokens(sink) == ["second", "third", "first"]
        queuectl(customer, "flush", first, code=1)
