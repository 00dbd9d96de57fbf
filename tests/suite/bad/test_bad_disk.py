"""A disk that is full or may not be written to, with the suite running: injectors refuse, mail waits."""

import signal
from pathlib import Path

from support.faults.trouble import GOOD_ENVELOPE, disk_free, disk_full, held_to_permissions, held_to_size, run_enqueue
from support.local.good_mail import GoodMail
from support.processes.suite import Suite, enqueue, wait_until
from support.queues.letters import letter_text


def test_an_injector_on_a_full_disk_exits_53_and_leaves_nothing(mail: GoodMail) -> None:
    with Suite(mail.home) as suite:
        done = run_enqueue(mail.home, b"Subject: large\n\n" + b"x" * 100_000, GOOD_ENVELOPE, held_to_size(50_000))
        assert done.returncode == 53
        assert b"unable to write" in done.stderr
        assert b"file too large" in done.stderr
        assert mail.files() == []
        mail.check_alive(suite, "after-full")


def test_queue_todo_on_a_full_disk_defers_with_a_warning_and_loses_nothing(mail: GoodMail) -> None:
    mail.site.control("classifyafter", "0\n")  # Otherwise it writes nothing.
    with Suite(mail.home) as suite:
        disk_full(suite.daemon("queue-todo"))
        mail.send("waits")
        suite.wait_for(r"warning: queue-todo: unable to classify msg \d+: .*file too large; will try again later")
        assert suite.count("new msg") == 0
        disk_free(suite.daemon("queue-todo"))
        mail.check_alive(suite, "beside-waits")
        assert suite.stop() == 0
    with Suite(mail.home):
        mail.check("waits")
        wait_until(lambda: mail.files() == [], why="the queue to be empty")


def test_a_delivery_to_a_full_disk_is_deferred_and_leaves_nothing_in_the_maildir(mail: GoodMail) -> None:
    with Suite(mail.home) as suite:
        disk_full(suite.daemon("queue-local"))
        mail.send("kept")
        suite.wait_for(r"^delivery \d+: deferral: .*[Ff]ile_too_large")
        assert [path for path in mail.site.maildir.rglob("*") if path.is_file()] == []
        disk_free(suite.daemon("queue-local"))
        suite.signal(signal.SIGALRM)
        mail.check("kept")
        suite.wait_for("end msg")


def test_an_injector_that_may_not_write_to_the_queue_says_so_and_exits_with_a_temporary_code(mail: GoodMail) -> None:
    pid = Path(mail.home.queue, "pid")
    pid.chmod(0o555)
    with Suite(mail.home) as suite:
        done = run_enqueue(mail.home, letter_text("shut"), GOOD_ENVELOPE, held_to_permissions())
        assert done.returncode == 63
        assert done.stderr.startswith(f"queue-enqueue: fatal: unable to create {pid}/".encode())
        assert b"permission denied" in done.stderr
        assert mail.files() == []
        pid.chmod(0o755)
        mail.check_alive(suite, "after-shut")


def test_mail_waits_with_a_warning_where_queue_todo_may_not_write(mail: GoodMail) -> None:
    mail.site.control("classifyafter", "0\n")  # Otherwise it writes nothing.
    buckets = [*Path(mail.home.queue, "info").iterdir()]
    with Suite(mail.home, wrapper=held_to_permissions()) as suite:
        for bucket in buckets:
            bucket.chmod(0o555)
        mail.send("barred")
        suite.wait_for(r"warning: queue-todo: unable to classify msg \d+: .*/info/.*: permission denied; will try")
        for bucket in buckets:
            bucket.chmod(0o755)
        mail.check_alive(suite, "beside-barred")
    with Suite(mail.home):
        mail.check("barred")


def test_a_failure_that_cannot_be_written_down_is_tried_again_and_bounced_later(mail: GoodMail) -> None:
    with Suite(mail.home) as suite:
        disk_full(suite.process.pid)
        done = enqueue(mail.home, b"joe@me.example.org", [b"refused@remote.example"], letter_text("refused"))
        assert done.returncode == 0
        suite.wait_for(r"^delivery 1: failure: ")
        suite.wait_for(r"warning: unable to append to .*bounce.*: file too large; will try again later")
        disk_free(suite.process.pid)
        suite.signal(signal.SIGALRM)
        suite.wait_for(r"^delivery 2: failure: ")
        suite.wait_for(r"^bounce msg \d+ qp \d+")
        wait_until(lambda: mail.site.delivered_to("joe@me.example.org"), why="the bounce")
        [bounce] = mail.site.delivered_to("joe@me.example.org")
        assert b"<refused@remote.example>:\n" in bounce
        mail.check_alive(suite, "after-refused")
