"""bounce --recipient and --domain: only those recipients fail, whether queue-send runs or not, and after a crash."""

import os
import time
from pathlib import Path

import pytest

from queue_base.durable import Commit
from queue_base.home import Home
from queue_base.queue import hold_marks
from queue_base.queue.layout import open_layout
from queue_base.queue.removal import remove_messages
from queue_send.admin.bounce_orders import RECIPIENTS_MAX
from queue_send.admin.orders import Orders
from queue_wire.admin.returning import RecipientSelector
from queue_wire.admin.socket import DELETE, Request, Response
from queue_wire.files.hold_mark import HoldMark, HoldOrder, order_mark
from queue_wire.files.recipients import unpack_recipients
from queue_wire.ids import pack_long_id
from queue_wire.pipes.cleaning import Removal
from support.processes.suite import Suite, enqueue, wait_until
from support.queues.queued import classified_message, queue_message
from support.send.control import file, long_id, order, queuectl
from support.send.loop import Loop
from support.send.scripted_send import ScriptedSend
from support.servers.smtp.sink import Sink
from support.site import Site


def waiting(home: Home, *remote: bytes, local: list[bytes] | None = None) -> int:
    now = time.time()
    return classified_message(home, remote=list(remote), local=local, birth=now - 100, due=int(now) + 3600)


def left(home: Home, message: int, kind: str = "remote") -> list[bytes]:
    found = unpack_recipients(file(home, kind, message).read_bytes())
    return [address for _, done, address in found if not done]


def test_only_the_chosen_recipient_fails_and_the_others_keep_their_next_attempt(home: Home) -> None:
    message = waiting(home, b"u1@c.example", b"u2@c.example", b"u3@d.example")
    due = file(home, "remote", message).stat().st_mtime
    with ScriptedSend(home) as send:
        send.fence()
        assert order(home, "bounce", "--recipient", "U1@c.example") == "bounced 1 message"
        send.wait_for(f"release msg {message}")
        assert send.found("starting delivery .*") == [f"starting delivery 1: msg {message} to remote u1@c.example"]
        assert send.found("delivery 1: failure: The_administrator_has_asked.*")
        assert left(home, message) == [b"u2@c.example", b"u3@d.example"]
        assert file(home, "bounce", message).read_bytes().startswith(b"<u1@c.example>:\n")
        wait_until(lambda: not file(home, "hold", message).exists(), why="the mark to go")
        assert file(home, "remote", message).stat().st_mtime == due
        send.fence()
        assert send.remote.silent and not send.found("end msg .*")
        assert order(home, "flush", long_id(home, message)) == "flushed 1 message"
        assert {each.recipients[0] for each in (send.remote.job(), send.remote.job())} == {
            b"u2@c.example", b"u3@d.example"
        }  # fmt: skip


def test_of_a_message_that_is_named_only_the_recipients_in_the_domain_fail(home: Home) -> None:
    message, other = waiting(home, b"a@c.example", b"b@d.example"), waiting(home, b"a@c.example", b"b@d.example")
    with ScriptedSend(home) as send:
        send.fence()
        assert order(home, "bounce", long_id(home, message), "--domain", "C.example") == "bounced 1 message"
        send.wait_for(f"release msg {message}")
    assert left(home, message) == [b"b@d.example"]
    assert left(home, other) == [b"a@c.example", b"b@d.example"]


def test_where_nobody_else_is_left_the_whole_message_bounces(home: Home) -> None:
    message = waiting(home, b"a@c.example", local=[b"b@c.example"])
    with ScriptedSend(home) as send:
        send.fence()
        order(home, "bounce", "--domain", "c.example")
        send.wait_for(f"bounce msg {message} qp .*")
        send.wait_for(f"end msg {message}")


def test_a_recipient_in_a_virtual_domain_is_chosen_by_its_address_without_the_prefix(home: Home) -> None:
    Path(home.control, "virtualdomains").write_text("v.example:joe\n")
    message = waiting(home, b"a@c.example", local=[b"joe-sales@v.example", b"joe-info@v.example"])
    with ScriptedSend(home) as send:
        send.fence()
        order(home, "bounce", "--recipient", "sales@v.example")
        send.wait_for(f"release msg {message}")
    assert (left(home, message), left(home, message, "local")) == ([b"a@c.example"], [b"joe-info@v.example"])
    assert file(home, "bounce", message).read_bytes().startswith(b"<sales@v.example>:\n")


def test_a_message_that_was_on_hold_is_so_afterwards_with_its_reason(home: Home) -> None:
    message = waiting(home, b"a@c.example", b"b@d.example")
    with ScriptedSend(home) as send:
        send.fence()
        order(home, "hold", "--reason", "ask Jo", long_id(home, message))
        order(home, "bounce", "--recipient", "a@c.example")
        send.wait_for(f"hold msg {message}: ask Jo", 2)
        wait_until(lambda: file(home, "hold", message).read_bytes() == b"ask Jo\n", why="the mark")
        assert order(home, "flush", "--all") == "flushed 0 messages"
    assert left(home, message) == [b"b@d.example"]


