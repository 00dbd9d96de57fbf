"""queue-send and values of control files that cannot be used: at a start the default, at HUP the old value stays."""

import re
import signal
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_wire.pipes.notice import REREAD, Reread, pack_reread
from support.send.scripted_send import ScriptedSend

BAD = [
    ("concurrencyremote", "99999999\n", 1, "not a number from 0 to 32000: '99999999'"),
    ("queuelifetime", "0\n", 1, "not a number from 60 to 315360000: '0'"),
    ("activelimit", "0\n", 1, "not a number from 1 to 1000000: '0'"),
    ("retryjitter", "200\n", 1, "not a number from 0 to 100: '200'"),
    ("virtualdomains", "a.example:a\nb.example\n", 2, "it has no colon, and has no effect"),
    ("smtproutes", "# ours\nrelay.example secret\n", 2, "it has no colon, and has no effect"),
]


def test_a_value_out_of_its_range_is_named_at_hup_and_the_old_value_stays(home: Home) -> None:
    send_limit = Path(home.control, "concurrencyremote")
    send_limit.write_text("7\n")
    with ScriptedSend(home) as send:
        send.fence()
        for name, bad, line, why in BAD:
            path = Path(home.control, name)
            kept = path.read_text() if path.exists() else None
            send.control(name, bad)
            send.signal(signal.SIGHUP)
            assert send.todo.receive() == REREAD
            where = re.escape(f"unable to parse {path} line {line}: {why}")
            send.wait_for(f"alert: unable to reread controls: {where}; the old ones stay")
            path.unlink() if kept is None else path.write_text(kept)
        send.wait_for(r"status: local 0/10 remote 0/7")
        send.fence()
        assert not send.found(r"config .*")


def test_a_hup_logs_what_has_changed_and_shows_no_secret(home: Home) -> None:
    with ScriptedSend(home) as send:
        send.fence()
        send.signal(signal.SIGHUP)
        send.wait_for("config unchanged")
        send.control("concurrencylocal", "4\n")
        send.control("smtproutes", ":relay.example\n# spare\nb.example:\n")
        send.signal(signal.SIGHUP)
        send.wait_for(r"config concurrencylocal 4, was default")
        send.wait_for(r"config smtproutes 2 lines, was default")
        send.control("smtproutes", ":other.example\nb.example:\n")
        Path(home.control, "concurrencylocal").unlink()
        send.signal(signal.SIGHUP)
        send.wait_for(r"config concurrencylocal default, was 4")
        send.wait_for(r"config smtproutes 2 lines, changed")
        send.wait_for(r"status: local 0/10 remote 0/250")


@pytest.mark.parametrize("name", ["", "smtproutes"])
def test_what_everybody_may_write_is_not_reread(home: Home, name: str) -> None:
    path = Path(home.control, name)
    with ScriptedSend(home) as send:
        send.fence()
        send.control("smtproutes", ":relay.example\n")
        path.chmod(0o777)
        send.signal(signal.SIGHUP)
        send.wait_for(
            rf"alert: unable to reread controls: unable to use {path}: everybody may write to it \(mode 0777\).*"
        )
        path.chmod(0o755)
        send.signal(signal.SIGHUP)
        send.wait_for(r"config smtproutes 1 line, was default")


def test_at_a_start_a_line_without_a_colon_is_an_alert_and_a_misspelt_file_and_a_zero_are_warnings(home: Home) -> None:
    for name, text in {
        "smtproutes": ":relay.example\nsecret words\n",
        "concurencyremote": "5\n",
        "locals~": "x\n",
        "concurrencylocal": "0\n",
        "rcpthosts": "a.example\n",
    }.items():
        Path(home.control, name).write_text(text)
    with ScriptedSend(home) as send:
        send.wait_for(rf"alert: unable to use {home.control}/smtproutes line 2: it has no colon, and has no effect")
        send.wait_for(
            r"warning: control/concurrencylocal is 0: no local delivery starts until it is more and HUP comes"
        )
        send.wait_for(
            r"warning: unable to use control/concurencyremote: there is no such control file; "
            r"the nearest name is concurrencyremote"
        )
        send.wait_for(r"status: local 0/0 remote 0/250")
        send.fence()
        assert not send.found("warning: .*(locals~|rcpthosts).*") and "secret" not in "".join(send.lines)


def test_queue_todo_says_what_it_has_in_force_in_answer_to_a_reread_and_unasked() -> None:
    assert pack_reread(Reread(b"locals - default", True)) == b"Hlocals - default\0"
    assert pack_reread(Reread(b"", False)) == b"S\0"
