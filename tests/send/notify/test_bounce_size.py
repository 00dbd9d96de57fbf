"""A bounce of very many failures: composed in little time, in small steps, and of a size that can be sent."""

import email
import time
from typing import cast

import pytest

from queue_base.reports.bounce_report import BounceFacts, compose_steps
from queue_base.reports.dsn import LEFT_OUT
from support.send.bounce_text import compose_bounce

MANY = 20_000
LONG = (
    b"192.0.2.1 does not like recipient.\nRemote host said: 550-5.7.1 "
    + b"\n550-".join([b"x" * 880] * 3)
    + "\n550 5.7.1 nein, äh\x01\n".encode()
    + b"Giving up on 192.0.2.1.\n"
)
ADDRESSES = [b"user%d@lists.example.net" % number for number in range(MANY)]


@pytest.fixture(scope="module")
def facts() -> BounceFacts:
    return BounceFacts(
        me=b"me.example.org",
        bouncefrom=b"MAILER-DAEMON@me.example.org",
        recipient=b"a@example.org",
        sender=b"a@example.org",
        failures=[(address, LONG) for address in ADDRESSES],
        header=b"Subject: hello\n",
        birth=1_700_000_000,
        now=1_700_000_500,
        unique="1700000500.457.99.bounce",
    )


@pytest.fixture(scope="module")
def parts(facts: BounceFacts) -> list[bytes]:
    """The three parts of the bounce."""
    message = email.message_from_bytes(compose_bounce(facts))
    boundary = b"\n--" + str(message.get_boundary()).encode()
    return compose_bounce(facts).split(boundary)[1:4]


@pytest.mark.alone
def test_a_bounce_of_20000_long_failures_takes_a_fraction_of_a_second_of_cpu(facts: BounceFacts) -> None:
    taken = []
    for _ in range(3):
        start = time.process_time()
        compose_bounce(facts)
        taken.append(time.process_time() - start)
    assert min(taken) < 0.3


def test_a_bounce_of_20000_long_failures_is_no_more_than_4_mb(facts: BounceFacts) -> None:
    assert len(compose_bounce(facts)) <= 4_000_000


@pytest.mark.alone
def test_no_step_of_a_long_bounce_takes_long(facts: BounceFacts) -> None:
    # The best of several runs for each step: another process may have the CPU in one of them.
    runs = []
    for _ in range(3):
        steps, times = compose_steps(facts), []
        while True:
            start = time.process_time()
            piece = next(steps, None)
            times.append(time.process_time() - start)
            if piece is None:
                break
        runs.append(times)
    assert len(runs[0]) > MANY / 100
    assert max(map(min, zip(*runs, strict=True))) < 0.02


def test_every_address_of_a_long_bounce_is_in_both_lists_with_its_status(parts: list[bytes]) -> None:
    paragraphs = parts[0].split(b"\n\n")
    listed = [paragraph.partition(b"\n")[0] for paragraph in paragraphs if paragraph.startswith(b"<")]
    assert listed == [b"<%s>:" % address for address in ADDRESSES]
    status = cast(list[email.message.Message], email.message_from_bytes(parts[1][1:]).get_payload())
    blocks = [block for block in status if block["Final-Recipient"]]
    assert [block["Final-Recipient"] for block in blocks] == [f"rfc822; {address.decode()}" for address in ADDRESSES]
    assert {(block["Action"], block["Status"]) for block in blocks} == {("failed", "5.7.1")}


def test_a_long_bounce_has_the_first_reasons_and_says_how_many_it_leaves_out(parts: list[bytes]) -> None:
    intro, *paragraphs = parts[0].rstrip(b"\n").split(b"\n\n")[1:]
    reasons = [paragraph.partition(b"\n")[2] for paragraph in paragraphs]
    assert reasons[0].startswith(b"192.0.2.1 does not like recipient.\nRemote host said: 550-5.7.1 xxx")
    left_out = reasons.count(LEFT_OUT)
    assert MANY - 600 < left_out < MANY - 400
    assert reasons[-left_out:] == [LEFT_OUT] * left_out
    assert b"the last %d addresses stand without their reasons" % left_out in intro
    assert parts[1].count(b"Diagnostic-Code: smtp; 550-5.7.1 xxx") == parts[1].count(b"Diagnostic-Code:") > 400


def test_a_bounce_of_many_short_reasons_leaves_none_out(facts: BounceFacts) -> None:
    failures = [(address, b"Remote host said: 550 no\n") for address in ADDRESSES[:5000]]
    data = compose_bounce(facts._replace(failures=failures))
    assert data.count(b"Remote host said: 550 no") == data.count(b"Diagnostic-Code: smtp; 550 no") == 5000
    assert LEFT_OUT not in data and b"To keep this report short" not in data
