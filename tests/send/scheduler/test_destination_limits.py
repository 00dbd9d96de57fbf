"""control/destinationlimits and destinationrate with queue-send as a process: domains, relays, both at once."""

import json
import re
import signal
from pathlib import Path

import pytest

from queue_base.home import Home
from support.local.good_mail import good_mail
from support.processes.suite import Suite, enqueue
from support.queues.letters import letter_text
from support.queues.queued import classified_message
from support.send.control import long_id, order, wait_for_backlog
from support.send.scripted_send import ScriptedSend

RELAY = "relay.example:2525"


pytestmark = pytest.mark.home(smtproutes=f":{RELAY}", destinationinitial="10")


def started(home: Home, **controls: str) -> ScriptedSend:
    """Return a queue-send that has read its backlog and these control files."""
    for name, text in controls.items():
        Path(home.control, name).write_text(text)
    send = ScriptedSend(home)
    send.fence()
    wait_for_backlog(home)
    return send


def arrived(home: Home, send: ScriptedSend, *domains: str) -> None:
    for domain in domains:
        send.todo.classified(classified_message(home, remote=[b"a@" + domain.encode()]))
    send.fence()


def jobs(send: ScriptedSend, count: int) -> list[str]:
    """Take so many jobs, and no more may be there; return their nexthops, sorted."""
    found = sorted(send.remote.job().nexthop.decode() for _ in range(count))
    send.fence()
    assert send.remote.silent
    return found


def test_a_rate_for_a_domain_holds_although_a_relay_takes_its_mail() -> None:
    with good_mail() as mail:
        mail.control("destinationrate", "rate.test:2/3600\n")
        with Suite(mail.home) as suite:
            for recipient in (b"a@rate.test", b"a@free.test"):
                for number in range(4):
                    done = enqueue(mail.home, b"joe@me.example.org", [recipient], letter_text(f"letter{number}"))
                    assert done.returncode == 0
            suite.wait_for(r"delivery \d+: success: ", times=6)
            sent = [taken.recipients[0] for taken in list(mail.sink.taken)]
            assert sent.count(b"a@rate.test") == 2 and sent.count(b"a@free.test") == 4
            assert suite.count("starting delivery .* a@rate.test") == 2


def test_a_line_limits_one_domain_and_leaves_the_others_of_its_relay_alone(home: Home) -> None:
    with started(home, destinationlimits="one.example concurrency=1\n") as send:
        arrived(home, send, *["one.example"] * 3, *["two.example"] * 3)
        assert jobs(send, 4) == ["one.example", *["two.example"] * 3]


def test_a_line_says_how_many_jobs_there_are_at_first_and_how_many_recipients_one_has(home: Home) -> None:
    with started(home, destinationlimits="one.example recipients=2 concurrency=3 initial=1\n") as send:
        send.todo.classified(classified_message(home, remote=[b"%d@one.example" % number for number in range(9)]))
        job = send.remote.job()
        send.fence()
        assert len(job.recipients) == 2 and send.remote.silent
        send.remote.report(job, b"Kok", b"Kok")
        # Its window has grown by one.
        assert [len(send.remote.job().recipients) for _ in range(2)] == [2, 2]
        send.fence()
        assert send.remote.silent


def test_each_domain_below_a_name_with_a_leading_dot_has_the_limits_for_itself(home: Home) -> None:
    with started(home, destinationlimits=".two.example rate=1/3600\n") as send:
        arrived(home, send, *["x.two.example"] * 2, *["y.two.example"] * 2, *["two.example"] * 2)
        assert jobs(send, 4) == ["two.example", "two.example", "x.two.example", "y.two.example"]


def test_the_limits_of_a_relay_hold_over_the_domains_that_have_their_own(home: Home) -> None:
    lines = f"one.example concurrency=2\n{RELAY} concurrency=3\n"
    with started(home, destinationlimits=lines) as send:
        arrived(home, send, *["one.example"] * 4, *["two.example"] * 4)
        found = [send.remote.job() for _ in range(3)]
        send.fence()
        assert send.remote.silent
        assert [job.nexthop for job in found].count(b"one.example") <= 2
        for job in found:
            send.remote.report(job, b"Kok")
        assert len(jobs(send, 3)) == 3


def test_the_rate_of_a_relay_counts_the_mail_of_all_its_domains(home: Home) -> None:
    with started(home, destinationlimits=f"one.example rate=2/3600\n{RELAY} rate=3/3600\n") as send:
        arrived(home, send, *["one.example"] * 4)
        assert jobs(send, 2) == ["one.example"] * 2
        arrived(home, send, *["two.example"] * 4, "one.example")
        assert jobs(send, 1) == ["two.example"]


