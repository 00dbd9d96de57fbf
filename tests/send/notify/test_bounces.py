"""queue-send with scripted peers: failures become bounces, double bounces and, at last, a line in the log."""

import email
import email.message
import os
import time
from pathlib import Path
from typing import cast

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.files.envelope import Envelope
from support.processes.suite import wait_until
from support.queues.queued import classified_message, injected
from support.send.piped import Piped
from support.send.scripted_send import ScriptedSend

HARD = b"DRemote host said: 550 5.1.1 no such user\n"
OLD_FAILURE = b"<x@c>:\nnever\n\n"


def bounced(send: ScriptedSend, message: int) -> tuple[Envelope, bytes]:
    """Wait until the message has ended; return the one bounce that was injected for it."""
    assert send.clean.removed() == message
    send.wait_for(f"end msg {message}")
    [line] = send.found(rf"bounce msg {message} qp \d+")
    [(envelope, text)] = injected(send.home)
    assert int(line.split()[-1]) == envelope.pid
    assert send.lines.index(line) < send.lines.index(f"end msg {message}")
    return envelope, text


def text_part(bounce: bytes) -> str:
    """Return the part of a bounce that people read."""
    parts = cast(list[email.message.Message], email.message_from_bytes(bounce).get_payload())
    text = parts[0].get_payload(decode=True)
    assert isinstance(text, bytes)
    return text.decode()


