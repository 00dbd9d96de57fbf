"""queuectl log: all lines about one message and nothing else, whatever number and delivery numbers were used again."""

import bz2
import gzip
import itertools
import json
import lzma
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_admin.home.systemd_units import UnitFacts, units
from queue_admin.logs import find_log as find_module
from queue_admin.logs.find_log import find_log, find_smtpd_log, source_of
from queue_admin.logs.log_files import LogDirectory, unpack_entry
from queue_admin.logs.message_log import MessageLog
from queue_admin.logs.smtp_session import session_lines
from queue_admin.main import main
from queue_base.errors import Permanent
from queue_base.home import Home
from queue_wire.files.stamp import pack_stamp
from queue_wire.ids import pack_long_id
from support.inject.qmail_queue import snapshot
from support.plugins.strategies import garbage
from support.processes.suite import wait_until
from support.queues.home import make_several
from support.queues.listed_queue import BIRTH, Queue
from support.tools import need

START = BIRTH * 1000  # Nanoseconds.
SECOND = 10**9
ID = pack_long_id(457, BIRTH)

# Two runs of queue-send: the number 457 is used three times, and so are delivery numbers.
LINES = """
-9 new msg 457
-9 info msg 457: bytes 5 from <before@example.org> qp 1 uid 7
-9 starting delivery 3: msg 457 to remote x@example.net
-8 delivery 3: success: earlier/
-8 end msg 457
-1 status: local 0/10 remote 0/20
1 new msg 4571
1 info msg 4571: bytes 5 from <other@example.org> qp 2 uid 7
1 new msg 457
1 info msg 457: bytes 2310 from <ann@example.org> qp 3 uid 7
2 starting delivery 3: msg 457 to remote joe@example.com
2 starting delivery 4: msg 4571 to remote jim@example.com
3 delivery 4: success: not_457_/_msg_457/
3 delivery 3: deferral: Remote_host_said:_450_later/
4 starting delivery 5: msg 457 to remote joe@example.com
5 status: local 0/10 remote 0/20
5 starting delivery 5: msg 4571 to remote jim@example.com
6 delivery 5: success: of_the_second_run/
6 hold msg 4571: as with msg 457
6 warning: unable to open x: msg 457 is not a number here
7 starting delivery 6: msg 457 to remote joe@example.com
8 delivery 6: failure: no/
8 bounce msg 457 qp 77
8 end msg 457
8 new msg 460
8 info msg 460: bytes 900 from <> qp 77 uid 7
9 new msg 457
9 info msg 457: bytes 5 from <after@example.org> qp 9 uid 7
9 delivery 6: success: later/
9 end msg 457
"""
MINE = [
    "1 new msg 457",
    "1 info msg 457: bytes 2310 from <ann@example.org> qp 3 uid 7",
    "2 starting delivery 3: msg 457 to remote joe@example.com",
    "3 delivery 3: deferral: Remote_host_said:_450_later/",
    "4 starting delivery 5: msg 457 to remote joe@example.com",
    "6 warning: unable to open x: msg 457 is not a number here",
    "7 starting delivery 6: msg 457 to remote joe@example.com",
    "8 delivery 6: failure: no/",
    "8 bounce msg 457 qp 77",
    "8 end msg 457",
]


def timed(text: str) -> list[tuple[int, bytes]]:
    """Return (time, line) of lines that begin with seconds after BIRTH."""
    found = (line.partition(" ") for line in text.strip().splitlines())
    return [(START + int(seconds) * SECOND, line.encode()) for seconds, _, line in found]


def stamped(lines: list[tuple[int, bytes]]) -> bytes:
    return b"".join(b"%s %s\n" % (pack_stamp(when), text) for when, text in lines)


def chosen(text: str, birth: int = BIRTH, message: int = 457) -> tuple[list[str], MessageLog]:
    """Return the lines about a message with their seconds."""
    log, found = MessageLog(message, birth), []
    for when, line in timed(text):
        if log.may_concern(pack_stamp(when) + b" " + line):
            found += log.take(when, line)
    return [f"{(when - START) // SECOND} {line.decode()}" for when, line in found], log