def test_what_is_in_flight_ends_first_and_its_verdict_counts(home: Home) -> None:
    message = classified_message(home, remote=[b"a@c.example", b"b@d.example"])
    with ScriptedSend(home) as send:
        jobs = sorted([send.remote.job(), send.remote.job()], key=lambda job: job.recipients)
        order(home, "bounce", "--recipient", "b@d.example")
        send.fence()
        assert left(home, message) == [b"a@c.example", b"b@d.example"]
        send.remote.report(jobs[0], b"Zlater")
        send.remote.report(jobs[1], b"Zlater")
        send.wait_for(f"release msg {message}")
        assert left(home, message) == [b"a@c.example"]
        send.wait_for("delivery .*: failure: The_administrator_.*")


def test_without_queue_send_the_order_is_kept_for_its_start(home: Home) -> None:
    message = waiting(home, b"a@c.example", b"b@d.example")
    name = long_id(home, message)
    news, last = order(home, "bounce", "--recipient", "a@c.example").split("\n")
    assert (news, last) == (f"{name}: bounces when queue-send starts", "bounced 1 message")
    assert left(home, message) == [b"a@c.example", b"b@d.example"]
    again = queuectl(home, "bounce", "--recipient", "b@d.example")
    assert again.returncode == 111 and "returned by the administrator" in again.stderr
    with ScriptedSend(home) as send:
        send.wait_for(f"release msg {message}")
        assert left(home, message) == [b"b@d.example"]


def test_an_order_whose_execution_was_killed_is_executed_by_the_next_run(home: Home) -> None:
    message = waiting(home, b"a@c.example", b"b@d.example")
    layout, commit = open_layout(home.queue), Commit()
    hold_marks.mark(layout, message, HoldMark(b"ask Jo"), commit)
    hold_marks.mark_return(layout, message, RecipientSelector(b"a@c.example", b""), commit)
    commit.sync()
    file(home, "bounce", message).write_bytes(b"<a@c.example>:\nThe admin")  # Torn by the kill.
    with ScriptedSend(home) as send:
        send.wait_for(f"hold msg {message}: ask Jo")
        wait_until(lambda: file(home, "hold", message).read_bytes() == b"ask Jo\n", why="the mark")
    assert left(home, message) == [b"b@d.example"]
    assert file(home, "bounce", message).read_bytes().count(b"<a@c.example>:") == 1


def test_a_mark_that_names_nobody_bounces_nobody(home: Home) -> None:
    message = waiting(home, b"a@c.example", b"b@d.example")
    file(home, "hold", message).write_bytes(HoldOrder.BOUNCE_SOME.value + b"\ngarbage")
    with ScriptedSend(home) as send:
        send.wait_for(f"alert: msg {message} stays on hold, because its mark in hold is not clear: its records are .*")
        assert left(home, message) == [b"a@c.example", b"b@d.example"]
        order(home, "release", long_id(home, message))
        assert send.remote.job()


@pytest.mark.home(classifyafter="600", concurrencyremote="1")
def test_of_a_message_that_is_delivered_from_its_notice_only_the_chosen_recipient_fails(site: Site) -> None:
    with Sink() as sink:
        site.route(sink.port)
        sink.hold_after = 0
        with Suite(site.home) as suite:
            # Mail that comes before queue-send has told queue-todo to announce it is classified.
            suite.wait_for("status: local 0/")
            recipients = [b"b@c.example", b"d@e.example"]
            enqueue(site.home, b"a@me.example.org", recipients, b"Subject: x\n\ny\n")
            sink.wait_for(1)
            first = suite.wait_for("^starting delivery 1: ").split()[-1]
            (other,) = {b"b@c.example", b"d@e.example"} - {first.encode()}
            assert order(site.home, "bounce", "--recipient", other.decode()) == "bounced 1 message"
            sink.release()
            suite.wait_for("^delivery 2: failure: The_administrator")
            suite.wait_for("^bounce msg ")
            suite.wait_for("^end msg ", 2)
    assert suite.count("^delivery 1: success") == 1 and suite.count("failure: The_administrator") == 1


def test_a_message_in_todo_is_classified_first(home: Home) -> None:
    message = queue_message(home, [b"a@c.example", b"b@d.example"])
    order(home, "bounce", "--recipient", "a@c.example")
    with Suite(home) as suite:
        suite.wait_for("^delivery 1: failure: The_administrator")
        suite.wait_for(f"^release msg {message}$")
        suite.wait_for(f"^starting delivery 2: msg {message} to remote b@d.example$")