def test_a_relay_is_named_whatever_its_case_and_with_its_port_or_without(home: Home) -> None:
    Path(home.control, "smtproutes").write_text("a.example:Relay.example\nb.example:relay.example:25\n")
    with started(home, destinationlimits="RELAY.example:25 concurrency=1\n") as send:
        arrived(home, send, "a.example", "b.example", "a.example")
        assert len(jobs(send, 1)) == 1


def test_a_domain_that_goes_by_mail_exchangers_has_its_line_too(home: Home) -> None:
    Path(home.control, "smtproutes").write_text("")
    with started(home, destinationlimits="One.Example. concurrency=1\n") as send:
        arrived(home, send, *["one.example"] * 2, *["two.example"] * 2)
        assert jobs(send, 3) == ["one.example", "two.example", "two.example"]


def test_a_local_recipient_has_a_line(home: Home) -> None:
    lines = "joe@me.example concurrency=1\n"
    with started(home, locals="me.example\n", destinationlimits=lines) as send:
        for name in (b"joe", b"joe", b"ann", b"ann"):
            send.todo.classified(classified_message(home, local=[name + b"@me.example"]), "L")
        send.fence()
        assert sorted(send.local.job().recipients[0] for _ in range(3)) == [
            b"ann@me.example", b"ann@me.example", b"joe@me.example",
        ]  # fmt: skip
        send.fence()
        assert send.local.silent and not send.found("warning: .*")


def test_hup_brings_new_limits_to_what_waits_already(home: Home) -> None:
    with started(home, destinationlimits="one.example rate=1/3600\n") as send:
        arrived(home, send, *["one.example"] * 3)
        assert jobs(send, 1) == ["one.example"]
        send.control("destinationlimits", "one.example concurrency=2\n")
        send.signal(signal.SIGHUP)
        assert jobs(send, 1) == ["one.example"]  # No rate any more, and two at once.
        send.control("destinationlimits", f"one.example concurrency=1\n{RELAY} concurrency=4\n")
        send.signal(signal.SIGHUP)
        arrived(home, send, "two.example", *["one.example"] * 3, *["two.example"] * 3)
        assert jobs(send, 2) == ["two.example"] * 2


def test_a_lower_concurrency_holds_from_hup_on_and_not_only_after_the_next_success(home: Home) -> None:
    with started(home) as send:
        arrived(home, send, *["one.example"] * 5)
        first = [send.remote.job() for _ in range(5)]
        send.control("destinationconcurrency", "2\n")
        send.signal(signal.SIGHUP)
        arrived(home, send, *["one.example"] * 5)
        for job in first[:3]:
            send.remote.report(job, b"Zlater")
        send.fence()
        assert send.remote.silent
        send.remote.report(first[3], b"Zlater")
        assert jobs(send, 1) == ["one.example"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (r"other.example:2525 concurrency=1", r"smtproutes has no route to other\.example:2525"),
        (r"here.example concurrency=1", r"mail for here\.example is local, by locals or virtualdomains"),
        (r".virtual.example rate=1/5", r"mail for \.virtual\.example is local, by locals or virtualdomains"),
        (r"joe@far.example recipients=1", r"no local recipient can be joe@far\.example, by locals and virtualdomains"),
        (
            r"10.0.0.1:26 concurrency=1",
            r"smtproutes has no route to 10\.0\.0\.1:26 alone; "
            r"several relays are named together: 10\.0\.0\.1:26,10\.0\.0\.2",
        ),
        (
            "one.example concurrency=1\n\none.example concurrency=2",
            r"another line sets the same for one\.example, and that one counts",
        ),
    ],
)
def test_a_line_that_can_match_nothing_is_a_warning_at_the_start_and_at_hup(home: Home, line: str, why: str) -> None:
    Path(home.control, "smtproutes").write_text(f"many.example:10.0.0.1:26,10.0.0.2\n:{RELAY}\n")
    Path(home.control, "locals").write_text("me.example\nhere.example\n")
    Path(home.control, "virtualdomains").write_text(".virtual.example:joe\n")
    lines = f"# limits\n\n{line}\n{RELAY} concurrency=5\njoe-x@y.virtual.example concurrency=1\n"
    warning = rf"warning: unable to use control/destinationlimits line 3: {why}; the line has no effect"
    with started(home, destinationlimits=lines) as send:
        send.wait_for(warning)
        send.signal(signal.SIGHUP)
        send.wait_for(warning, times=2)
        send.fence()
        assert len(send.found("warning: .*")) == 2


