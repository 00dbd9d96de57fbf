"""Daemons killed with SIGKILL at random moments: every recipient gets every message, whole, and nothing is left."""

import os
import random
import time
from collections import Counter

import pytest

from queue_base.queue.layout import open_layout
from queue_clean.sweep import OLD, sweep
from support.faults.chaos import Rounds, Supervisor, drain, in_turn
from support.plugins.amount import amount
from support.plugins.saying import Say
from support.processes.suite import wait_until
from support.queues.letters import Letter, added_lines, delivered_to, token_of
from support.send.feeding import Bulk, bulk, by_enqueue, by_inject
from support.servers.smtp.sink import Sink
from support.site import LOCAL, Site

BOUNCING = "bounces-"
# How often each daemon is killed.
ROUNDS = amount(1, 2)

pytestmark = pytest.mark.home(concurrencyremote="40")


def make_letters(count: int, chance: random.Random) -> list[Letter]:
    """Return letters to one local recipient, to one to three remote ones, or to both."""
    letters = []
    for number in range(count):
        token = f"t{number}"
        kind = chance.choices(("local", "remote", "both"), (4, 4, 2))[0]
        remote = [f"{token}-{each}@host{chance.randrange(3)}.example" for each in range(chance.randint(1, 3))]
        local = [f"{token}@{LOCAL}"]
        recipients = {"local": local, "remote": remote, "both": local + remote}[kind]
        letters.append(Letter(token, f"sender@{LOCAL}", recipients))
    return letters


def arrivals(site: Site, sink: Sink) -> Counter[tuple[str, str]]:
    """Return how often each (token, recipient) arrived; fail where a message is not what was sent."""
    found: Counter[tuple[str, str]] = Counter()
    for message in site.delivered():
        recipient = delivered_to(message)
        if recipient.startswith(BOUNCING):
            found[recipient.partition("@")[0].removeprefix(BOUNCING), "bounce"] += 1
            continue
        lines = added_lines(message)
        assert [line.split()[0] for line in lines] == [b"Return-Path:", b"Delivered-To:", b"Received:"], lines
        found[token_of(message), recipient] += 1
    for taken in sink.taken:
        lines = added_lines(taken.content)
        assert [line.split()[0] for line in lines] == [b"Received:"], lines
        for address in taken.recipients:
            found[token_of(taken.content), address.decode()] += 1
    return found


def check_queue(site: Site) -> Counter[str]:
    """Fail where the queue holds more than a crash may leave; sweep that away, and fail where anything is left.

    An injector that dies leaves a message in S2 or S3, or a name in pid/. Nobody will ever try those, and the
    sweep takes them after 36 hours.
    """
    left = site.kinds()
    assert left.keys() <= {"mess", "intd", "pid"}, site.files()
    for _ in sweep(open_layout(site.home.queue), time.time() + 2 * OLD):
        pass
    assert site.files() == []
    return left


def tell(rounds: Rounds, supervisor: Supervisor, found: Counter[tuple[str, str]], left: Counter[str]) -> str:
    """Return what happened, for a person."""
    repeats = sum(found.values()) - len(found)
    killed = ", ".join(f"{name} {times}" for name, times in rounds.killed.items())
    return (
        f"killed: {killed}; {len(supervisor.runs)} starts; {len(found)} recipients, {repeats} repeats; "
        f"left to the sweep: {dict(left) or 'nothing'}"
    )


