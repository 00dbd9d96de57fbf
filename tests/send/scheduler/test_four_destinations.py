"""A tarpit, a host that refuses and one that says 421 take nothing from a fast one. bench/fair measures the time."""

from support.plugins.amount import amount
from support.plugins.saying import Say
from support.servers.ports import refusing_port
from support.servers.smtp.four_hosts import FAST, SICK, Outcome, deliver
from support.servers.smtp.raw_server import Peer, RawServer
from support.servers.smtp.sink import Sink, Tarpit
from support.site import mail_site

EACH = amount(500, 1250)
WINDOW = 2  # destinationinitial
# A host that is not there fails windows of 2, 1 and 1 jobs; then it is dead. Two more may have been in flight.
ATTEMPTS_MAX = 6
# What comes beside the mail of the fast host is three times as much.
WORK_MAX = 2.5
TRIES = 4


def unavailable_at_connect(peer: Peer) -> None:
    """Greet with 421."""
    peer.say(b"421 4.3.2 too busy")
    peer.wait_for_end()


def unavailable_at_mail(peer: Peer) -> None:
    """Greet as if all were well, and answer MAIL with 421."""
    peer.greet()
    peer.hear()
    peer.say(b"421 4.3.2 closing")
    peer.wait_for_end()


def run(hosts: tuple[str, ...], each: int = EACH) -> Outcome:
    """Send `each` messages to every one of `hosts`; return once the fast one has its own."""
    with (
        mail_site() as site,
        Sink() as sink,
        Tarpit() as tarpit,
        refusing_port() as refusing,
        RawServer(unavailable_at_connect) as greeter,
        RawServer(unavailable_at_mail) as talker,
    ):
        ports = {
            "tarpit": tarpit.port,
            "refusing": refusing,
            "unavailable": greeter.port,
            "closing": talker.port,
            FAST: sink.port,
        }
        outcome = deliver(site, {host: ports[host] for host in hosts}, each)
        assert len(sink.taken) == each
    return outcome


def test_of_the_messages_for_a_fast_host_and_three_sick_ones_those_for_the_fast_one_go_at_once(say: Say) -> None:
    # Seconds depend on what else the machine does, CPU seconds less: that can add to them, and takes nothing away.
    alone, beside = [], []
    for _ in range(TRIES):
        alone.append(run((FAST,)))
        beside.append(run((*SICK, FAST)))
        work = [min(map(_work, outcomes)) for outcomes in (alone, beside)]
        # The others wait, or are deferred in time.
        if work[1] < WORK_MAX * work[0]:
            break
    say(f"{EACH} messages for a fast host: {alone[-1].seconds:.2f} s alone, {beside[-1].seconds:.2f} s beside others")
    for outcome in alone:
        assert outcome.attempts == {FAST: EACH}
    for outcome in beside:
        assert outcome.attempts.pop(FAST) == EACH
        # Until the fast host had all of its mail, the tarpit has kept two places, and the others were given up early.
        assert outcome.attempts.pop("tarpit") == WINDOW
        assert all(0 < attempts <= ATTEMPTS_MAX for attempts in outcome.attempts.values()), outcome.attempts
    assert work[1] < WORK_MAX * work[0], work


def _work(outcome: Outcome) -> float:
    """Return the CPU seconds of those who deliver."""
    return sum(outcome.cpu[name] for name in ("queue-send", "queue-remote"))


def test_a_host_that_says_421_to_mail_is_given_up_as_one_that_greets_so() -> None:
    beside = run(("closing", FAST), 200)
    assert beside.attempts[FAST] == 200
    assert 0 < beside.attempts["closing"] <= ATTEMPTS_MAX
