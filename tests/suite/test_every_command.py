"""Every command of queuectl as a process on a queue that the real programs have made, with queue-send up and down.

A command without a part here fails the test. A part runs its command for people and as JSON, and checks the exit code,
what is printed and the effect: on the disk, in the log, and at those who receive the mail. While queue-send is down,
what it does later is checked after its next start.
"""

import http.client
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from queue_admin.main import group
from queue_base.queue.layout import open_layout
from support.inject.injectors import USER
from support.inject.maildrop import maildrop
from support.inject.qmail_queue import QmailQueue, snapshot
from support.local.mailboxes import UID
from support.processes.forked import BIN, DAEMONS, fork_piped
from support.processes.suite import wait_until
from support.queues.real_queue import POOL, Mail, RealQueue, real_queue
from support.site import LOCAL

Part = Callable[[RealQueue], None]
PARTS: dict[str, Part] = {}


def part(name: str) -> Callable[[Part], Part]:
    """Register the part of a command."""

    def register(function: Part) -> Part:
        PARTS[name] = function
        return function

    return register


def commands(top: click.Command, name: str = "") -> Iterator[str]:
    """Yield the words of each command; of a group only if it does something by itself."""
    if not isinstance(top, click.Group) or top.invoke_without_command:
        yield name
    if isinstance(top, click.Group):
        for word, each in top.commands.items():
            yield from commands(each, f"{name} {word}".strip())


def test_every_command_has_a_part() -> None:
    assert set(PARTS) == set(commands(group))


def test_every_command_does_its_part_while_queue_send_runs() -> None:
    with real_queue(up=True) as queue:
        for each in PARTS.values():
            each(queue)
        queue.stop()
        check_end(queue)


def test_every_command_does_its_part_while_queue_send_is_stopped() -> None:
    with real_queue(up=False) as queue:
        for each in PARTS.values():
            each(queue)
        queue.check_afterwards()
        queue.stop()
        check_end(queue)


def check_end(queue: RealQueue) -> None:
    """See that all that was not changed is left, that what is on hold was not delivered, and that all is in order."""
    assert queue.queuectl("check") == ("", "")
    found = {each["id"]: each for each in queue.objects("list")}
    (held,) = [each for each in found.values() if each["held"]]
    assert set(found) == {held["id"], queue.dead.identity, *(mail.identity for mail in queue.pool)}
    assert not any(held["recipients"][0]["address"] in each.recipients for each in queue.server.received)
    assert not re.search("^(alert|warning): ", queue.log(), re.MULTILINE)


# The parts that only read come first: they know the whole queue.


@part("list")
def list_part(queue: RealQueue) -> None:
    lines = queue.queuectl("list").text.splitlines()
    states = {line.split()[0]: line for line in lines}
    assert len(states) == len(lines) == POOL + 1, lines  # One of them is on hold, and one is for the dead host.
    for mail, what in ((queue.held, "held: ask Jo"), (queue.pool[0], r"next \S+Z")):
        line = rf" classified \S+ \d+ <{mail.sender}> to \S+, remote 1 left, {what}, last: 451 4\.2\.0 try later$"
        assert re.search(line, states[mail.identity])
    found = {each["id"]: each for each in queue.objects("list")}
    assert set(found) == set(states)
    assert found[queue.held.identity]["held"] == "ask Jo"
    (recipient,) = found[mail.identity]["recipients"]
    assert (recipient["address"], recipient["done"]) == (mail.recipient, False)
    assert recipient["nexthop"] == f"127.0.0.1:{queue.server.port}"
    assert "451 4.2.0 try later" in recipient["reason"]
    assert queue.queuectl("list", "--sender", mail.sender, "-0").text == f"{mail.identity}\0"
    queue.queuectl("list", "--sender", "nobody@example.org", code=1)