def kill_daemons(site: Site, sink: Sink, rounds: Rounds, count: int) -> tuple[str, int]:
    """Inject letters in step with the kills; check that all arrive; return what happened, and how many repeats."""
    letters = make_letters(count, rounds.random)
    expected = {(letter.token, recipient) for letter in letters for recipient in letter.recipients}
    share = -(-count // len(rounds.names))
    with Supervisor(site.home) as supervisor:
        for number, name in enumerate(rounds.names):
            first, second, *others = letters[number * share : (number + 1) * share]
            work = Bulk(site.home, others, group=rounds.random.randint(1, 8), pace=200)
            by_enqueue(site.home, first)
            by_inject(site.home, second)
            rounds.kill(supervisor, name)
            assert len(work.wait()) == len(others)
        drain(supervisor, site.is_empty)
        # No injector was killed, so nothing at all may be left.
        wait_until(lambda: site.files() == [], why="the queue to be empty")
        supervisor.stop()
        assert [line for line in supervisor.lines() if "corrupt" in line or "Traceback" in line] == []
    found = arrivals(site, sink)
    assert found.keys() - expected == set()
    assert expected - found.keys() == set()
    return tell(rounds, supervisor, found, check_queue(site)), sum(found.values()) - len(found)


@pytest.mark.long
def test_every_recipient_gets_its_message_while_each_daemon_and_then_all_at_once_are_killed(
    site: Site, say: Say
) -> None:
    with Sink() as sink:
        site.route(sink.port)
        told, _ = kill_daemons(site, sink, Rounds(2, in_turn(each=ROUNDS, together=2 * ROUNDS)), 500 * ROUNDS)
    say(told)


def test_the_loss_of_a_daemon_that_delivers_nothing_repeats_nothing(site: Site) -> None:
    rounds = Rounds(7, ["queue-todo", "queue-clean", "queue-pickup"] * amount(1, 3))
    with Sink() as sink:
        site.route(sink.port)
        told, repeats = kill_daemons(site, sink, rounds, 40 * len(rounds.names))
    # What was in flight when the daemon died was finished, and its verdicts were kept.
    assert repeats == 0, told


def test_a_supervisor_kills_no_run_that_has_ended_whose_number_may_be_anothers(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    real = os.killpg

    def kill(group: int, number: int) -> None:
        killed.append(group)
        real(group, number)

    with open(os.devnull, "wb") as log, Supervisor(site.home, log=log.fileno()) as supervisor:
        first = supervisor.current
        supervisor.kill("queue-send", 0, None)
        wait_until(lambda: supervisor.current is not first and supervisor.pid_of("queue-todo"), why="the second run")
        monkeypatch.setattr(os, "killpg", kill)
    assert killed == [supervisor.current.process.pid] != [first.process.pid]


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(10, 16))
def test_every_recipient_gets_its_message_in_many_more_rounds_of_kills(
    site: Site, seed: int, say: Say
) -> None:
    with Sink() as sink:
        site.route(sink.port)
        told, _ = kill_daemons(site, sink, Rounds(seed, in_turn(each=5, together=15)), 3000)
    say(told)


def test_what_an_injector_promised_arrives_and_what_bounces_is_told_when_injectors_are_killed_as_well(
    site: Site, say: Say
) -> None:
    rounds = Rounds(5, in_turn(each=0, together=amount(3, 5)))
    chance = rounds.random
    letters = make_letters(80 * len(rounds.names), chance)
    refused = [
        Letter(f"r{number}", f"{BOUNCING}r{number}@{LOCAL}", [f"refused{number}@host.example"])
        for number in range(4 * len(rounds.names))
    ]
    possible = {(letter.token, recipient) for letter in letters for recipient in letter.recipients}
    promised = {(letter.token, "bounce") for letter in refused}
    with Sink() as sink:
        site.route(sink.port)
        with Supervisor(site.home) as supervisor:
            for number, name in enumerate(rounds.names):
                bulk(site.home, refused[number * 4 : number * 4 + 4])
                share = letters[number * 80 : number * 80 + 80]
                works = [Bulk(site.home, share[part::4], group=part + 1, pace=60) for part in range(4)]
                rounds.kill(supervisor, name)
                rounds.kill_injectors(works)
                for work in works:
                    queued = {each.token for each in work.wait()}
                    promised |= {pair for pair in possible if pair[0] in queued}
            drain(supervisor, site.is_empty)
            supervisor.stop()
            assert [line for line in supervisor.lines() if "corrupt" in line or "Traceback" in line] == []
        found = arrivals(site, sink)
    assert promised - found.keys() == set()
    assert found.keys() - possible - promised == set()
    # A killed injector's message is queued for all of its recipients, or for none.
    begun = {token for token, _ in found}
    assert {pair for pair in possible if pair[0] in begun} - found.keys() == set()
    told = tell(rounds, supervisor, found, check_queue(site))
    say(f"{told}; {len(promised)} promised, {len(begun)} messages arrived")
