"""queue-send with scripted peers: senders are told, once per age, that their mail is still in the queue."""

import email
import email.message
import email.utils
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from queue_base.home import Home
from queue_base.layout import open_layout
from queue_base.marks import birth_of
from queue_wire.envelope import Envelope, unpack_todo
from support.home import make_home
from support.queued import classified_message
from support.scripted_send import ScriptedSend
from support.tools import need

LATER = b"ZRemote host said: 451 4.7.1 come back later\n"
HOUR = 3600


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = make_home(tmp_path / "home", split=3)
    Path(made.control, "delaywarning").write_text("4h 24h\n")
    return made


def notices(home: Home) -> list[tuple[Envelope, bytes]]:
    """Return the envelope and the bytes of each message that waits in todo/, the oldest first."""
    layout = open_layout(home.queue)
    ids = [int(name) for directory in layout.directories("todo") for name in os.listdir(directory)]
    ids.sort(key=lambda message: os.stat(layout.mess(message)).st_mtime_ns)
    return [
        (unpack_todo(Path(layout.todo(message)).read_bytes()), Path(layout.mess(message)).read_bytes())
        for message in ids
    ]


def text_and_blocks(notice: bytes) -> tuple[str, list[email.message.Message]]:
    """Return the part for people, and the status blocks of the recipients."""
    text, status, _ = cast(list[email.message.Message], email.message_from_bytes(notice).get_payload())
    shown = text.get_payload(decode=True)
    assert isinstance(shown, bytes)
    blocks = cast(list[email.message.Message], status.get_payload())
    return shown.decode(), [block for block in blocks if block["Final-Recipient"]]


def make_due(home: Home, message: int, kind: str = "remote") -> None:
    """Make a message that waits due, for a queue-send that starts after this."""
    os.utime(open_layout(home.queue).hashed(kind, message), (1, 1))


def grow_older(home: Home, message: int, seconds: int) -> None:
    """Make a message older, as if time had passed since all that is known of it."""
    layout = open_layout(home.queue)
    for path in (layout.hashed("info", message), layout.mess(message)):
        now = os.stat(path).st_mtime - seconds
        os.utime(path, (now, now))


def old_message(home: Home, age: float, **others: object) -> int:
    others.setdefault("remote", [b"b@c"])
    return classified_message(home, birth=time.time() - age, **others)  # type: ignore[arg-type]


def defer(send: ScriptedSend, verdict: bytes = LATER) -> None:
    """Have the next message deferred, and wait until what follows from that at once has happened."""
    send.remote.deliver(verdict)
    send.fence()


def test_a_sender_is_told_at_the_first_deferral_after_an_age_who_is_left_and_until_when(home: Home) -> None:
    birth = int(time.time()) - 5 * HOUR
    message = classified_message(
        home, local=[b"l@me.example.org"], remote=[b"b@c", b"d@c"], birth=birth, data=b"Subject: the one\n\nbody\n"
    )
    with ScriptedSend(home) as send:
        send.local.job()
        send.remote.report(send.remote.job(), LATER, b"Kok")
        line = send.wait_for(rf"delay msg {message} qp \d+")
    [(envelope, notice)] = notices(home)
    assert (envelope.sender, envelope.recipients) == (b"", [b"a@example.org"])
    assert int(line.split()[-1]) == envelope.pid
    head = email.message_from_bytes(notice)
    assert head["Subject"] == "Delayed Mail (still being retried)" and head["To"] == "<a@example.org>"
    text, blocks = text_and_blocks(notice)
    # What begins otherwise is a bounce to the programs of mailing lists.
    assert not text.startswith("Hi. This is")
    assert "<b@c>:\nRemote host said: 451 4.7.1 come back later\n" in text and "<d@c>" not in text
    assert {block["Final-Recipient"] for block in blocks} == {"rfc822; b@c", "rfc822; l@me.example.org"}
    assert {block["Action"] for block in blocks} == {"delayed"}
    [remote] = [block for block in blocks if block["Final-Recipient"] == "rfc822; b@c"]
    assert (remote["Status"], remote["Diagnostic-Code"]) == ("4.7.1", "smtp; 451 4.7.1 come back later")
    assert remote["Will-Retry-Until"] == email.utils.formatdate(birth + 604800)
    assert b"Subject: the one\n" in notice and b"\nbody\n" not in notice