def run(*words: str) -> int:
    return main(["queuectl", *words])


def test_the_lines_of_one_message_are_chosen_and_no_others() -> None:
    found, log = chosen(LINES)
    assert found == MINE
    assert log.over and [own[:2] for own in log.made] == [("bounce", 460)]
    assert (log.made[0].when - START) // SECOND == 8


def test_a_message_that_was_requeued_begins_where_its_birth_is() -> None:
    found, log = chosen(LINES, BIRTH + 2_500_000)
    assert found[0] == "3 delivery 3: deferral: Remote_host_said:_450_later/" or found == MINE[4:]
    assert not log.begins_new and log.over


def test_a_message_that_is_logged_twice_after_a_kill_is_one_message() -> None:
    again = "1 new msg 457\n1 info msg 457: bytes 1 from <a@b> qp 3 uid 7\n"
    found, log = chosen(again + again.replace("1 new", "2 new").replace("1 info", "2 info") + "3 end msg 457\n")
    assert [line.partition(" ")[2] for line in found] == [
        *(line.partition(" ")[2] for line in (again + again).splitlines()), "end msg 457",
    ]  # fmt: skip
    assert log.over


def test_where_the_end_is_lost_the_next_message_with_the_number_is_another_one() -> None:
    text = "1 new msg 457\n1 info msg 457: bytes 1 from <a@b> qp 3 uid 7\n"
    found, log = chosen(text + "5 new msg 457\n5 info msg 457: bytes 1 from <a@b> qp 4 uid 7\n6 end msg 457\n")
    assert found == text.splitlines()
    assert log.over


def test_a_delay_notice_is_found_and_a_bounce_that_never_comes_is_not_waited_for() -> None:
    text = "1 new msg 457\n1 delay msg 457 qp 5\n2 new msg 9\n2 info msg 9: bytes 1 from <> qp 5 uid 7\n"
    found, log = chosen(text + "3 bounce msg 457 qp 6\n3 end msg 457\n1000 new msg 8\n1001 info msg 8: x\n")
    assert [own[:2] for own in log.made] == [("delay", 9)]
    assert log.over and len(found) == 4


STORED = f"""\
1 new msg 457
1 info msg 457: bytes 5 from <ann@example.org> qp 3 uid 7
1 starting delivery 3: msg 457 to remote joe@shop.example
2 ondemand shop.example stored {ID}: bytes 5 from <ann@example.org> to joe@shop.example
2 ondemand shop.example stored {ID}: bytes 5 from <ann@example.org> to jim@shop.example
2 delivery 3: success: stored_for_shop.example/
2 end msg 457
"""
OTHERS = """\
1000 new msg 457
1000 info msg 457: bytes 5 from <ann@example.org> qp 4 uid 7
1000 ondemand shop.example stored 457-h5x3k2j1z9: bytes 5 from <ann@example.org> to joe@shop.example
1001 end msg 457
1002 ondemand shop.example started: etrn
1003 ondemand shop.example done 457-h5x3k2j1z9: to joe@shop.example success: ok/
"""
LATER = f"""\
1003 ondemand shop.example stays {ID}: to jim@shop.example deferral: later/
1003 ondemand shop.example done {ID}: to joe@shop.example success: ok/
"""
LAST = f"2000 ondemand shop.example requeued {ID}: qp 8 to jim@shop.example\n"


def test_what_is_stored_on_demand_has_its_lines_until_it_is_delivered() -> None:
    found, log = chosen(STORED + OTHERS + LATER)
    assert found == (STORED + LATER).splitlines()
    assert log.stored and not log.ended and not log.over
    found, log = chosen(STORED + OTHERS + LATER + LAST + LATER)
    assert found == (STORED + LATER + LAST).splitlines()
    assert log.over and not log.stored