@part("show")
def show_part(queue: RealQueue) -> None:
    mail = queue.pool[0]
    text = queue.queuectl("show", mail.identity).text
    assert f"sender: <{mail.sender}>" in text and f"pending <{mail.recipient}>" in text
    told = "remote: waits for its next attempt at " if queue.up else "queue-send does not run"
    assert re.search(f"^now: .*{told}", text, re.MULTILINE), text
    (found,) = queue.objects("show", mail.identity)
    assert found["id"] == mail.identity and told in str(found["now"])
    raw = queue.queuectl("show", "--raw", mail.identity).text
    assert raw.startswith("Received: ") and raw.endswith(f"\nSubject: to {mail.recipient}\n\nhello\n")
    if queue.up:
        told = f"now: remote: {queue.dead_nexthop} is dead, next probe at "
        assert told in queue.queuectl("show", queue.dead.identity).text
    gone = queue.queuectl("show", queue.local.identity, code=1).errors
    assert gone.count("\n") == 1 and queue.local.identity in gone


@part("stored")
def list_stored_mail(queue: RealQueue) -> None:
    """No domain is on demand here; what is stored is in test_etrn.py."""
    assert queue.queuectl("stored").text == ""
    assert queue.queuectl("stored", "example.net", code=1).text == ""


@part("mailq")
def mailq_part(queue: RealQueue) -> None:
    lines = queue.queuectl("mailq").text.splitlines()
    assert lines[0].startswith("----Queue ID-----") and lines[-1].endswith(f" in {POOL + 1} Requests.")
    assert any(line.startswith(f"{queue.held.identity}! ") for line in lines)
    assert sum("(451 4.2.0 try later)" in line for line in lines) == POOL - 1


@part("stat")
def stat_part(queue: RealQueue) -> None:
    code = 0 if queue.up else 111
    text = queue.queuectl("stat", code=code).text
    for line in (f"messages in queue: {POOL + 1}", f"classified: {POOL + 1}", "held: 1", "maildrop: 1", "corrupt: 0"):
        assert f"{line}\n" in text
    assert re.search(r"^queue-send: pid \d+, up " if queue.up else "^queue-send: not running$", text, re.MULTILINE)
    (found,) = queue.objects("stat", code=code)
    assert (found["messages"], found["held"], found["maildrop"]) == (POOL + 1, 1, 1)
    programs = {each["program"] for each in found["processes"]}
    if queue.up:
        assert (found["queue_send"], found["removing"]) == ("running", {"messages": 0, "wait": 0})
        # There is none without a domain.
        assert programs == set(DAEMONS) - {"queue-ondemand"}
    else:
        assert (found["queue_send"], found["removing"], programs) == ("not running", None, set())


@part("shape")
def shape_part(queue: RealQueue) -> None:
    rows = [line.split() for line in queue.queuectl("shape", "deferred").text.splitlines()]
    assert ["remote.example", str(POOL - 1)] in [row[:2] for row in rows]
    found = {each["domain"]: each["T"] for each in queue.objects("shape", "deferred", "hold")}
    assert found == {"TOTAL": POOL + 1, "remote.example": POOL, "dead.example": 1}


@part("top")
def top_part(queue: RealQueue) -> None:
    rows = [line.split() for line in queue.queuectl("top", "--by", "reason").text.splitlines()]
    assert rows[1][0] == str(POOL + 1) and any(row[0] == str(POOL) and "451" in row for row in rows[2:])
    found = {each["key"]: each["messages"] for each in queue.objects("top", "--by", "sender")}
    assert found == {mail.sender: 1 for mail in (*queue.pool, queue.held, queue.dead)}


@part("destinations")
def destinations_part(queue: RealQueue) -> None:
    if not queue.up:
        for form in ("text", "json"):
            shown = queue.queuectl("destinations", "--format", form, code=111)
            told = "queuectl: fatal: unable to show destinations: queue-send does not run; nothing is tried\n"
            assert shown == ("", told)
        return
    text = queue.queuectl("destinations").text
    assert f"remote: 0/20000 messages active, {POOL} waiting, 0/250 deliveries in flight\n" in text
    assert re.search(rf"^remote +{re.escape(queue.dead_nexthop)} +dead ", text, re.MULTILINE)
    *channels, found = queue.objects("destinations", queue.dead_nexthop)
    assert [each["channel"] for each in channels] == ["local", "remote"]
    assert (found["nexthop"], found["state"]) == (queue.dead_nexthop, "dead")
    queue.queuectl("destinations", "no.example", code=1)