def test_a_message_that_is_younger_than_every_age_makes_no_notice(home: Home) -> None:
    old_message(home, 4 * HOUR - 60)
    with ScriptedSend(home) as send:
        defer(send)
        send.fence()
        assert not send.found("delay .*")
    assert notices(home) == []


def test_each_age_makes_one_notice_whatever_restarts_between(home: Home) -> None:
    message = old_message(home, 5 * HOUR)
    for age, count in ((0, 1), (0, 1), (18 * HOUR, 1), (2 * HOUR, 2), (0, 2), (60 * HOUR, 2)):
        grow_older(home, message, age)
        make_due(home, message)
        known = len(notices(home))
        with ScriptedSend(home) as send:
            defer(send)
            if count > known:
                send.wait_for(rf"delay msg {message} qp \d+")
            send.fence()
            assert len(send.found("delay .*")) == count - known
    assert len(notices(home)) == 2


def test_in_one_run_an_age_makes_one_notice_however_often_the_message_is_deferred(home: Home) -> None:
    message = old_message(home, 5 * HOUR)
    with ScriptedSend(home) as send:
        for _ in range(3):
            defer(send)
            send.wait_for(r"delay .*")
            send.signal(signal.SIGALRM)
        defer(send)
        send.fence()
        assert send.found("delay .*") == send.found(rf"delay msg {message} qp \d+")[:1]
    assert len(notices(home)) == 1


def test_ages_that_passed_while_nothing_ran_make_one_notice(home: Home) -> None:
    message = old_message(home, 30 * HOUR)
    with ScriptedSend(home) as send:
        defer(send)
        send.wait_for(rf"delay msg {message} qp \d+")
        send.signal(signal.SIGALRM)
        defer(send)
        send.fence()
        assert len(send.found("delay .*")) == 1


def test_the_birth_and_so_the_long_id_stay_as_they_were(home: Home) -> None:
    message = old_message(home, 5 * HOUR)
    layout = open_layout(home.queue)
    birth = birth_of(layout, message)
    with ScriptedSend(home) as send:
        defer(send)
        send.wait_for(r"delay .*")
        send.fence()
    assert birth_of(layout, message) == birth
    assert os.stat(layout.mess(message)).st_mtime > time.time() - 60


@pytest.mark.parametrize("sender", [b"", b"#@[]"])
def test_nobody_is_told_of_a_bounce_that_is_late(home: Home, sender: bytes) -> None:
    old_message(home, 5 * HOUR, sender=sender)
    with ScriptedSend(home) as send:
        defer(send)
        send.fence()
        assert not send.found("delay .*")
    assert notices(home) == []


def test_the_notice_for_a_verp_sender_goes_to_the_sender_without_its_suffix(home: Home) -> None:
    old_message(home, 5 * HOUR, sender=b"list-@lists.example-@[]")
    with ScriptedSend(home) as send:
        defer(send)
        send.wait_for("delay .*")
    assert [envelope.recipients for envelope, _ in notices(home)] == [[b"list-@lists.example"]]


def test_without_the_control_file_nobody_is_told_until_hup_after_it_was_written(home: Home) -> None:
    path = Path(home.control, "delaywarning")
    path.unlink()
    old_message(home, 5 * HOUR)
    with ScriptedSend(home) as send:
        defer(send)
        send.fence()
        assert not send.found("delay .*")
        path.write_text("1h\n")
        send.signal(signal.SIGHUP)
        send.fence()
        send.signal(signal.SIGALRM)
        defer(send)
        send.wait_for("delay .*")


def test_a_control_file_that_is_no_list_of_times_is_an_alert_and_the_mail_goes_on(home: Home) -> None:
    Path(home.control, "delaywarning").write_text("4h soon\n")
    old_message(home, 5 * HOUR)
    with ScriptedSend(home) as send:
        assert "soon" in send.wait_for("alert: unable to parse .*/delaywarning: .*")
        defer(send)
        assert not send.found("delay .*")


