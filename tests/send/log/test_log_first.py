"""queue-send prints a line before what it tells of has a consequence, so a kill never leaves one without the other."""

import os
import re
from pathlib import Path

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.files.marks import identify
from queue_wire.pipes.cleaning import REMOVED
from queue_wire.pipes.notice import REMOTE, Arrived, pack_arrived
from support.processes.suite import wait_until
from support.queues.queued import classified_message, injected, queue_message
from support.send.control import long_id, order
from support.send.scripted_send import ScriptedSend
from support.tools import need


def traced(*options: str) -> tuple[str, ...]:
    """Return the words before a command that is to be traced: itself (-D), its threads and queue-enqueue (-f)."""
    return (need("strace"), "-D", "-f", "-y", "-s", "4096", *options)


def test_each_line_is_written_before_what_follows_from_it(home: Home, tmp_path: Path) -> None:
    message = classified_message(home, remote=[b"b@c", b"d@c"])
    trace = tmp_path / "trace"
    with ScriptedSend(home, wrapper=traced("-o", str(trace), "-e", "trace=write,pwrite64,unlink")) as send:
        job = send.remote.job()
        send.remote.report(job, b"Kok", b"Dno such user")
        assert send.clean.removed() == message
        send.wait_for(f"end msg {message}")
    lines = trace.read_text().splitlines()

    def place(pattern: str) -> int:
        found = [number for number, line in enumerate(lines) if re.search(pattern, line)]
        assert found, f"no {pattern}"
        return found[0]

    layout = open_layout(home.queue)
    bounce = re.escape(layout.bounce(message))
    remote = re.escape(layout.hashed("remote", message))
    pairs = [
        (r"write\(1<.*starting delivery 2: ", r"write\(5<"),
        (r"write\(1<.*delivery 1: success: ", rf"write.*<{remote}>, \"D"),
        (r"write\(1<.*delivery 2: failure: ", rf"write.*<{bounce}>"),
        (rf"write\(1<.*bounce msg {message} ", rf"unlink\(\"{bounce}"),
        (rf"write\(1<.*end msg {message}", r"write\(7<"),
    ]
    late = [pair for pair in pairs if place(pair[0]) > place(pair[1])]
    assert late == []


def test_the_lines_of_an_announced_message_are_written_before_its_mark_and_its_removal(
    home: Home, tmp_path: Path
) -> None:
    Path(home.control, "classifyafter").write_text("60\n")
    message = queue_message(home, [b"b@c"])
    layout = open_layout(home.queue)
    birth = os.stat(layout.mess(message)).st_mtime_ns // 1000
    known = identify(message, birth, Path(layout.todo(message)).read_bytes())
    notice = Arrived(
        message, birth, 18, b"a@example.org", [(REMOTE, b"b@c")], True, known.size, known.check, pid=8123, uid=1000
    )
    trace = tmp_path / "trace"
    with ScriptedSend(home, wrapper=traced("-o", str(trace), "-e", "trace=write,pwrite64")) as send:
        send.todo.send(pack_arrived(notice))
        send.remote.report(send.remote.job(), b"Kok")
        assert send.clean.receive().startswith(b"T%d/" % message)
        send.clean.send(REMOVED)
        send.wait_for(f"end msg {message}")
    lines = trace.read_text().splitlines()
    arrival = rf"write\(1<.*new msg {message}\\ninfo msg {message}: bytes 18 from <a@example.org> qp 8123 uid 1000\\n"
    marks = re.escape(f"{home.queue}/marks")
    steps = [
        (arrival, r"write\(1<.*starting delivery 1: "),
        (r"write\(1<.*starting delivery 1: ", r"write\(5<"),
        (r"write\(1<.*delivery 1: success: ", rf"pwrite64\(\d+<{marks}>, \"QSM1"),
        (rf"pwrite64\(\d+<{marks}>, \"QSM1", r"write\(7<"),
        (rf"write\(1<.*end msg {message}", r"write\(7<"),
    ]
    late = [step for step in steps if first_place(lines, step[0]) > first_place(lines, step[1])]
    assert late == []


