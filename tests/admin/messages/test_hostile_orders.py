"""What must not turn an order into another one: empty selectors, odd standing holds, taken names, hostile texts."""

import os
import time
from pathlib import Path

import pytest

from queue_admin.commands.messages.change import VERBS
from queue_admin.messages.selectors import Selectors, read_subject
from queue_admin.messages.standing_change import add_standing
from queue_base.errors import Permanent
from queue_wire.admin.socket import NEWS, Note, Request, Response
from support.queues.listed_queue import Queue, lines

pytestmark = pytest.mark.usefixtures("usual_umask")


ME = os.getuid()


@pytest.mark.parametrize("option", ["--recipient", "--domain", "--sender-domain", "--subject", "--with-reason"])
@pytest.mark.parametrize("verb", [*VERBS, "list"])
def test_an_empty_selector_chooses_nothing_and_is_refused(
    queue: Queue, verb: str, option: str, capfd: pytest.CaptureFixture[str]
) -> None:
    message = queue.classified(remote=b"Tc@d\0")
    for value in ("", " "):
        assert queue.run(verb, option, value) == 100
        assert f"{option} is empty" in capfd.readouterr().err
    assert os.path.exists(queue.layout.mess(message))
    assert not os.path.exists(queue.layout.hashed("hold", message))


def test_a_standing_hold_that_could_not_be_read_again_is_refused(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    add_standing(queue.home, Selectors(uid=7), b"")
    assert queue.run("hold", "--standing", "--uid", "99999999999") == 100
    assert queue.run("hold", "--standing", "--domain", "") == 100
    with pytest.raises(Permanent, match="1048576 bytes together"):
        for letter in b"abcdefghij":
            add_standing(queue.home, Selectors(sender=b"%c" % letter * 120_000), b"")
    assert queue.run("hold", "--standing", "--list") == 0
    assert "uid=7 " in capsys.readouterr().out


def test_a_file_of_maildrop_never_takes_the_place_of_another(queue: Queue) -> None:
    drop, held = Path(queue.home.queue, "maildrop"), Path(queue.home.queue, "hold", "maildrop")
    name = "mail." + "a" * 32
    for text in ("first", "second"):
        (drop / name).write_text(text)
        assert queue.run("maildrop", "hold", "--uid", str(ME)) == 0
    assert sorted(path.read_text() for path in held.iterdir()) == ["first", "second"]
    (drop / name).write_text("third")
    assert queue.run("maildrop", "release", "--uid", str(ME)) == 0
    assert sorted(path.read_text() for path in drop.iterdir()) == ["first", "second", "third"]
    assert queue.run("maildrop", "list", "--uid", str(ME)) == 0


def test_what_queue_send_answers_cannot_control_the_terminal(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    message = queue.classified(remote=b"Tc@d\0")
    answer = Response(1, [Note(NEWS, f"{message}: \x1b]0;owned\x07".encode())])

    class Client:
        def ask(self, request: Request) -> Response:
            return answer

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr("queue_admin.commands.messages.change.connect_or_lock", lambda *_: Client())
    assert queue.run("hold", "--all") == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("part", ["=?a?q?", "=?punycode?q?a-" + "b" * 60 + "?= ", "=?idna?q?xn--" + "b" * 60 + "?="])
def test_a_subject_costs_little_whatever_it_is(queue: Queue, part: str) -> None:
    message = queue.mess(b"Subject: " + part.encode() * (60_000 // len(part)) + b"\n\n")
    begun = time.process_time()
    read_subject(queue.layout, message)
    assert time.process_time() - begun < 0.5


def test_a_fifo_in_the_place_of_a_mark_stops_nobody(queue: Queue) -> None:
    message = queue.classified(remote=b"Tc@d\0")
    os.mkfifo(queue.layout.hashed("hold", message))
    assert queue.run("list") == 0
    assert queue.run("hold", "--all") == 111
    os.mkfifo(f"{queue.home.queue}/holds")
    assert queue.run("hold", "--standing", "--list") == 111


def test_everything_is_a_line_or_an_error_with_ids_of_any_size(
    queue: Queue, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("1-zzzzzzzzzzzzz", "18446744073709551615-zzzzzzzzzzzzz", "1" * 30, "1-" + "z" * 30, "\udcff", "-1"):
        for words in (["show", name], ["log", "--logs", queue.home.path, name], ["delete", name], ["list", name]):
            assert queue.run(*words) in (1, 100, 111), (words, name)
            assert "Traceback" not in capfd.readouterr().err
    assert not lines(capfd)