def test_a_failure_goes_back_to_the_sender_from_nobody(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c"], data=b"Subject: the one\nX-A: b\n\nbody\n")
    with ScriptedSend(home) as send:
        send.remote.deliver(HARD)
        envelope, text = bounced(send, message)
        assert (envelope.sender, envelope.recipients, envelope.uid) == (b"", [b"a@example.org"], os.getuid())
        assert b"\nTo: <a@example.org>\n" in text
        assert "<b@c>:\nRemote host said: 550 5.1.1 no such user\n" in text_part(text)
        assert b"Subject: the one\nX-A: b\n" in text and b"\nbody\n" not in text
        assert not os.path.exists(open_layout(home.queue).bounce(message))


@pytest.mark.parametrize(
    ("birth", "shown"), [(-(2**40), "Thu, 01 Jan 1970 00:00:00"), (2**40, "Fri, 31 Dec 9999 23:59:59")]
)
def test_a_message_whose_birth_no_date_has_bounces_and_queue_send_goes_on(home: Home, birth: int, shown: str) -> None:
    message = classified_message(home, remote=[b"b@c"], birth=birth)
    with ScriptedSend(home) as send:
        send.remote.deliver(HARD)
        _, text = bounced(send, message)
        assert f"\nArrival-Date: {shown} -0000\n" in text.decode()
        other = classified_message(home, remote=[b"d@e"])
        send.todo.classified(other)
        send.remote.deliver(b"Kok")
        send.wait_for(f"end msg {other}")


def test_the_qp_of_a_bounce_is_the_one_of_its_own_info_line(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c"])
    with ScriptedSend(home) as send:
        send.remote.deliver(HARD)
        envelope, _ = bounced(send, message)
    with Piped("queue-todo", home) as todo:
        while not (line := todo.record()).startswith(b"Linfo msg "):
            continue
        assert line.endswith(b" from <> qp %d uid %d" % (envelope.pid, os.getuid()))


def test_failures_of_both_channels_and_of_earlier_runs_are_in_one_bounce(home: Home) -> None:
    message = classified_message(home, local=[b"l@me.example.org"], remote=[b"b@c", b"d@c"], bounce=OLD_FAILURE)
    with ScriptedSend(home) as send:
        send.local.deliver(b"DSorry, no mailbox here by that name. (#5.1.1)\n")
        job = send.remote.job()
        send.fence()
        assert injected(home) == []
        send.remote.report(job, HARD, b"Kok")
        _, text = bounced(send, message)
        paragraphs = text_part(text).rstrip("\n").split("\n\n")[1:]
        assert {paragraph.partition("\n")[0] for paragraph in paragraphs} == {"<x@c>:", "<l@me.example.org>:", "<b@c>:"}


def test_a_bounce_that_fails_goes_to_doublebounceto_as_a_double_bounce(home: Home) -> None:
    Path(home.control, "doublebounceto").write_text("admin\n")
    Path(home.control, "doublebouncehost").write_text("ops.example\n")
    message = classified_message(home, remote=[b"b@c"], sender=b"")
    with ScriptedSend(home) as send:
        send.remote.deliver(HARD)
        envelope, text = bounced(send, message)
        assert (envelope.sender, envelope.recipients) == (b"#@[]", [b"admin@ops.example"])
        assert b"\nTo: <admin@ops.example>\n" in text


def test_a_double_bounce_that_fails_is_discarded_with_a_line(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c"], sender=b"#@[]")
    with ScriptedSend(home) as send:
        send.remote.deliver(HARD)
        assert send.clean.removed() == message
        send.wait_for(f"end msg {message}")
        assert send.found(r"(triple|bounce|end) .*") == [
            f"triple bounce: discarding bounce/{message}",
            f"end msg {message}",
        ]
        assert injected(home) == []


def test_the_bounce_of_a_verp_sender_goes_to_the_sender_without_its_suffix(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c"], sender=b"list-@lists.example-@[]")
    with ScriptedSend(home) as send:
        send.remote.deliver(HARD)
        envelope, _ = bounced(send, message)
        assert (envelope.sender, envelope.recipients) == (b"", [b"list-@lists.example"])


def test_a_bounce_names_a_recipient_of_a_virtual_domain_without_its_prepend(home: Home) -> None:
    Path(home.control, "virtualdomains").write_text("virtual.example:joe\nbücher.example:joe\n")
    named = [b"joe-sue@virtual.example", b"joe-x@me.example.org", b"joe-kim@xn--bcher-kva.example"]
    message = classified_message(home, local=named)
    with ScriptedSend(home) as send:
        for _ in named:
            send.local.deliver(b"Dno\n")
        _, text = bounced(send, message)
        assert "<sue@virtual.example>:\nno" in text_part(text)
        assert "<joe-x@me.example.org>:\nno" in text_part(text)
        assert "<kim@xn--bcher-kva.example>:\nno" in text_part(text)


def test_bouncefrom_and_bouncehost_name_who_the_bounce_is_from(home: Home) -> None:
    Path(home.control, "bouncefrom").write_text("daemon\n")
    Path(home.control, "bouncehost").write_text("bounces.example\n")
    message = classified_message(home, remote=[b"b@c"])
    with ScriptedSend(home) as send:
        send.remote.deliver(HARD)
        assert b"\nFrom: Mail Delivery System <daemon@bounces.example>\n" in bounced(send, message)[1]


def test_a_bounce_file_of_a_finished_message_is_bounced_after_a_restart(home: Home) -> None:
    message = classified_message(home, bounce=OLD_FAILURE)
    with ScriptedSend(home) as send:
        assert "<x@c>:\nnever\n" in text_part(bounced(send, message)[1])


def test_a_piece_that_a_crash_left_in_a_bounce_file_is_cut_off_before_the_next_failure(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c", b"d@e"], bounce=OLD_FAILURE + b"<half@c>:\nRemote ho")
    with ScriptedSend(home) as send:
        send.remote.deliver(b"Dno\n")
        send.wait_for(r"delivery 1: failure: no/")
        path = Path(open_layout(home.queue).bounce(message))
        # A thread of its own writes it.
        wait_until(lambda: path.read_bytes() == OLD_FAILURE + b"<b@c>:\nno\n\n", why="the failure in bounce/")
        send.remote.deliver(b"Kok")
        assert "half" not in text_part(bounced(send, message)[1])


@pytest.mark.parametrize("piece", [b"<half@c>:\nRemote ho", b"<", b"\0" * 40])
def test_a_bounce_file_that_holds_only_a_piece_makes_no_bounce(home: Home, piece: bytes) -> None:
    message = classified_message(home, remote=[b"b@c"], bounce=piece)
    with ScriptedSend(home) as send:
        send.remote.deliver(b"Kok")
        assert send.clean.removed() == message
        send.wait_for(f"end msg {message}")
        assert injected(home) == [] and not send.found(r"bounce msg .*")


def test_an_empty_bounce_file_makes_no_bounce(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c"])
    Path(open_layout(home.queue).bounce(message)).touch()
    with ScriptedSend(home) as send:
        send.remote.deliver(b"Kok")
        assert send.clean.removed() == message
        assert injected(home) == []


def test_a_message_without_its_mess_is_bounced_without_its_header(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c"])
    os.unlink(open_layout(home.queue).mess(message))
    with ScriptedSend(home) as send:
        send.remote.deliver(HARD)
        assert "<b@c>:" in text_part(bounced(send, message)[1])


def test_the_header_of_a_message_with_crlf_ends_where_its_body_begins(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c"], data=b"Subject: x\r\n\r\nsecret\r\n\r\nbody\n\nend\n")
    with ScriptedSend(home) as send:
        send.remote.deliver(HARD)
        text = bounced(send, message)[1]
        assert b"Subject: x\n" in text and b"secret" not in text


def test_a_queue_that_takes_no_bounce_now_is_asked_again_and_nothing_is_lost(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c"])
    pid = Path(home.queue, "pid")
    with ScriptedSend(home) as send:
        job = send.remote.job()
        pid.rmdir()
        send.remote.report(job, HARD)
        send.wait_for(
            rf"warning: trouble injecting bounce message of msg {message}: queue-enqueue exited \d+; will try later"
        )
        send.fence()
        assert not send.found(f"end msg {message}")
        assert Path(open_layout(home.queue).bounce(message)).read_bytes().startswith(b"<b@c>:\n")
    pid.mkdir()
    with ScriptedSend(home) as send:
        assert bounced(send, message)[0].recipients == [b"a@example.org"]


def test_a_failure_that_cannot_be_written_is_no_failure(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c"], birth=time.time())
    layout = open_layout(home.queue)
    with ScriptedSend(home) as send:
        job = send.remote.job()
        Path(home.queue, "bounce").rename(Path(home.queue, "away"))
        send.remote.report(job, HARD)
        assert layout.bounce(message) in send.wait_for(r"warning: unable to append to .*; will try again later")
        send.fence()
        path = Path(layout.hashed("remote", message))
        assert path.read_bytes() == b"Tb@c\0"
        assert path.stat().st_mtime > time.time() + 300