def first_place(lines: list[str], pattern: str) -> int:
    found = [number for number, line in enumerate(lines) if re.search(pattern, line)]
    assert found, f"no {pattern}"
    return found[0]


def test_the_line_of_each_order_is_written_before_its_mark(home: Home, tmp_path: Path) -> None:
    held, gone = (classified_message(home, remote=[b"b@c"], due=4_000_000_000) for _ in range(2))
    trace = tmp_path / "trace"
    wrapper = traced("-o", str(trace), "-e", "trace=write,rename,unlink,pwrite64")
    with ScriptedSend(home, wrapper=wrapper) as send:
        send.fence()
        order(home, "hold", long_id(home, held))
        order(home, "release", long_id(home, held))
        order(home, "delete", long_id(home, gone))
        assert send.clean.removed() == gone
        send.fence()
        send.kill()
    lines, layout = trace.read_text().splitlines(), open_layout(home.queue)
    marks = {message: re.escape(layout.hashed("hold", message)) for message in (held, gone)}
    pairs = [
        (rf"write\(1<.*hold msg {held}: ", rf"rename\(.*\"{marks[held]}\""),
        (rf"write\(1<.*release msg {held}", rf"unlink\(\"{marks[held]}\""),
        (rf"write\(1<.*delete msg {gone}: by the administrator", rf"rename\(.*\"{marks[gone]}\""),
        (rf"write\(1<.*end msg {gone}", r"write\(7<"),
    ]
    late = [pair for pair in pairs if first_place(lines, pair[0]) > first_place(lines, pair[1])]
    assert late == []


def test_a_bounce_that_is_asked_for_is_told_of_before_its_failures_and_its_marks(home: Home, tmp_path: Path) -> None:
    message = classified_message(home, remote=[b"b@c", b"d@e"], local=[b"f@g"], due=4_000_000_000)
    trace = tmp_path / "trace"
    wrapper = traced("-o", str(trace), "-e", "trace=write,rename,pwrite64")
    with ScriptedSend(home, wrapper=wrapper) as send:
        send.fence()
        order(home, "bounce", long_id(home, message))
        assert send.clean.removed() == message
        send.wait_for(f"end msg {message}")
        send.kill()
    lines, layout = trace.read_text().splitlines(), open_layout(home.queue)
    bounce = re.escape(layout.bounce(message))
    remote, local = (re.escape(layout.hashed(kind, message)) for kind in ("remote", "local"))
    pairs = [
        (rf"write\(1<.*hold msg {message}: returned", rf"rename\(.*\"{re.escape(layout.hashed('hold', message))}\""),
        (r"write\(1<.*delivery 1: failure: ", rf"write\(\d+<{bounce}>.*<f@g>"),
        (r"write\(1<.*delivery 1: failure: ", rf"pwrite64\(\d+<{local}>"),
        (r"write\(1<.*delivery 3: failure: ", rf"write\(\d+<{bounce}>.*<b@c>"),
        (r"write\(1<.*delivery 3: failure: ", rf"pwrite64\(\d+<{remote}>"),
    ]
    late = [pair for pair in pairs if first_place(lines, pair[0]) > first_place(lines, pair[1])]
    assert late == []


def test_a_bounce_is_told_of_before_its_own_message_although_queue_enqueue_has_not_ended(home: Home) -> None:
    message = classified_message(home, bounce=b"<x@c>:\nnever\n\n")
    slow = traced("-o", os.devnull, "-e", "trace=exit_group", "-e", "inject=exit_group:delay_enter=2000000")
    with ScriptedSend(home, wrapper=slow) as send:
        wait_until(lambda: injected(home), why="the bounce in todo/")
        [(envelope, _)] = injected(home)
        assert not send.found("bounce msg .*")
        send.todo.log(b"info msg 7: bytes 3 from <> qp %d uid 0" % envelope.pid)
        send.wait_for("info msg 7: .*")
        assert send.clean.removed() == message
        send.wait_for(f"end msg {message}")
        told = [line for line in send.lines if line.startswith(("bounce", "info", "end"))]
    assert told == [
        f"bounce msg {message} qp {envelope.pid}",
        f"info msg 7: bytes 3 from <> qp {envelope.pid} uid 0",
        f"end msg {message}",
    ]