def test_recipients_that_a_dead_destination_defers_without_an_attempt_count_too(home: Home) -> None:
    Path(home.control, "destinationcohorts").write_text("1\n")
    Path(home.control, "destinationinitial").write_text("1\n")
    messages = {old_message(home, 5 * HOUR, due=1 + number) for number in range(3)}
    with ScriptedSend(home) as send:
        send.remote.report(send.remote.job(), b"Zno host\n", scope=b"h")
        send.wait_for("dest c dead: .*")
        lines = [send.wait_for("delay .*", times) for times in (1, 2, 3)]
        assert {int(line.split()[2]) for line in lines} == messages
        assert send.remote.silent


def test_a_message_that_was_held_meanwhile_makes_no_notice(home: Home) -> None:
    message = old_message(home, 5 * HOUR)
    layout = open_layout(home.queue)
    Path(layout.hashed("hold", message)).write_text("wait\n")
    with ScriptedSend(home) as send:
        send.fence()
        assert send.remote.silent and not send.found("delay .*")


def test_a_message_that_ends_before_its_notice_is_out_ends_after_it(home: Home) -> None:
    message = old_message(home, 5 * HOUR, local=[b"l@me.example.org"])
    with ScriptedSend(home) as send:
        job = send.local.job()
        send.remote.deliver(LATER)
        send.wait_for(r"delivery \d+: deferral: .*")
        send.local.report(job, b"Kok")
        send.signal(signal.SIGALRM)
        send.remote.deliver(b"Kok")
        send.wait_for(f"end msg {message}")
        assert send.clean.removed() == message
        send.fence()
        assert len(send.found("end msg .*")) == 1
        if lines := send.found("delay .*"):
            assert send.lines.index(lines[0]) < send.lines.index(f"end msg {message}")


def no_pid(home: Home) -> Callable[[], None]:
    """Make queue-enqueue fail; return what mends it."""
    pid, away = Path(home.queue, "pid"), Path(home.queue, "away")
    pid.rename(away)
    return lambda: void(away.rename(pid))


def void(_: object) -> None:
    pass


def test_a_notice_that_the_queue_does_not_take_is_tried_at_a_later_deferral_and_the_mail_goes_on(home: Home) -> None:
    message = old_message(home, 5 * HOUR)
    mend = no_pid(home)
    with ScriptedSend(home) as send:
        defer(send)
        send.wait_for(
            rf"warning: trouble injecting delay notice of msg {message}: queue-enqueue exited \d+; "
            "will try after a later deferral"
        )
        send.signal(signal.SIGALRM)
        defer(send)
        send.fence()
        assert len(send.found("warning: .*")) == 1, "it is tried again at once"
    mend()
    make_due(home, message)
    with ScriptedSend(home) as send:
        defer(send)
        send.wait_for(rf"delay msg {message} .*")
    assert len(notices(home)) == 1


def test_where_the_disk_does_not_keep_that_a_sender_was_told_this_run_remembers(home: Home) -> None:
    message = old_message(home, 5 * HOUR)
    mess = open_layout(home.queue).mess(message)
    # -D: the process that gets our signals is queue-send; -P: only calls about this path.
    fault = (need("strace"), "-D", "-o", os.devnull, "-P", mess, "-e", "inject=utimensat:error=EROFS", "--")
    with ScriptedSend(home, wrapper=fault) as send:
        defer(send)
        assert mess in send.wait_for("warning: unable to change .*; after a restart the notice is repeated")
        send.signal(signal.SIGALRM)
        defer(send)
        send.fence()
        assert len(send.found("delay .*")) == 1


def test_a_crash_before_it_is_on_the_disk_that_a_sender_was_told_repeats_the_notice_and_loses_nothing(
    home: Home,
) -> None:
    message = old_message(home, 5 * HOUR)
    layout = open_layout(home.queue)
    kill = ("-P", layout.mess(message), "-e", "inject=utimensat:signal=KILL")
    with ScriptedSend(home, wrapper=(need("strace"), "-D", "-o", os.devnull, *kill)) as send:
        send.remote.deliver(LATER)
        assert send.wait() == -signal.SIGKILL
    assert len(notices(home)) == 1 and Path(layout.hashed("remote", message)).read_bytes() == b"Tb@c\0"
    # strace kills at the end of the call as well as at its start: as if it had not been made.
    os.utime(layout.mess(message), (1, 1))
    for told in (2, 2):
        make_due(home, message)
        with ScriptedSend(home) as send:
            defer(send)
            if len(notices(home)) < told:
                send.wait_for(rf"delay msg {message} .*")
        assert len(notices(home)) == told
