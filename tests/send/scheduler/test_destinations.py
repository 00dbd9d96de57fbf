"""queuectl destinations, and the questions of lock/control asked directly."""

import json
import re
import signal
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_send.admin.queries import PAGE
from queue_wire.admin.facts import unpack_channel, unpack_destination
from queue_wire.admin.socket import DESTINATIONS, FLUSH, TOTALS, WHY, Request
from support.processes.suite import wait_until
from support.queues.queued import classified_message
from support.send.control import Client, files, long_id, order, queuectl, wait_for_backlog
from support.send.scripted_send import ScriptedSend

# So small a limit that what the window has no room for goes aside.
pytestmark = pytest.mark.home(
    destinationinitial="1", destinationconcurrency="1", destinationcohorts="1", activelimit="8"
)


def arrived(home: Home, send: ScriptedSend, *remote: bytes) -> int:
    message = classified_message(home, remote=list(remote))
    send.todo.classified(message)
    send.fence()
    return message


def words(line: str) -> str:
    return " ".join(line.split())


def test_the_table_has_the_most_mail_waiting_first(home: Home, send: ScriptedSend) -> None:
    arrived(home, send, b"a@dead.example")
    send.remote.report(send.remote.job(), b"Zno route", scope=b"h")
    send.wait_for("dest dead.example dead: .*")
    for name, count in ((b"a@few.example", 2), (b"a@many.example", 5), (b"a@dead.example", 1)):
        for _ in range(count):
            arrived(home, send, name)
    *totals, head, many, few, dead = order(home, "destinations").splitlines()
    assert totals == [
        "local: 0/8 messages active, 0 waiting, 0/10 deliveries in flight",
        "remote: 5/8 messages active, 4 waiting, 2/250 deliveries in flight",
    ]
    assert words(head) == (
        "channel nexthop state queued on-disk in-flight window cohorts suspended rate next limits reason"
    )
    assert words(many) == "remote many.example alive 2 2 1 1 0 0 - - - -"
    assert words(few) == "remote few.example alive 1 0 1 1 0 0 - - - -"
    assert re.fullmatch(r"remote dead.example dead 0 0 0 1 1 1 - 20\S+Z - no route", words(dead))


def test_named_destinations_are_shown_alone_whatever_their_case(home: Home, send: ScriptedSend) -> None:
    arrived(home, send, b"a@one.example", b"a@two.example")
    found = order(home, "destinations", "--format", "json", "TWO.example", "none.example")
    local, remote, facts = map(json.loads, found.splitlines())
    assert local["channel"] == "local" and local["active"] == 0
    totals = {"channel": "remote", "active": 1, "active_limit": 8, "waiting": 0, "in_flight": 2, "concurrency": 250}
    assert remote == totals | {"backlog_read": True}
    assert facts["nexthop"] == "two.example" and facts["in_flight"] == 1 and facts["probe"] is None


def test_a_name_that_queue_send_has_no_mail_for_is_said_by_the_exit_code(home: Home, send: ScriptedSend) -> None:
    arrived(home, send, b"a@one.example")
    for words in ([], ["--format", "json"]):
        assert queuectl(home, "destinations", "typo.example", *words).returncode == 1
        assert queuectl(home, "destinations", "typo.example", "one.example", *words).returncode == 0


def test_a_domain_is_found_under_the_relay_that_smtproutes_has_for_it(home: Home) -> None:
    Path(home.control, "smtproutes").write_text(":relay.example:2525\n")
    Path(home.control, "destinationrate").write_text("relay.example:2525:1/60\n")
    with ScriptedSend(home) as send:
        send.fence()
        wait_for_backlog(home)
        arrived(home, send, b"a@one.example")
        row = words(order(home, "destinations", "one.example").splitlines()[-1])
        assert re.fullmatch(r"remote relay.example:2525 alive 0 0 1 1 0 0 1/60 20\S+Z destinationrate:1 -", row)


def test_without_queue_send_there_is_nothing_to_show(home: Home) -> None:
    shown = queuectl(home, "destinations")
    assert (shown.returncode, shown.stdout) == (111, "")
    assert shown.stderr == ("queuectl: fatal: unable to show destinations: queue-send does not run; nothing is tried\n")


def test_many_destinations_come_in_pages_and_none_is_missed(home: Home, send: ScriptedSend) -> None:
    send.remote.ready(1000)
    for first in range(0, 2700, 900):
        arrived(home, send, *[b"a@d%d.example" % number for number in range(first, first + 900)])
        send.remote.job()
    wanted = {b"d%d.example" % number for number in range(2700)}

    def pages(client: Client) -> list[bytes]:
        found: list[bytes] = []
        place = b""
        while True:
            reply = client.ask(Request(DESTINATIONS, b"", [b"remote", place]))
            assert reply is not None and not reply.error
            page = [unpack_destination(note.text).nexthop for note in reply.notes]
            assert len(page) <= PAGE
            found += page
            if not reply.touched:
                return found
            place = b"%d" % reply.touched

    with Client(home) as client:
        wait_until(lambda: len(pages(client)) >= len(wanted), why="all recipients are loaded")
        found = pages(client)
    assert set(found) == wanted and len(found) == len(wanted)


def test_questions_change_nothing_and_do_not_keep_orders_waiting(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send, b"a@c.example")
    before, name = files(home), long_id(home, message).encode()
    with Client(home) as client:
        for _ in range(20):
            client.send(Request(WHY, b"", [name, b"Rc.example", b"Rnone.example", b"L"]))
            client.send(Request(TOTALS, b"", []))
        client.send(Request(FLUSH, b"", []))
        for _ in range(20):
            why, totals = client.reply(), client.reply()
            assert why is not None and totals is not None and not why.error
            assert [unpack_channel(note.text).active for note in totals.notes] == [0, 1] and totals.touched == 1
        assert client.reply() == (0, [], b"")
    assert files(home) == before


def test_a_later_message_of_the_same_number_is_not_spoken_of(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send, b"a@c.example")
    with Client(home) as client:
        reply = client.ask(Request(WHY, b"", [b"%d-1" % message, b"Rc.example"]))
        assert reply is not None and [note.letter for note in reply.notes] == [b"-"]
        reply = client.ask(Request(WHY, b"", [b"garbage"]))
        assert reply is not None and [note.letter for note in reply.notes] == [b"!"]


def test_while_the_last_deliveries_end_questions_are_still_answered(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send, b"a@c.example")
    arrived(home, send, b"a@c.example")
    with Client(home) as client:
        assert client.ask(Request(TOTALS, b"", [])) is not None
        send.signal(signal.SIGTERM)
        send.wait_for(".*exitasap")
        reply = client.ask(Request(WHY, b"", [long_id(home, message).encode(), b"Rc.example"]))
        assert reply is not None and reply.notes[0].text.startswith(b"flies remote ")