@given(st.lists(st.one_of(st.sampled_from([line for _, line in timed(LINES + STORED + LATER)]), garbage), max_size=30))
def test_any_lines_in_any_order_are_only_lines(lines: list[bytes]) -> None:
    log = MessageLog(457, BIRTH)
    for number, line in enumerate(lines):
        found = log.take(START + number, line)
        assert all(text in lines for _, text in found)


# Files


def packed(packing: str, data: bytes) -> bytes:
    if packing == "zst":
        return subprocess.run(["zstd", "-q"], input=data, stdout=subprocess.PIPE, check=True).stdout
    pack: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}
    return pack[packing](data)


def write_directory(top: Path, packing: str = "") -> Path:
    """Write the lines as a directory of multilog with three rotated files and `current`."""
    lines = timed(LINES)
    top.mkdir()
    cuts = [0, 5, 12, 20, len(lines)]
    for number, (first, last) in enumerate(itertools.pairwise(cuts)):
        data = stamped(lines[first:last])
        name = f"{pack_stamp(lines[last - 1][0] + number).decode()}.s" if last < len(lines) else "current"
        if packing and name != "current":
            data = packed(packing, data)
            name += f".{packing}"
        (top / name).write_bytes(data)
        os.utime(top / name, ns=(lines[last - 1][0],) * 2)
    (top / "lock").touch()
    return top


@pytest.mark.parametrize("packing", ["", "gz", "xz", "bz2", "zst"])
def test_a_directory_is_read_plain_and_compressed(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], packing: str
) -> None:
    if packing == "zst":
        need("zstd")
    logs = write_directory(tmp_path / "main", packing)
    before = snapshot(Path(home.path))
    assert run("--home", home.path, "log", ID, "--logs", str(logs)) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[2] for line in shown[:-1]] == [line.partition(" ")[2] for line in MINE]
    assert shown[0] == "2023-11-14T22:13:21.123456Z new msg 457"
    assert shown[-1] == f"bounced as {pack_long_id(460, BIRTH + 8_000_000)}"
    assert snapshot(Path(home.path)) == before
    # The id of the bounce, which is gone, finds its lines.
    assert run("--home", home.path, "log", shown[-1].split()[-1], "--logs", str(logs)) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(" new msg 460")