@part("smtpd")
def smtpd_part(queue: RealQueue) -> None:
    # It is a service of its own (tests/smtpd/test_smtpd_status.py).
    shown = queue.queuectl("smtpd", code=111)
    told = "unable to show queue-smtpd: it does not run for this queue; its service starts it"
    assert shown == ("", f"queuectl: fatal: {told}\n")


@part("metrics")
def metrics_part(queue: RealQueue) -> None:
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(queue.queuectl("metrics", "--format", "openmetrics").text)
        for sample in family.samples
    }
    assert samples["queue_up",] == queue.up
    assert samples["queue_oldest_message_age_seconds",] > 0
    assert samples.get(("queue_messages", "deferred", "remote")) == (POOL if queue.up else None)
    assert samples.get(("queue_messages_marked", "held")) == (1 if queue.up else None)
    with served(queue, "metrics") as get:
        status, text = get("/metrics")
        assert status == 200 and f"\nqueue_up {float(queue.up)}\n" in text


@part("web")
def web_part(queue: RealQueue) -> None:
    with served(queue, "web") as get:
        status, page = get("/")
        assert status == 200 and ("does not run" in page) != queue.up
        status, page = get(f"/message/{queue.held.identity}")
        assert status == 200 and queue.held.recipient in page and "ask Jo" in page


