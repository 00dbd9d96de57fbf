"""queuectl while queue-send runs: hold, release, delete, with peers that the test plays."""

import os
from pathlib import Path

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from support.processes.suite import wait_until
from support.queues.queued import classified_message, queue_message
from support.send.control import file, files, long_id, order, queuectl
from support.send.scripted_send import ScriptedSend

LATER = 4_000_000_000.0


def arrived(home: Home, send: ScriptedSend, *, due: float | None = None, remote: list[bytes] | None = None) -> int:
    """Have a new message announced; return its id."""
    message = classified_message(home, remote=remote or [b"b@c.example"], due=due)
    send.todo.classified(message)
    return message


def test_a_held_message_is_not_tried_until_it_is_released(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c.example"], due=LATER)
    with ScriptedSend(home) as send:
        send.fence()
        assert order(home, "hold", "--reason", "ask\nJo", long_id(home, message)) == "held 1 message"
        send.wait_for(f"hold msg {message}: ask Jo")
        assert file(home, "hold", message).read_bytes() == b"ask Jo\n"
        assert order(home, "flush", long_id(home, message)) == "flushed 0 messages"
        send.fence()
        assert send.remote.silent
        assert order(home, "release", long_id(home, message)) == "released 1 message"
        send.wait_for(f"release msg {message}")
        assert send.remote.job().recipients == [b"b@c.example"]
    assert not file(home, "hold", message).exists()


def test_hold_and_release_say_how_many_messages_they_touched(home: Home, send: ScriptedSend) -> None:
    messages = [arrived(home, send) for _ in range(3)]
    names = [long_id(home, message) for message in messages]
    assert order(home, "hold", names[0]) == "held 1 message"
    assert order(home, "hold", *names) == "held 2 messages"
    assert order(home, "hold", "--all") == "held 0 messages"
    assert order(home, "release", *names) == "released 3 messages"
    assert order(home, "release", "--all") == "released 0 messages"


def test_hold_and_flush_say_of_a_message_on_hold_that_it_stays_as_it_is(home: Home, send: ScriptedSend) -> None:
    names = [long_id(home, arrived(home, send)) for _ in range(2)]
    order(home, "hold", *names, "--reason", "ask Jo")
    check_that_it_is_said(home, names)


def test_they_say_so_while_queue_send_does_not_run(home: Home) -> None:
    names = [long_id(home, classified_message(home, remote=[b"b@c.example"])) for _ in range(2)]
    order(home, "hold", *names, "--reason", "ask Jo")
    check_that_it_is_said(home, names)


def check_that_it_is_said(home: Home, names: list[str]) -> None:
    done = queuectl(home, "hold", names[0], "--reason", "new")
    assert done.stderr == f"{names[0]}: it was on hold already, and keeps its reason\n"
    done = queuectl(home, "hold", "--all", "--reason", "new")
    assert done.stderr == "2 messages on hold already, with the reason as it was\n"
    done = queuectl(home, "flush", names[0])
    assert done.stderr == f"{names[0]}: it is on hold, and is not tried; queuectl release releases it\n"
    done = queuectl(home, "flush", "--all")
    assert done.stderr == "2 messages on hold and not tried; queuectl release releases them\n"
    assert "held: ask Jo" in order(home, "list", "--held")


def test_a_requeue_is_in_the_log_with_both_ids(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send)
    old = long_id(home, message)
    assert order(home, "requeue", old).endswith("requeued 1 message")
    send.wait_for(f"requeue msg {message}: {old} is {long_id(home, message)} now")


def test_what_is_in_flight_when_a_message_is_held_ends_and_counts(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send, remote=[b"a@c.example", b"b@d.example"])
    jobs = [send.remote.job(), send.remote.job()]
    assert order(home, "hold", long_id(home, message)) == "held 1 message"
    send.remote.report(jobs[0], b"Kok")
    send.remote.report(jobs[1], b"Zlater")
    send.wait_for("delivery .: deferral: later")
    send.fence()
    assert send.remote.silent and not send.found("end msg .*")
    assert order(home, "release", long_id(home, message)) == "released 1 message"
    assert send.remote.job().recipients == jobs[1].recipients


def test_a_message_released_while_it_is_in_flight_goes_on_after_that(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send)
    job = send.remote.job()
    order(home, "hold", long_id(home, message))
    order(home, "release", long_id(home, message))
    send.remote.report(job, b"Zlater")
    send.remote.deliver(b"Kok")
    send.wait_for(f"end msg {message}")


def test_a_deleted_message_ends_without_a_bounce(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send, remote=[b"a@c.example", b"b@d.example"])
    send.remote.deliver(b"Dnobody here")
    send.remote.deliver(b"Zlater")
    send.wait_for("delivery .: deferral: later")
    wait_until(lambda: file(home, "remote", message).read_bytes().startswith(b"D"), why="the failure and its mark")
    assert file(home, "bounce", message).exists()
    assert order(home, "delete", long_id(home, message)) == "deleted 1 message"
    send.wait_for(f"end msg {message}")
    assert send.clean.asked() == message
    assert not send.found("bounce msg .*")


def test_a_message_deleted_in_flight_ends_when_nothing_of_it_is(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send)
    job = send.remote.job()
    assert order(home, "delete", long_id(home, message)) == "deleted 1 message"
    send.fence()
    assert not send.found("end msg .*")
    assert order(home, "delete", long_id(home, message)) == "deleted 0 messages"
    send.remote.report(job, b"Dnobody here")
    send.wait_for(f"end msg {message}")
    assert not send.found("bounce msg .*")


def test_a_deletion_that_was_answered_is_finished_after_a_crash(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c.example"])
    with ScriptedSend(home) as send:
        send.remote.job()
        order(home, "delete", long_id(home, message))
        send.kill()
    with ScriptedSend(home) as send:
        send.wait_for(f"end msg {message}")
        assert send.clean.asked() == message
        assert send.remote.silent


def test_a_queued_message_that_is_deleted_ends_once_it_is_classified(home: Home, send: ScriptedSend) -> None:
    message = queue_message(home, [b"b@c.example"])
    birth = os.stat(open_layout(home.queue).mess(message)).st_mtime_ns // 1000 * 1000
    assert order(home, "delete", long_id(home, message)) == "deleted 1 message"
    layout = open_layout(home.queue)
    file(home, "info", message).write_bytes(b"Fa@b\0")
    os.utime(file(home, "info", message), ns=(birth, birth))
    file(home, "remote", message).write_bytes(b"Tb@c.example\0")
    os.unlink(layout.intd(message))
    os.unlink(layout.todo(message))
    send.todo.classified(message)
    send.wait_for(f"end msg {message}")
    assert send.remote.silent


def test_a_later_message_of_the_same_number_is_never_touched(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send, due=LATER)
    send.remote.deliver(b"Zlater")
    old = long_id(home, message)
    os.utime(file(home, "info", message), (1_700_000_000, 1_700_000_000))
    for command in ("hold", "delete", "bounce", "requeue", "flush", "release"):
        done = queuectl(home, command, old)
        assert (done.returncode, done.stderr) == (1, f"{old}: no such message\n")
        assert done.stdout.endswith("d 0 messages\n")
    send.fence()
    assert send.remote.silent and not send.found("(end|hold) msg .*")
    assert not [name for name in files(home) if name.startswith("hold/")]


def test_a_failed_report_after_a_hold_is_kept_for_the_bounce(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send)
    job = send.remote.job()
    order(home, "hold", long_id(home, message))
    send.remote.report(job, b"Dnobody here")
    send.wait_for("delivery 1: failure: nobody_here")
    send.fence()
    assert not send.found("(bounce|end) msg .*")
    order(home, "release", long_id(home, message))
    send.wait_for(f"bounce msg {message} qp .*")
    send.wait_for(f"end msg {message}")




def test_a_disk_that_refuses_is_a_temporary_failure_and_the_mail_goes_on(home: Home, send: ScriptedSend) -> None:
    message = arrived(home, send, remote=[b"a@c.example"])
    job = send.remote.job()
    for bucket in Path(home.queue, "hold").iterdir():
        bucket.rmdir()
    for command in ("hold", "delete", "bounce"):
        done = queuectl(home, command, long_id(home, message))
        assert (done.returncode, done.stdout) == (111, f"{'held' if command == 'hold' else command + 'd'} 0 messages\n")
        assert f"unable to change {file(home, 'hold', message)}: no such file" in done.stderr
    send.fence()
    # The line comes before the mark, and is taken back.
    told = [line.split(" ")[0] for line in send.found(f"(hold|delete|release) msg {message}.*")]
    assert told == ["hold", "release", "delete", "release", "hold", "release"]
    send.remote.report(job, b"Zlater")
    send.wait_for("delivery 1: deferral: later")
    assert order(home, "flush", "--all") == "flushed 1 message"
    send.remote.deliver(b"Kok")
    send.wait_for(f"end msg {message}")