def test_json_is_one_object_a_line(home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = write_directory(tmp_path / "main")
    assert run("--home", home.path, "log", ID, "--logs", str(logs), "--format", "json") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found[0] == {"time": "2023-11-14T22:13:21.123456Z", "line": "new msg 457"}
    assert found[-1] == {"bounce": pack_long_id(460, BIRTH + 8_000_000)}


def test_only_files_that_can_hold_lines_of_the_message_are_opened(tmp_path: Path) -> None:
    logs = write_directory(tmp_path / "main")
    oldest = min(logs.glob("@*"))
    os.chmod(oldest, 0)
    oldest.unlink()
    oldest.mkdir()
    log = MessageLog(457, BIRTH)
    lines = LogDirectory(str(logs)).lines(START, log.may_concern)
    assert next(lines)[0] >= START


def test_what_is_no_file_in_the_loggers_directory_is_passed_by(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = write_directory(tmp_path / "main")
    (tmp_path / "secret").write_bytes(stamped([(START + SECOND, b"new msg 457")]))
    (logs / f"{pack_stamp(START + 100 * SECOND).decode()}.s").symlink_to(tmp_path / "secret")
    os.mkfifo(logs / f"{pack_stamp(START + 101 * SECOND).decode()}.s")
    assert run("--home", home.path, "log", ID, "--logs", str(logs)) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(MINE) + 1


def test_a_large_file_is_searched_from_the_right_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        for number in range(60_000):
            file.write(stamped([(START - (50_000 - number) * SECOND, b"starting delivery 1: msg 9 to remote a@b")]))
    seen = 0

    def count(line: bytes) -> bool:
        nonlocal seen
        seen += 1
        return True

    found = list(LogDirectory(str(path)).lines(START, count))
    assert len(found) == 10_000 and found[0][0] == START
    assert seen < 40_000


def test_nothing_found_is_exit_1_and_says_where_the_log_begins(
    home: Home, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logs = write_directory(tmp_path / "main")
    assert run("--home", home.path, "log", pack_long_id(999, BIRTH - 10**9), "--logs", str(logs)) == 1
    assert "; the log begins at 2023-11-14T22:13:11.123456Z" in capfd.readouterr().err
    # Without the lines before it, those of the number may be of another message.
    assert run("--home", home.path, "log", pack_long_id(457, BIRTH - 10**9), "--logs", str(logs)) == 0
    assert "may be those of a later message" in capfd.readouterr().err


def test_a_bare_number_is_the_message_in_the_queue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue = Queue(tmp_path / "home")
    message = queue.classified(remote=b"Tc@d\0")
    logs = tmp_path / "log"
    logs.write_bytes(stamped([(START + 1, b"new msg %d" % message)]))
    assert queue.run("log", str(message), "--logs", str(logs)) == 0
    captured = capsys.readouterr()
    assert captured.out.endswith(f" new msg {message}\n") and captured.err == ""
    assert queue.run("log", "1", "--logs", str(logs)) == 1
    assert queue.run("log", "x", "--logs", str(logs)) == 100
    assert queue.run("log", ID, "--logs", str(tmp_path / "none")) == 100
    assert queue.run("log", ID, "--logs", str(logs), "--journal", "x") == 100


# Loggers


@pytest.mark.parametrize("logger", ["multilog", "svlogd"])
def test_the_logger_of_a_running_process_is_found_and_its_log_is_read(tmp_path: Path, logger: str) -> None:
    need(logger)
    top = tmp_path / "log"
    (top / "main").mkdir(parents=True)
    words = {"multilog": ["multilog", "t", "s4096", "n20", "./main"], "svlogd": ["svlogd", "-t", "./main"]}[logger]
    reader, writer = os.pipe()
    with subprocess.Popen(words, stdin=reader, cwd=top) as log:
        os.close(reader)
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=writer) as daemon:
            os.close(writer)
            assert daemon.stdin is not None
            daemon.stdin.write(b"".join(b"filler %d\n" % each for each in range(500)) + b"new msg 457\n")
            daemon.stdin.flush()
            current = top / "main" / "current"
            wait_until(lambda: current.exists() and b"new msg 457" in current.read_bytes(), why="the log")
            source = source_of(daemon.pid)
            assert source is not None and source.name == str(top / "main")
            lines = [text for _, text in source.lines(0, lambda line: True)]
            assert lines[-1] == b"new msg 457" and (logger == "svlogd" or len(list((top / "main").glob("@*.s"))) > 1)
            assert len(lines) == 501
            daemon.stdin.close()
        assert log.wait(30) in (0, 111)


def test_the_log_of_a_home_that_does_not_run_is_found_by_its_service_directory(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, path in (("other", "/var/other"), ("mine", home.path)):
        service = tmp_path / "service" / name
        (service / "log" / "main").mkdir(parents=True)
        (service / "log" / "main" / "current").touch()
        (service / "run").write_text(f"#!/bin/sh\nexec env QUEUE_HOME={path} /opt/bin/queue-start\n")
        (service / "log" / "run").write_text("#!/bin/sh\nexec multilog t s1000000 n20 ./main\n")
    monkeypatch.setattr(find_module, "SERVICES", (str(tmp_path / "service/*"),))
    monkeypatch.setattr(find_module, "UNITS", (str(tmp_path / "units/*.service"),))
    assert find_log(home).name == str(tmp_path / "service" / "mine" / "log" / "main")
    (tmp_path / "service" / "mine" / "run").unlink()
    with pytest.raises(Permanent, match="--logs DIR or --journal UNIT"):
        find_log(home)
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / "mail.service").write_text(f'[Service]\nEnvironment="QUEUE_HOME={home.path}"\n')
    assert find_log(home).name == "mail.service"


def test_the_logger_behind_a_fifo_is_found_as_in_the_units_of_init(tmp_path: Path) -> None:
    need("multilog")
    fifo, top = str(tmp_path / "queue-suite.log"), tmp_path / "log"
    os.mkfifo(fifo)
    # As systemd's socket unit has it; with both ends open here, no open of an end waits for the other.
    both = os.open(fifo, os.O_RDWR)
    reader, writer = os.open(fifo, os.O_RDONLY), os.open(fifo, os.O_WRONLY)
    with (
        subprocess.Popen(["multilog", "t", str(top)], stdin=reader) as log,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=writer) as daemon,
    ):
        for handle in (both, reader, writer):
            os.close(handle)
        assert daemon.stdin is not None
        daemon.stdin.write(b"new msg 457\n")
        daemon.stdin.flush()
        current = top / "current"
        wait_until(lambda: current.exists() and b"new msg 457" in current.read_bytes(), why="the log")
        source = source_of(daemon.pid)
        assert source is not None and source.name == str(top)
        daemon.stdin.close()
        assert log.wait(30) == 0


def test_the_log_of_units_that_init_has_written_is_found_while_nothing_runs(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "100% log"
    log.mkdir()
    (log / "current").touch()
    facts = UnitFacts("mail", home.path, "/opt/bin/queue-start", ["multilog", "t", str(log)], str(log), None, 255)
    for name, text in units(facts).items():
        (tmp_path / name).write_bytes(text)
    monkeypatch.setattr(find_module, "SERVICES", ())
    monkeypatch.setattr(find_module, "UNITS", (str(tmp_path / "*.service"),))
    found = find_log(home)
    assert (type(found).__name__, found.name) == ("LogDirectory", str(log))


def test_the_journal_is_read_by_journalctl(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [
        json.dumps({"__REALTIME_TIMESTAMP": str(when // 1000), "MESSAGE": text.decode()}) for when, text in timed(LINES)
    ]
    (tmp_path / "entries").write_text("\n".join(entries) + "\n")
    program = tmp_path / "bin" / "journalctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/words\ncat {tmp_path}/entries\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert run("--home", home.path, "log", ID, "--journal", "queue.service") == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[2] for line in shown[:-1]] == [line.partition(" ")[2] for line in MINE]
    words = (tmp_path / "words").read_text().splitlines()[0]
    assert "--unit=queue.service" in words and f"--since=@{BIRTH // 10**6}.{BIRTH % 10**6:06d}" in words


@given(st.one_of(garbage, st.just(b'{"MESSAGE": [300], "__REALTIME_TIMESTAMP": "x"}'), st.just(b"[" * 100_000)))
def test_an_entry_of_the_journal_that_makes_no_sense_is_passed_by(data: bytes) -> None:
    assert unpack_entry(data) is None


def test_an_entry_with_bytes_that_are_no_text_is_a_list_of_them() -> None:
    assert unpack_entry(b'{"MESSAGE": [110, 255], "__REALTIME_TIMESTAMP": "7"}') == (7000, b"n\xff")


# Two sessions at once, and one of them has other messages before and after.
SMTP_LINES = """
-9 smtp 12: connect 192.0.2.9:4 old.example to 198.51.100.1:25
-8 smtp 12: end QUIT: messages 0 errors 0 seconds 1
-7 smtp start: process 1 of 1 pid 5
-6 smtp 12: connect 192.0.2.1:40000 mx.example.net to 198.51.100.1:25
-6 smtp 12: tls TLSv1.3 TLS_AES_256_GCM_SHA384
-6 smtp 12: from <first@example.org> bytes 0
-6 smtp 12: to <joe@example.com>
-5 smtp 12: queued 455-1 bytes 10 recipients 1
-5 smtp 12: from <dropped@example.org> bytes 0
-5 smtp 12: dropped
-4 smtp 12: auth joe PLAIN
-4 smtp 12: from <ann@example.org> bytes 2310
-4 smtp 121: connect 192.0.2.2:4 - to 198.51.100.1:25
-4 smtp 121: from <x@queued_ID_> bytes 2310
-3 smtp 12: refused RCPT <no@example.com>: 550_5.1.1_No_such_mailbox_here client 192.0.2.1
-3 smtp 12: to <joe@example.com>
-2 smtp 12: filter inet:127.0.0.1:11332 accepts message
1 smtp 121: queued ID1 bytes 2310 recipients 1
1 smtp 12: queued ID bytes 2310 recipients 1
2 smtp 12: from <later@example.org> bytes 0
3 smtp 12: end QUIT: messages 2 errors 1 seconds 9
"""
SMTP_MINE = [
    "-6 smtp 12: connect 192.0.2.1:40000 mx.example.net to 198.51.100.1:25",
    "-6 smtp 12: tls TLSv1.3 TLS_AES_256_GCM_SHA384",
    "-4 smtp 12: auth joe PLAIN",
    "-4 smtp 12: from <ann@example.org> bytes 2310",
    "-3 smtp 12: refused RCPT <no@example.com>: 550_5.1.1_No_such_mailbox_here client 192.0.2.1",
    "-3 smtp 12: to <joe@example.com>",
    "-2 smtp 12: filter inet:127.0.0.1:11332 accepts message",
    "1 smtp 12: queued ID bytes 2310 recipients 1",
]


def smtp_log(path: Path, queue_id: str = ID) -> str:
    path.write_bytes(stamped(timed(SMTP_LINES.replace("ID", queue_id))))
    return str(path)


def smtpd_log_name(home: Home) -> str:
    found = find_smtpd_log(home)
    return "" if found is None else found.name


def texts(lines: list[str], queue_id: str = ID) -> list[str]:
    return [line.replace("ID", queue_id).partition(" ")[2] for line in lines]


def test_the_first_lines_are_those_of_the_smtp_session_up_to_the_message(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs, other = str(write_directory(tmp_path / "main")), smtp_log(tmp_path / "smtpd")
    assert run("--home", home.path, "log", ID, "--logs", logs, "--smtpd-log", other) == 0
    shown = capsys.readouterr().out.splitlines()
    assert texts(shown[:-1], "") == texts(SMTP_MINE) + texts(MINE)
    # What another queue says is of another message, and so is a later birth.
    later = pack_long_id(457, BIRTH + 500_000)
    assert run("--home", home.path, "log", later, "--logs", logs, "--smtpd-log", other) == 0
    assert texts(capsys.readouterr().out.splitlines()[:-1]) == texts(MINE)


def test_both_daemons_may_have_one_log(home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = tmp_path / "log"
    both.write_bytes(stamped(sorted(timed(LINES) + timed(SMTP_LINES.replace("ID", ID)), key=lambda line: line[0])))
    assert run("--home", home.path, "log", ID, "--logs", str(both)) == 0
    assert texts(capsys.readouterr().out.splitlines()[:-1], "") == texts(SMTP_MINE) + texts(MINE)


def test_of_several_queues_the_session_names_the_queue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = make_several(tmp_path / "home", "first", "second")
    logs, other = str(write_directory(tmp_path / "main")), smtp_log(tmp_path / "smtpd", f"first/{ID}")
    assert run("--home", home.path, "log", f"first/{ID}", "--logs", logs, "--smtpd-log", other) == 0
    assert texts(capsys.readouterr().out.splitlines()[:-1], "") == texts(SMTP_MINE, f"first/{ID}") + texts(MINE)
    assert run("--home", home.path, "log", f"second/{ID}", "--logs", logs, "--smtpd-log", other) == 0
    assert texts(capsys.readouterr().out.splitlines()[:-1], "") == texts(MINE)


def test_a_message_that_came_otherwise_is_looked_for_in_the_minutes_after_its_birth_alone(tmp_path: Path) -> None:
    (tmp_path / "smtpd").write_bytes(
        stamped([(START + hours * 3600 * SECOND, b"smtp 1: connect 192.0.2.1:4 x to y:25") for hours in range(9)])
    )
    source, seen = LogDirectory(str(tmp_path / "smtpd")), []

    def lines(since: int, concerns: Callable[[bytes], bool]) -> Iterator[tuple[int, bytes]]:
        for when, text in source.lines(since, concerns):
            seen.append(when)
            yield when, text

    assert session_lines(lines, ID, BIRTH) == []
    assert len(seen) == 2


@given(st.lists(st.one_of(st.sampled_from([line for _, line in timed(SMTP_LINES.replace("ID", ID))]), garbage)))
def test_any_lines_of_queue_smtpd_are_only_lines(lines: list[bytes]) -> None:
    found = session_lines(lambda since, concerns: ((START, line) for line in lines if concerns(b" " + line)), ID, BIRTH)
    assert all(line in lines for _, line in found)


def test_a_log_of_queue_smtpd_that_cannot_be_read_hides_no_delivery(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = str(write_directory(tmp_path / "main"))
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"\x1f\x8bno gzip")
    source = LogDirectory(str(damaged))
    monkeypatch.setattr("queue_admin.commands.messages.log.find_smtpd_log", lambda home: source)
    assert run("--home", home.path, "log", ID, "--logs", logs) == 0
    shown = capsys.readouterr()
    assert texts(shown.out.splitlines()[:-1]) == texts(MINE)
    assert shown.err.startswith(f"queuectl: unable to read {damaged}: its compressed content is damaged: ")


def test_without_a_log_of_queue_smtpd_a_message_of_its_account_has_a_hint(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = str(write_directory(tmp_path / "main"))
    for uid, hints in ((7, 1), (8, 0)):
        monkeypatch.setattr("queue_admin.commands.messages.log.account_uid", lambda name, uid=uid: uid)
        assert run("--home", home.path, "log", ID, "--logs", logs) == 0
        assert capsys.readouterr().err.count("--smtpd-log names queue-smtpd's log") == hints


def test_the_logs_of_queue_send_and_queue_smtpd_are_not_taken_for_each_other(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_module, "SERVICES", (str(tmp_path / "service/*"),))
    monkeypatch.setattr(find_module, "UNITS", (str(tmp_path / "units/*.service"),))
    (tmp_path / "units").mkdir()
    assert smtpd_log_name(home) == ""
    logs = {}
    for name, smtpd in (("queue-smtpd", True), ("queue-suite", False)):
        logs[name] = tmp_path / f"log of {name}"
        logs[name].mkdir()
        (logs[name] / "current").touch()
        words = ["multilog", "t", str(logs[name])]
        facts = UnitFacts(name, home.path, f"/opt/bin/{name}", words, str(logs[name]), None, 255, smtpd)
        facts = facts._replace(start="/opt/bin/" + ("queue-smtpd" if smtpd else "queue-start"))
        for file, text in units(facts).items():
            (tmp_path / "units" / file).write_bytes(text)
    assert [smtpd_log_name(home), find_log(home).name] == [str(one) for one in logs.values()]
    for name, start in (("queue-smtpd", "queue-smtpd </dev/null"), ("queue-suite", "queue-start")):
        service = tmp_path / "service" / name
        (service / "log" / "main").mkdir(parents=True)
        (service / "log" / "main" / "current").touch()
        (service / "run").write_text(f"#!/bin/sh\nexec env QUEUE_HOME={home.path} /opt/bin/{start}\n")
        (service / "log" / "run").write_text("#!/bin/sh\nexec multilog t s1000000 n20 ./main\n")
    found = [smtpd_log_name(home), find_log(home).name]
    assert found == [str(tmp_path / "service" / name / "log" / "main") for name in ("queue-smtpd", "queue-suite")]
    # A unit of queuectl names the home as well.
    (tmp_path / "service" / "queue-suite" / "run").write_text(f"QUEUE_HOME={home.path} exec queuectl metrics\n")
    assert find_log(home).name == str(logs["queue-suite"])