@contextmanager
def served(queue: RealQueue, name: str) -> Iterator[Callable[[str], tuple[int, str]]]:
    """Have a command listen; give a function that gets a page from it. TERM ends it."""
    words = [str(BIN / "queuectl"), "--home", queue.home.path, name, "--listen", "127.0.0.1:0"]
    process = fork_piped("queuectl", words)
    assert process.stderr is not None
    line = process.stderr.readline().decode()
    found = re.fullmatch(r"queuectl: listening at http://127\.0\.0\.1:(\d+)/\w*\n", line)
    assert found, line
    port = int(found[1])

    def get(path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()

    try:
        yield get
    finally:
        process.terminate()
        text, errors = process.communicate()
    assert (process.wait(), text, errors) == (-signal.SIGTERM, b"", b"")


@part("log")
def log_part(queue: RealQueue) -> None:
    mail = queue.pool[0]
    where = [] if queue.up else ["--logs", str(queue.log_directory)]
    if not queue.up:
        assert "give --logs DIR" in queue.queuectl("log", mail.identity, code=100).errors
    lines = [line.partition(" ")[2] for line in queue.queuectl("log", mail.identity, *where).text.splitlines()]
    assert lines[0] == f"new msg {mail.number}" and f"from <{mail.sender}>" in lines[1]
    assert re.fullmatch(r"delivery \d+: deferral: .*451_4\.2\.0_try_later.*", lines[-1])
    found = queue.objects("log", queue.bounced.identity, *where)
    assert [each["line"] for each in found if "line" in each][-1] == f"end msg {queue.bounced.number}"
    (bounce,) = [each["bounce"] for each in found if "bounce" in each]
    assert re.search(rf"local joe@{LOCAL}", queue.queuectl("log", bounce, *where).text)
    if queue.up:
        assert queue.queuectl("log", "--follow", queue.bounced.identity).text.splitlines()[-1] == f"bounced as {bounce}"


@part("route")
def route_part(queue: RealQueue) -> None:
    assert "local: queue-local delivers it as" in queue.queuectl("route", f"ann@{LOCAL}").text
    there, here = queue.objects("route", "x@remote.example", f"ann@{LOCAL}")
    assert any(f"127.0.0.1:{queue.server.port}" in step for step in there["steps"])
    assert (there["channel"], there["code"], here["channel"], here["code"]) == ("remote", 0, "local", 0)


@part("users find")
def users_find_part(queue: RealQueue) -> None:
    assert ".qmail-default" in queue.queuectl("users", "find", f"ann@{LOCAL}").text
    (found,) = queue.objects("users", "find", f"ann@{LOCAL}")
    assert (found["source"], found["file"]) == ("alias", f"{queue.home.alias}/.qmail-default")
    queue.queuectl("users", "find", "x@remote.example", code=100)


@part("users build")
def users_build_part(queue: RealQueue) -> None:
    assert queue.queuectl("users", "build", code=111).errors.count("\n") == 1  # There is no users/assign.
    users = Path(queue.home.path, "users")
    users.mkdir(exist_ok=True)
    (users / "assign").write_text(f"=kim:kim:{UID}:{UID}:{queue.home.alias}:::\n.\n")
    assert queue.queuectl("users", "build").text == f"made {users}/cdb: 1 assignments\n"
    (found,) = queue.objects("users", "find", f"kim@{LOCAL}")
    assert (found["source"], found["account"]) == ("users/cdb", "kim")


@part("version")
def version_part(queue: RealQueue) -> None:
    (found,) = queue.objects("version")
    assert queue.queuectl("version").text.startswith(f"queue-suite {found['version']}, ")


@part("completion")
def completion_part(queue: RealQueue) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert f"_QUEUECTL_COMPLETE={shell}_complete" in queue.queuectl("completion", shell).text


@part("check")
def check_part(queue: RealQueue) -> None:
    assert queue.queuectl("check") == ("", "")
    stray = Path(queue.home.queue, "info", "0", "12")
    stray.touch(0o600)
    told = "info/0/12 is there, but mess/ has no such message: it cannot be delivered; "
    assert queue.queuectl("check", code=1).text.startswith(told)
    (found,) = queue.objects("check", code=1)
    assert found["path"] == "info/0/12"
    stray.unlink()


@part("config")
def config_part(queue: RealQueue) -> None:
    shown = queue.queuectl("config", "-n")
    rows = {line.split()[0]: line for line in shown.text.splitlines()}
    assert {"me", "smtproutes", "destinationinitial"} <= set(rows) and "queuelifetime" not in rows
    told = "" if queue.up else "queuectl: warning: queue-send does not run; these values are in force at its start\n"
    assert shown.errors == told
    found = {each["name"]: each for each in queue.objects("config")}
    assert found["destinationinitial"]["value"] == "1" and found["queuelifetime"]["source"] == "default"


@part("config show")
def config_show_part(queue: RealQueue) -> None:
    assert "604800" in queue.queuectl("config", "show", "queuelifetime").text
    (found,) = queue.objects("config", "show", "destinationcohorts")
    assert (found["name"], found["value"]) == ("destinationcohorts", "1")
    assert "do you mean queuelifetime?" in queue.queuectl("config", "show", "queuelifetme", code=100).errors


@part("config check")
def config_check_part(queue: RealQueue) -> None:
    wrong = Path(queue.home.control, "bouncelifetime")
    wrong.write_text("soon\n")
    (found,) = queue.objects("config", "check", code=1)
    assert (found["file"], found["line"]) == ("bouncelifetime", 1)
    wrong.unlink()
    assert queue.queuectl("config", "check") == ("", "")


@part("config set")
def config_set_part(queue: RealQueue) -> None:
    when = "in force" if queue.up else "queue-send does not run; in force at its start"
    shown = queue.queuectl("config", "set", "concurrencyremote", "17")
    assert shown == (f"control/concurrencyremote changed: {when}\n", "")
    assert Path(queue.home.control, "concurrencyremote").read_text() == "17\n"
    queue.when_up(lambda: queue.wait_for(r"^status: local \d+/10 remote \d+/17$"))
    assert "nothing was changed" in queue.queuectl("config", "set", "concurrencyremote", "x", code=100).errors
    if queue.up:
        assert "queue-start reads it" in queue.queuectl("config", "set", "processesremote", "2").text
        assert "  at the next start: 2\n" in queue.queuectl("config", "-n").text
        queue.queuectl("config", "set", "--unset", "processesremote")


# These change the queue.


@part("postman list")
def postman_list_part(queue: RealQueue) -> None:
    queue.queuectl("postman", "list", code=1)
    for number in (7, 8):
        Path(queue.home.queue, "postman", f"{number}_no-date").write_text("hello\n")
    assert queue.queuectl("postman", "list").text.startswith("7_no-date ")
    assert [each["message"] for each in queue.objects("postman", "list")] == [7, 8]


@part("postman show")
def postman_show_part(queue: RealQueue) -> None:
    assert queue.queuectl("postman", "show", "7_no-date").text == "hello\n"


@part("postman remove")
def postman_remove_part(queue: RealQueue) -> None:
    assert queue.queuectl("postman", "remove", "7_no-date").text == "removed 1 copy\n"
    assert queue.queuectl("postman", "remove", "--all").text == "removed 1 copy\n"
    assert not os.listdir(f"{queue.home.queue}/postman")


@part("maildrop list")
def maildrop_list_part(queue: RealQueue) -> None:
    assert queue.queuectl("maildrop", "list").text == f"uid {USER}: 1\n"
    (found,) = queue.objects("maildrop", "list", "--uid", str(USER))
    assert (found["file"], found["uid"], found["held"]) == (maildrop(queue.home)[0], USER, False)
    queue.queuectl("maildrop", "list", "--uid", str(USER + 1), code=1)


@part("maildrop remove")
def maildrop_remove_part(queue: RealQueue) -> None:
    (name,) = maildrop(queue.home)
    shown = queue.queuectl("maildrop", "remove", "--uid", str(USER), "--dry-run")
    assert shown == (f"{name}\n", "would have removed 1 file\n")
    assert queue.queuectl("maildrop", "remove", "--uid", str(USER)).text == "removed 1 file\n"
    assert not maildrop(queue.home)
    queue.queuectl("maildrop", "remove", "--uid", str(USER), code=1)


@part("maildrop hold")
def maildrop_hold_part(queue: RealQueue) -> None:
    queue.drop()
    names = maildrop(queue.home)
    assert queue.queuectl("maildrop", "hold", "--uid", str(USER)).text == "held 1 file\n"
    assert not maildrop(queue.home) and os.listdir(f"{queue.home.queue}/hold/maildrop") == names
    assert queue.queuectl("maildrop", "list").text == f"uid {USER}: 1 held\n"


@part("maildrop release")
def maildrop_release_part(queue: RealQueue) -> None:
    assert queue.queuectl("maildrop", "release", "--uid", str(USER)).text == "released 1 file\n"
    assert len(maildrop(queue.home)) == 1
    if queue.up:
        queue.continue_pickup()
    queue.when_up(lambda: wait_until(lambda: queue.delivered(f"dropped@{LOCAL}"), why="the mail of a user"))


def takes_and_delivers(queue: RealQueue, mail: Mail) -> None:
    """See a message arrive, or after the next start."""

    def check() -> None:
        queue.wait_for_mail(mail)
        queue.wait_for(rf"^end msg {mail.number}$")
        assert len(queue.received(mail)) == 1

    queue.when_up(check)


@part("hold")
def hold_part(queue: RealQueue) -> None:
    mail = queue.take()
    assert queue.queuectl("hold", mail.identity, "--reason", "wait for Jo").text == "held 1 message\n"
    assert queue.file("hold", mail).read_text() == "wait for Jo\n"
    if queue.up:
        queue.wait_for(rf"^hold msg {mail.number}: wait for Jo$")
    (found,) = queue.objects("list", mail.identity)
    assert found["held"] == "wait for Jo"
    queue.accept(mail)  # Its host would take it now.
    queue.queuectl("flush", mail.identity)
    assert queue.queuectl("hold", "--standing", "--sender", "spam@example.org").text.endswith("held 0 messages\n")
    (found,) = queue.objects("hold", "--standing", "--list")
    assert found["sender"] == "spam@example.org"
    (spam,) = queue.inject(("spam@example.org", f"spam@{LOCAL}"))

    def check() -> None:
        queue.wait_for(rf"^hold msg {spam.number}: ")
        assert queue.queuectl("delete", spam.identity).text == "deleted 1 message\n"
        assert not queue.delivered(f"spam@{LOCAL}")

    queue.when_up(check)


@part("release")
def release_part(queue: RealQueue) -> None:
    mail = queue.held
    queue.accept(mail)
    assert queue.queuectl("release", mail.identity).text == "released 1 message\n"
    assert not queue.file("hold", mail).exists()
    if queue.up:
        queue.wait_for(rf"^release msg {mail.number}$")
    takes_and_delivers(queue, mail)


@part("resubmit")
def resubmit_part(queue: RealQueue) -> None:
    if not queue.up:
        assert "it does not run" in queue.queuectl("resubmit", "--all", code=111).errors
        return
    assert queue.queuectl("resubmit", "--all").text == "resubmitted 0 messages\n"
    text = queue.queuectl("resubmit", queue.pool[0].identity).text
    assert text == f"{queue.pool[0].identity}: does not wait for queue-todo\nresubmitted 0 messages\n"


@part("requeue")
def requeue_part(queue: RealQueue) -> None:
    mail = queue.take()
    queue.accept(mail)
    text = queue.queuectl("requeue", mail.identity).text
    assert text.endswith("requeued 1 message\n")
    assert re.search(rf"\b{mail.number}-(?!{mail.identity.partition('-')[2]})\w+", text), text
    takes_and_delivers(queue, mail)


@part("delete")
def delete_part(queue: RealQueue) -> None:
    mail = queue.take()
    queue.accept(mail)
    shown = queue.queuectl("delete", "--sender", mail.sender, "--dry-run")
    assert shown == (f"{mail.identity}\n", "would have deleted 1 message\n")
    assert queue.queuectl("delete", "--sender", mail.sender).text == "deleted 1 message\n"
    queue.queuectl("list", mail.identity, code=1)
    if queue.up:
        queue.wait_for(rf"^end msg {mail.number}$")
    wait_until(lambda: not queue.file("mess", mail).exists(), why="the removal")
    queue.when_up(lambda: wait_until(lambda: not queue.received(mail)))
    again = queue.queuectl("delete", mail.identity, code=1)
    assert again == ("deleted 0 messages\n", f"{mail.identity}: no such message\n")


@part("bounce")
def bounce_part(queue: RealQueue) -> None:
    mail = queue.take()
    queue.accept(mail)
    later = "" if queue.up else f"{mail.identity}: bounces when queue-send starts\n"
    assert queue.queuectl("bounce", "--recipient", mail.recipient) == (f"{later}bounced 1 message\n", "")

    def check() -> None:
        queue.wait_for(rf"^bounce msg {mail.number} qp ")
        wait_until(lambda: [each for each in queue.server.received if mail.sender in each.recipients], why="the bounce")
        assert not queue.received(mail)

    queue.when_up(check)


@part("flush")
def flush_part(queue: RealQueue) -> None:
    mail = queue.take()
    queue.accept(mail)
    assert queue.queuectl("flush", "--recipient", mail.recipient).text == "flushed 1 message\n"
    takes_and_delivers(queue, mail)


@part("import-aliases")
def import_aliases_part(queue: RealQueue) -> None:
    source = queue.log_directory.with_name("aliases")
    source.write_text(f"lee: kay@{LOCAL}\n")
    file = Path(queue.home.alias, ".qmail-lee")
    assert "+&kay@" in queue.queuectl("import-aliases", "--dry-run", str(source)).text and not file.exists()
    counts = "1 files written, 0 removed, 0 unchanged"
    assert queue.queuectl("import-aliases", str(source)).text == f"{source}: {counts}\n"
    assert f"&kay@{LOCAL}\n" in file.read_text()
    queue.inject(("a@example.org", f"lee@{LOCAL}"))
    queue.when_up(lambda: wait_until(lambda: queue.delivered(f"kay@{LOCAL}"), why="the mail to an alias"))


@part("passwd")
def passwd_part(queue: RealQueue) -> None:
    file = Path(queue.home.control, "smtpdusers")
    assert queue.queuectl("passwd", "joe", given=b"open sesame\n").text == "joe has a new password\n"
    assert queue.queuectl("passwd", "--list").text == "joe\n"
    assert file.stat().st_mode & 0o777 == 0o640 and b"sesame" not in file.read_bytes()
    assert queue.queuectl("passwd", "--delete", "joe").text == "joe is removed\n"
    queue.queuectl("passwd", "--delete", "joe", code=1)
    file.unlink()


@part("init")
def init_part(queue: RealQueue) -> None:
    before = snapshot(Path(queue.home.control))
    assert queue.queuectl("init", queue.home.path, "--as-me") == ("", "")
    assert snapshot(Path(queue.home.control)) == before
    new = queue.log_directory.with_name("new")
    text = queue.queuectl("init", str(new), "--me", "new.example.org", "--as-me", "--split", "5").text
    assert f"made {new}/queue/lock/trigger\n" in text and open_layout(f"{new}/queue").split == 5
    assert queue.queuectl("init", str(new), "--split", "6", "--as-me", code=100).errors.count("\n") == 1


@part("copy")
def copy_part(queue: RealQueue) -> None:
    copy = str(queue.log_directory.with_name("copy"))
    lines = queue.queuectl("copy", copy).text.splitlines()
    assert re.match(r"copied \d+ messages and \d+ files of maildrop to ", lines[0])
    assert lines[-1] == f"it does not start before: queuectl repair {copy} --take-over"
    copied = [json.loads(line) for line in queue.queuectl("--home", copy, "list", "--format", "json").text.splitlines()]
    assert {mail.sender for mail in (*queue.pool, queue.dead)} <= {each["sender"] for each in copied}
    assert "run" in queue.queuectl("repair", copy, "--take-over").text
    assert queue.queuectl("check", copy) == ("", "")


@part("repair")
def repair_part(queue: RealQueue) -> None:
    assert queue.queuectl("repair", "--dry-run").text == "findings: 0\n"
    if queue.up:
        refused = queue.queuectl("repair", code=111).errors
        assert refused.count("\n") == 1 and "queue-send" in refused
        return
    stray = Path(queue.home.queue, "info", "0", "12")
    stray.write_text("no message\n")
    stray.chmod(0o600)
    assert queue.objects("repair")[0].keys() == {"repaired"}
    unplaced = Path(queue.home.queue, "corrupt", "unplaced", "12")
    assert (unplaced / "info").read_text() == "no message\n" and not stray.exists()
    shutil.rmtree(unplaced)
    assert queue.queuectl("repair").text == f"{queue.home.queue} is in order\n"


@part("adopt")
def adopt_part(queue: RealQueue) -> None:
    if queue.up:
        refused = queue.queuectl("adopt", "--as-me", code=111).errors
        assert refused.count("\n") == 1 and "queue-send" in refused
    else:
        assert "changed owner or mode of " in queue.queuectl("adopt", "--as-me").text
    qmail = QmailQueue(queue.log_directory.with_name("qmail"))
    qmail.fill()
    assert "changed owner or mode of " in queue.queuectl("adopt", qmail.home.path, "--as-me").text
    listed = queue.queuectl("--home", qmail.home.path, "list", "-0").text.split("\0")
    assert {str(qmail.messages[state]) for state in ("S4", "S5")} <= {name.partition("-")[0] for name in listed}