def test_lines_that_can_match_are_no_warning(home: Home) -> None:
    controls = {
        "locals": "me.example\n",
        "virtualdomains": "virtual.example:joe\nout.virtual.example:\n.virtual.example:joe\n:\n",
        "smtproutes": f"many.example:one,two+three:26\n:{RELAY}\nvirtual.example:[2001:db8::1]:26\n",
        "destinationlimits": "me2.example rate=1/2\n.virtual.example initial=1\njoe-ann@virtual.example initial=1\n"
        "ANN@me.example initial=1\none,three:26+Two concurrency=1\n[2001:DB8::1]:26 concurrency=1\n",
        "destinationrate": "one.example:1/2\nme2.example2:2/5\n[192.0.2.1]:2/5\n",
    }
    with started(home, **controls) as send:
        assert send.found("(warning|alert): .*") == []


def test_a_rate_is_added_to_a_line_of_destinationlimits_that_has_none(home: Home) -> None:
    rates = "one.example:1/3600\ntwo.example:1/3600\n"
    limits = "one.example concurrency=5\n# two\ntwo.example rate=2/3600\n"
    with started(home, destinationlimits=limits, destinationrate=rates) as send:
        send.wait_for(
            r"warning: unable to use control/destinationrate line 2: another line sets the same for two\.example, "
            r"and that one counts; the line has no effect"
        )
        arrived(home, send, *["one.example"] * 2, *["two.example"] * 3)
        assert jobs(send, 3) == ["one.example", "two.example", "two.example"]
        shown = {each["nexthop"]: each["limits"] for each in facts(home) if each["state"] != "relay"}
        assert shown == {
            "one.example": "destinationlimits:1,destinationrate:1",
            "two.example": "destinationlimits:3",
        }


def facts(home: Home, *names: str) -> list[dict[str, object]]:
    found = map(json.loads, order(home, "destinations", "--format", "json", *names).splitlines())
    return [each for each in found if "nexthop" in each]


def test_queuectl_destinations_shows_the_line_that_holds_and_the_relay_over_it(home: Home) -> None:
    with started(home, destinationlimits=f"# mine\none.example concurrency=1\n\n{RELAY} rate=2/3600\n") as send:
        arrived(home, send, *["one.example"] * 2, "two.example")
        assert len(jobs(send, 2)) == 2
        rows = [" ".join(line.split()) for line in order(home, "destinations").splitlines()[2:]]
        assert rows[0].endswith(" rate next limits reason")
        assert re.fullmatch(r"remote one.example alive 1 0 1 1 0 0 - 20\S+Z destinationlimits:2 -", rows[1])
        assert re.fullmatch(rf"remote {RELAY} relay 0 0 2 20 0 0 2/3600 20\S+Z destinationlimits:4 -", rows[2])
        assert re.fullmatch(rf"remote {RELAY} alive 0 0 1 10 0 0 2/3600 20\S+Z destinationlimits:4 -", rows[3])
        # Who asks for the domain is told of its relay, too.
        found = facts(home, "ONE.example")
        assert [(each["nexthop"], each["relay"]) for each in found][:2] == [("one.example", RELAY), (RELAY, None)]


def test_queuectl_destinations_finds_a_domain_by_its_u_labels_and_its_a_labels(home: Home) -> None:
    with started(home, smtproutes="") as send:
        arrived(home, send, "bücher.example")
        assert len(jobs(send, 1)) == 1
        for name in ("BÜCHER.example", "Xn--bcher-kva.example."):
            assert [each["nexthop"] for each in facts(home, name)] == ["xn--bcher-kva.example"]


@pytest.mark.parametrize(
    ("limits", "cause"),
    [
        (f"one.example initial=5\n{RELAY} concurrency=1\n", rf"waiting at {RELAY}: its window is 1, jobs in flight: 1"),
        (f"one.example initial=5\n{RELAY} rate=1/3600\n", rf"waiting at {RELAY}: its rate allows the next message at"),
    ],
)
def test_queuectl_show_says_that_mail_waits_for_its_relay(home: Home, limits: str, cause: str) -> None:
    with started(home, destinationlimits=limits) as send:
        arrived(home, send, "two.example")
        assert jobs(send, 1) == ["two.example"]
        message = classified_message(home, remote=[b"a@one.example"])
        send.todo.classified(message)
        send.fence()
        assert re.search(cause, order(home, "show", long_id(home, message)))
