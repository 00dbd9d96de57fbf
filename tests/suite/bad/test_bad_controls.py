"""Control files that cannot be read or parsed, with the suite running: no mail is lost or bounced for them."""

import signal

from support.faults.trouble import held_to_permissions
from support.local.good_mail import GoodMail
from support.processes.suite import Suite, wait_until
from support.site import LOCAL


def test_a_control_file_that_cannot_be_parsed_at_the_start_is_an_alert_and_mail_moves(mail: GoodMail) -> None:
    path = mail.control("concurrencyremote", "many\n")
    with Suite(mail.home) as suite:
        suite.wait_for(rf"alert: unable to parse {path} line 1: not a number from .*: 'many'; the default is used")
        assert suite.count(r"status: local 0/\d+ remote 0/250$")
        mail.check_alive(suite, "default")
        path.write_text("5\n")
        suite.signal(signal.SIGHUP)
        suite.wait_for(r"status: local 0/\d+ remote 0/5$")


def test_a_control_file_that_may_not_be_read_at_the_start_is_an_alert_and_mail_moves(mail: GoodMail) -> None:
    path = mail.control("concurrencyremote", "5\n")
    path.chmod(0)
    with Suite(mail.home, wrapper=held_to_permissions()) as suite:
        suite.wait_for(rf"alert: unable to read {path}: permission denied; the default is used")
        mail.check_alive(suite, "default")


def test_without_a_name_for_this_host_nothing_is_started(mail: GoodMail) -> None:
    path = mail.control("me", "\n")
    suite = Suite(mail.home)
    assert suite.process.wait(30) == 111
    suite.stop()
    (line,) = suite.lines
    assert line.startswith(f"queue-start: alert: cannot start: unable to read {path}: it is missing or empty; ")


def test_control_files_that_cannot_be_read_at_hup_leave_the_old_ones_in_force(mail: GoodMail) -> None:
    limit, hosts = mail.control("concurrencyremote", "5\n"), mail.control("locals", f"{LOCAL}\n")
    with Suite(mail.home, wrapper=held_to_permissions()) as suite:
        mail.check_alive(suite, "first-controls")
        hosts.chmod(0)
        suite.signal(signal.SIGHUP)
        suite.wait_for(
            rf"alert: queue-todo: unable to reread controls: unable to read {hosts}: permission denied; the old"
        )
        limit.write_text("-1\n")
        suite.signal(signal.SIGHUP)
        suite.wait_for(rf"alert: unable to reread controls: unable to parse {limit} line 1: not a number from .*: '-1'")
        mail.check_alive(suite, "old-controls")
        hosts.chmod(0o644)
        limit.write_text("6\n")
        suite.signal(signal.SIGHUP)
        suite.wait_for(r"status: local 0/10 remote 0/6")
        mail.check_alive(suite, "new-controls")


def test_a_control_file_that_two_programs_cannot_read_is_an_alert_of_each_under_its_name(mail: GoodMail) -> None:
    with Suite(mail.home) as suite:
        mail.check_alive(suite, "before")
        mail.control("me", "")
        suite.signal(signal.SIGHUP)
        suite.wait_for(r"^alert: unable to reread controls: .*/me: .*; the old ones stay$")
        suite.wait_for(r"^alert: queue-todo: unable to reread controls: .*/me: .*; the old ones stay$")


def test_nothing_is_classified_by_rules_that_cannot_be_read_until_they_can(mail: GoodMail) -> None:
    hosts = mail.control("locals", f"{LOCAL}\n")
    hosts.chmod(0)
    with Suite(mail.home, wrapper=held_to_permissions()) as suite:
        mail.send("patient")
        suite.wait_for(
            rf"alert: queue-todo: unable to reread controls: unable to read {hosts}: permission denied; nothing"
        )
        assert suite.count("new msg") == 0
        hosts.chmod(0o644)
        suite.signal(signal.SIGHUP)
        mail.check("patient")


def test_routes_that_cannot_be_parsed_defer_mail_and_bounce_none(mail: GoodMail) -> None:
    mail.control("smtproutes", ":127.0.0.1:port\n")
    with Suite(mail.home) as suite:
        suite.wait_for(r"queue-remote: alert: unable to parse .*/smtproutes")
        mail.send("routed")
        suite.wait_for(r"^delivery \d+: deferral: ")
        wait_until(lambda: mail.has_here("routed"), why="the local copy")
        mail.route()
        suite.signal(signal.SIGALRM)
        mail.check("routed")
        suite.wait_for("end msg")
        assert suite.count("bounce|failure") == 0


def test_where_everybody_may_write_to_a_control_file_nothing_is_started(mail: GoodMail) -> None:
    path = mail.control("concurrencyremote", "5\n")
    path.chmod(0o666)
    suite = Suite(mail.home)
    assert suite.process.wait(30) == 111
    suite.stop()
    (line,) = suite.lines
    assert line.startswith(f"queue-start: alert: cannot start: unable to use {path}: everybody may write to it ")
