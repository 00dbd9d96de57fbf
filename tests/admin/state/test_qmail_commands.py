"""qmail-qstat and qmail-qread print what qmail's programs print of the same queue."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from queue_admin.qmail_commands import qread_main, qstat_main
from support.processes.forked import BIN
from support.queues.home import make_home
from support.queues.listed_queue import Queue
from support.queues.queued import classified_message
from support.send.scripted_send import ScriptedSend
from support.site import mail_site

NOBODY, GROUP = 65534, 54321


def qstat(home: str, *words: str) -> list[str]:
    return [sys.executable, str(BIN / "qmail-qstat"), "--home", home, *words]


def test_qstat_counts_messages_and_those_in_todo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue = Queue(tmp_path / "home")
    queue.classified(b"a@b", remote=b"Tc@d\0")
    queue.queued(b"a@b", (b"c@d",))
    queue.queued(b"a@b", (b"c@d",))
    assert qstat_main(["qmail-qstat", "--home", queue.home.path]) == 0
    assert capsys.readouterr().out == "messages in queue: 3\nmessages in queue but not yet preprocessed: 2\n"
    done = subprocess.run(qstat(queue.home.path), capture_output=True, check=True, text=True)
    assert done.stdout.startswith("messages in queue: 3\n")
    assert qstat_main(["qmail-qstat", "--home", queue.home.path, "x"]) == 100
    assert qstat_main(["qmail-qstat", "--home", str(tmp_path / "none")]) in (100, 111)


def test_qread_has_a_line_of_each_classified_message_and_one_of_each_recipient(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = Queue(tmp_path / "home")
    message = queue.classified(b"ann\xff\x1b@b", b"Tjoe@me\0", b"Dx@y\0Tc@d\0")
    other = queue.classified(b"", remote=b"Te@f\0")
    queue.queued(b"not@classified", (b"c@d",))
    Path(queue.home.queue, "bounce", str(other)).write_text("")
    assert qread_main(["qmail-qread", "--home", queue.home.path]) == 0
    lines = capsys.readouterr().out.splitlines()
    when, size = "14 Nov 2023 22:13:20 GMT", os.path.getsize(queue.layout.mess(message))
    at = lines.index(f"{when}  #{message}  {size}  <ann__@b> ")
    assert lines[at + 1 : at + 4] == ["\tlocal\tjoe@me", "  done\tremote\tx@y", "\tremote\tc@d"]
    at = lines.index(f"{when}  #{other}  {os.path.getsize(queue.layout.mess(other))}  <>  bouncing")
    assert lines[at + 1] == "\tremote\te@f"
    assert len(lines) == 6


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
def test_qstat_works_for_an_account_that_may_read_counts_alone() -> None:
    with mail_site() as site:
        home = make_home(Path(site.home.path).parent / "watched")
        for path, mode in ((home.path, 0o755), (home.queue, 0o711), (f"{home.queue}/lock", 0o700)):
            os.chmod(path, mode)
        Path(home.path, "monitor").mkdir(0o750)
        os.chown(f"{home.path}/monitor", 0, GROUP)
        with ScriptedSend(home) as send:
            send.fence()
            for address in (b"ann@far.example", b"sue@far.example"):
                send.todo.classified(classified_message(home, remote=[address]))
                send.fence()
            for group, code, shown in ((GROUP, 0, "messages in queue: 2\n"), (GROUP + 1, 111, "")):
                done = subprocess.run(
                    qstat(home.path), user=NOBODY, group=group, extra_groups=[], capture_output=True, text=True,
                    check=False, timeout=60,
                )  # fmt: skip
                first = done.stdout.partition("messages in queue but")[0]
                assert (done.returncode, first) == (code, shown), done.stderr
