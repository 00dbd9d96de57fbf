"""Commands that read the queue change no byte and no time stamp in the home."""

import io
import os
from pathlib import Path

import pytest

from queue_admin.main import group, main
from queue_wire.files.last_result import pack_header, pack_result
from support.inject.qmail_queue import snapshot
from support.queues.damage import BIRTH, KnownQueue

pytestmark = pytest.mark.usefixtures("usual_umask")

UID = str(os.geteuid())
# The words after queuectl. MESSAGE is the number of one, HOME the home.
READING = (
    "list", "list --format json --sort size", "list --held", "list --subject both", "list --reason later",
    "list --sender-domain example.org -0",
    "mailq", "show MESSAGE", "show --raw MESSAGE", "show --format json MESSAGE",
    "stat", "stat --format json", "shape", "shape -s hold incoming", "top", "top --by reason", "top --format json",
    "metrics", "metrics --format openmetrics", "destinations", "smtpd", "version",
    "check", "check HOME --format json", "repair --dry-run",
    "log MESSAGE --logs HOME/log",
    "config", "config -n", "config show me", "config check", "route ann@me.example.org x@example.net",
    "postman list", "stored", "stored example.net --format json",
    "maildrop list", f"maildrop list --uid {UID} --format json",
    "users find ann@me.example.org", "import-aliases HOME/aliases --dry-run",
    "delete --all --dry-run", "hold --sender both@example.org --dry-run", "release --all --dry-run",
    "flush --all --dry-run", "bounce --domain example.net --dry-run", "requeue --all --dry-run",
    "hold --standing --list", "passwd --list",
    "completion bash",
)  # fmt: skip
# They write, each with tests of its own, or serve until they are stopped.
OTHERS = {"init", "adopt", "copy", "resubmit", "web"}


@pytest.fixture
def queue(tmp_path: Path) -> KnownQueue:
    """A queue with a message in each state, one of them damaged, a reason, a file in maildrop/, a log, aliases."""
    queue = KnownQueue(tmp_path / "home")
    top = Path(queue.home.path)
    records = pack_result("remote", 0, 1_700_000_400, b"example.net", b"450 4.2.0 try later\n")
    queue.put("last", queue.messages["both"], pack_header(BIRTH // 1000) + records)
    queue.put("remote", queue.classified("torn"), b"garbage")
    dropped = top / "queue" / "maildrop" / ("mail." + "a" * 32)
    dropped.write_bytes(b"accepted")
    dropped.chmod(0o1640)
    (top / "control" / "queuelifetime").write_text("soon\n")
    (top / "log").mkdir()
    (top / "log" / "current").write_text(f"@4000000065543a3c00000000 new msg {queue.messages['both']}\n")
    (top / "aliases").write_text("root: ann\n")
    return queue


def test_every_command_is_tried_or_writes() -> None:
    tried = {words.split()[0] for words in READING}
    assert tried | OTHERS == set(group.commands)


@pytest.mark.parametrize("words", READING)
def test_a_reading_command_changes_no_byte_and_no_time(
    queue: KnownQueue, words: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    top = Path(queue.home.path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    number = str(queue.messages["both"])
    given = [word.replace("HOME", queue.home.path).replace("MESSAGE", number) for word in words.split()]
    before = snapshot(top, times=True)
    code = main(["queuectl", "--home", queue.home.path, *given])
    assert snapshot(top, times=True) == before
    # 1: nothing was found, or something wrong; 100: there is no such user; 111: queue-send does not run.
    assert code in (0, 1, 100, 111)
    assert "--help tells more" not in capfd.readouterr().err, "the command was not tried"