def test_other_recipients_of_messages_that_are_held_are_counted(home: Home) -> None:
    waiting(home, b"a@c.example", b"b@d.example", b"c@d.example")
    done = queuectl(home, "hold", "--recipient", "a@c.example")
    assert (done.returncode, done.stdout) == (0, "held 1 message\n")
    assert done.stderr == "2 recipients of these messages that were not named: held, too\n"
    done = queuectl(home, "bounce", "--recipient", "a@c.example", "--dry-run")
    assert done.stderr == "would have bounced 1 message\n"


def test_a_deletion_ends_the_work_on_a_bounce_and_spares_the_next_message_of_the_number(home: Home) -> None:
    message = waiting(home, *[b"u%d@c.example" % number for number in range(2 * RECIPIENTS_MAX)])
    layout, loop = open_layout(home.queue), Loop(home)
    try:
        commit = Commit()
        hold_marks.mark(layout, message, order_mark(HoldOrder.BOUNCE), commit)
        loop.messages.hold(message, HoldOrder.BOUNCE)
        for _ in ("local", "remote"):
            loop.turn()  # After the second one, the first recipients are being failed.
        hold_marks.mark(layout, message, order_mark(HoldOrder.DELETE), commit)
        commit.sync()
        loop.messages.hold(message, HoldOrder.DELETE)
        assert not loop.has_ended(message), "it ends while its failures are being written"
        while not loop.has_ended(message):
            loop.turn()
        assert not remove_messages(layout, [Removal(message)])
        loop.removed()
        for kind in ("info", "remote"):
            file(home, kind, message).write_bytes(b"of the next message")
        loop.settle()
        assert file(home, "remote", message).read_bytes() == b"of the next message"
        assert not file(home, "bounce", message).exists()
        assert not loop.is_returning(message) and not loop.has_ended(message)
    finally:
        loop.close()


def test_a_bounce_that_waits_is_sent_if_the_disk_refuses_to_delete_its_message(home: Home) -> None:
    # A bounce that cannot be delivered either: it needs no process, only the log.
    message = classified_message(home, sender=b"#@[]", remote=[b"a@c.example"])
    layout, loop = open_layout(home.queue), Loop(home)
    try:
        orders = Orders(loop.messages, loop.parts, lambda: None)
        loop.arrive(message)
        loop.settle()
        loop.report(loop.jobs[0], b"Dno such user")
        while not loop.messages.bouncer.holds(message):
            loop.turn()
        file(home, "hold", message).mkdir()
        replies: list[Response] = []
        request = Request(DELETE, b"", [pack_long_id(message, hold_marks.birth_of(layout, message) or 0).encode()])
        orders.carry_out(request, replies.append, loop.clock.now())
        assert not loop.messages.bouncer.holds(message)
        loop.settle()
        assert [(reply.touched, len(reply.notes)) for reply in replies] == [(0, 1)]
        assert not file(home, "bounce", message).exists() and loop.has_ended(message)
    finally:
        loop.close()


def test_an_order_to_bounce_all_takes_the_place_of_one_that_waits_to_bounce_some(home: Home) -> None:
    first, second = waiting(home, b"a@c.example"), waiting(home, b"a@c.example", b"b@d.example")
    layout, loop = open_layout(home.queue), Loop(home)
    try:
        commit = Commit()
        hold_marks.mark(layout, first, order_mark(HoldOrder.BOUNCE), commit)
        hold_marks.mark_return(layout, second, RecipientSelector(b"a@c.example", b""), commit)
        loop.messages.hold(first, HoldOrder.BOUNCE)
        loop.messages.hold(second, HoldOrder.BOUNCE_SOME)
        hold_marks.mark(layout, second, order_mark(HoldOrder.BOUNCE), commit)
        commit.sync()
        loop.messages.hold(second, HoldOrder.BOUNCE)
        while loop.is_returning(second):
            loop.turn()
        failures = file(home, "bounce", second).read_bytes()
        assert failures.count(b"<a@c.example>:") == failures.count(b"<b@d.example>:") == 1
    finally:
        loop.close()


def test_the_marks_are_durable_before_the_order_is_removed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    message = waiting(home, b"a@c.example", b"b@d.example")
    layout, loop, commit = open_layout(home.queue), Loop(home), Commit()
    hold_marks.mark_return(layout, message, RecipientSelector(b"a@c.example", b""), commit)
    commit.sync()
    done: list[str] = []
    unlink, fsync = os.unlink, os.fsync

    def seen_unlink(path: str) -> None:
        unlink(path)
        done.append(f"unlink {path}")

    def seen_fsync(handle: int) -> None:
        fsync(handle)
        done.append(f"fsync {os.readlink(f'/proc/self/fd/{handle}')}")

    monkeypatch.setattr(os, "unlink", seen_unlink)
    monkeypatch.setattr(os, "fsync", seen_fsync)
    try:
        loop.messages.hold(message, HoldOrder.BOUNCE_SOME)
        loop.settle()
    finally:
        loop.close()
    removed = done.index(f"unlink {file(home, 'hold', message)}")
    assert f"fsync {os.path.realpath(file(home, 'remote', message))}" in done[:removed]
