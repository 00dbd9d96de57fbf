"""queue-inject --batch: each format, results in order, bad messages in the middle, --skip, options and exit codes."""

import os
import subprocess
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_inject.batch.injector import GROUP
from queue_inject.batch.main import NICER
from queue_wire.ids import unpack_long_id
from support.inject.batches import (
    BAD,
    FORMATS,
    SENDER,
    batch_command,
    changed,
    inject_batch,
    letter,
    make_file,
    packed,
    said,
    subjects,
)
from support.inject.injectors import USER, as_user, inject, is_empty, only, queued, run, shared_home, states
from support.inject.packing import pack_bsmtp, pack_pair, quote_mbox
from support.processes.suite import program as executable


@pytest.mark.parametrize("form", FORMATS)
def test_each_message_is_queued_as_it_is_and_has_its_line(home: Home, form: str) -> None:
    batch = inject_batch(home, form, b"".join(packed(form, number) for number in range(3)))

    assert (batch.code, batch.error) == (0, "")
    layout = open_layout(home.queue)
    for number, line in enumerate(batch.lines):
        word, long_id = line.split(" ")
        message, birth = unpack_long_id(long_id)
        path = Path(layout.mess(message))
        assert word == "ok" and birth == path.stat().st_mtime_ns // 1000
        assert path.read_bytes().partition(b"\n")[2] == letter(number)
    # A message without envelope has the user who runs queue-inject as its sender.
    sender = b"ann@me.example.org" if form.startswith("mbox") else SENDER
    for each in queued(home):
        assert (each.envelope.sender, each.envelope.recipients) == (sender, [b"bob@example.net"])


@pytest.mark.parametrize("form", FORMATS)
def test_a_bad_message_is_reported_in_its_place_and_the_rest_go_on(home: Home, form: str) -> None:
    data = packed(form, 1) + BAD[form] + packed(form, 3) + packed(form, 4) + BAD[form] + packed(form, 6)

    batch = inject_batch(home, form, data)

    assert batch.code == 100 and batch.error.startswith("queue-inject: fatal: 2 of 6 messages are not queued")
    assert [line.split()[0] for line in batch.lines] == ["ok", "failed", "ok", "ok", "failed", "ok"]
    assert batch.lines[1].startswith("failed 2: ") and batch.lines[4].startswith("failed 5: ")
    assert subjects([each.message for each in queued(home)]) == [1, 3, 4, 6] and states(home) == {4: 4}


@pytest.mark.parametrize("form", FORMATS)
def test_skip_begins_after_so_many_messages(home: Home, form: str) -> None:
    data = packed(form, 1) + BAD[form] + packed(form, 3) + BAD[form]

    batch = inject_batch(home, form, data, "--skip", "2")

    assert [line.split()[0] for line in batch.lines] == ["ok", "failed"] and batch.lines[1].startswith("failed 4: ")
    assert subjects([each.message for each in queued(home)]) == [3]
    assert inject_batch(home, form, data, "--skip=4") == (0, [], "")
    other = inject_batch(home, form, data, "--skip", "9")
    assert (other.code, other.lines) == (100, [])
    assert "--skip names message 9, and the batch has 4; is it another batch?" in other.error


def test_a_batch_lowers_its_own_priority(home: Home) -> None:
    process = subprocess.Popen(batch_command(home, "netstring"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    with process:
        process.stdin.write(packed("netstring", 0))
        process.stdin.flush()
        # The input pauses, so the message is committed while the batch still runs.
        assert process.stdout.readline().startswith(b"ok ")
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICER)
        process.stdin.close()
    assert process.returncode == 0


@pytest.mark.parametrize("form", FORMATS)
def test_no_input_is_no_message(home: Home, form: str) -> None:
    assert inject_batch(home, form, b"") == (0, [], "")
    assert is_empty(home)


def test_more_messages_than_one_group_are_all_there(home: Home) -> None:
    count = GROUP * 2 + 7
    batch = inject_batch(home, "bsmtp", b"".join(packed("bsmtp", number) for number in range(count)))

    assert batch.code == 0 and len(set(batch.lines)) == count
    assert subjects([each.message for each in queued(home)]) == list(range(count))


def test_messages_of_an_mbox_are_completed_as_queue_inject_does(home: Home) -> None:
    data = quote_mbox(b"To: bob\nSubject: x\n\nbody\n", b"0123abcd")
    batch = inject_batch(home, "mbox", data + data, QMAILUSER="carl")

    first, second = (each.message for each in queued(home))
    assert batch.code == 0 and b"To: bob@me.example.org\n" in first and b"\nFrom: carl@me.example.org\n" in first
    assert first.partition(b"Message-ID: ")[2][:60] != second.partition(b"Message-ID: ")[2][:60]
    assert {each.envelope.sender for each in queued(home)} == {b"carl@me.example.org"}


def test_an_mbox_takes_sender_and_recipients_from_the_options_too(home: Home) -> None:
    assert inject_batch(home, "mbox", packed("mbox", 1), "-f", "list-@x.y", "-a", "r@x.y").code == 0
    assert (only(home).envelope.sender, only(home).envelope.recipients) == (b"list-@x.y", [b"r@x.y"])


def test_a_field_that_cannot_be_parsed_is_named_with_its_line_in_the_message(home: Home) -> None:
    batch = inject_batch(home, "mbox", quote_mbox(b"Subject: x\nTo: a@b@c\n\n"))

    assert batch.lines[0].startswith("failed 1: unable to parse the To field in line 2: ")


def test_a_return_path_is_the_sender_and_the_from_line_is_not(home: Home) -> None:
    assert inject_batch(home, "mbox", quote_mbox(b"Return-Path: <r@x.y>\nTo: b@x.y\n\n", b"other@x.y")).code == 0
    assert only(home).envelope.sender == b"r@x.y" and b"Return-Path" not in only(home).message


def test_envelopes_of_their_own_need_no_header_at_all(home: Home) -> None:
    text = b"no header\nTo: nobody@@\n"
    for form, pack in (("bsmtp", pack_bsmtp), ("netstring", pack_pair)):
        assert inject_batch(home, form, pack(b"", [b"x y@z.w", b"c@d"], text)).code == 0
    for each in queued(home):
        assert (each.message, each.envelope.sender, each.envelope.recipients) == (text, b"", [b"x y@z.w", b"c@d"])


def test_where_the_framing_is_lost_what_came_before_is_queued(home: Home) -> None:
    batch = inject_batch(home, "netstring", packed("netstring", 1) + b"17!garbage" + packed("netstring", 2))

    assert batch.code == 100 and "from message 2 on" in batch.error and "--skip 2" in batch.error
    assert [line.split(":")[0].split()[0] for line in batch.lines] == ["ok", "failed"]
    assert subjects([each.message for each in queued(home)]) == [1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--batch"], ["--batch", "pst"], ["--batch="], ["--skip", "3"], ["--batch", "mbox", "--skip", "x"],
        ["--batch", "mbox", "--skip"], ["--batch", "mbox", "-n"], ["--batch", "bsmtp", "-a", "b@c"],
        ["--batch", "netstring", "b@c"], ["--batch", "mbox", "-z"], ["--batch", "mbox", "--skip", "-1"],
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_100_and_says_the_usage(home: Home, arguments: list[str]) -> None:
    outcome = inject(home, *arguments, message=packed("mbox", 1))

    assert outcome.code == 100 and b"usage: queue-inject [--home HOME] " in outcome.error
    assert is_empty(home)


def test_a_full_disk_ends_the_batch_and_says_where_to_go_on(home: Home, tmp_path: Path) -> None:
    # The disk has no room from the fourth message on.
    change = "import os; n, real = iter(range(99)), os.statvfs\n"
    change += "full = os.statvfs_result((4096, 4096, 9, 0, 0, 9, 9, 9, 0, 255))\n"
    change += "os.statvfs = lambda place: full if next(n) > 2 else real(place)"
    file = make_file(tmp_path / "batch", "mbox", 6)

    outcome = run(changed(home, change, "mbox"), file.read_bytes())
    batch = said(outcome)

    assert batch.code == 111 and "almost full" in batch.error and "--skip 3 takes what is left" in batch.error
    assert [line.split()[0] for line in batch.lines] == ["ok"] * 3 + ["failed"]
    assert subjects([each.message for each in queued(home)]) == [1, 2, 3]
    assert len(inject_batch(home, "mbox", file.read_bytes(), "--skip", "3").lines) == 3
    assert subjects([each.message for each in queued(home)]) == [1, 2, 3, 4, 5, 6]


def test_a_sync_that_fails_makes_its_group_failed_and_leaves_nothing(home: Home) -> None:
    change = "import os\ndef fail(handle): raise OSError(5, 'x')\nos.fsync = fail"
    batch = said(run(changed(home, change, "mbox"), b"".join(packed("mbox", number) for number in range(20))))

    assert batch.code == 111 and "--skip 0 " in batch.error and "input/output error" in batch.error
    assert [line.split()[0] for line in batch.lines] == ["failed"] * 20 and is_empty(home)


def test_who_may_not_write_to_the_queue_leaves_the_batch_in_maildrop() -> None:
    with shared_home() as home:
        command = [*as_user(USER, "queue_inject.main"), "--home", home.path, "--batch", "mbox"]
        environment = dict.fromkeys(("PYTHONPATH",), os.getcwd())
        batch = said(run(command, packed("mbox", 1) + BAD["mbox"] + packed("mbox", 3), None, **environment))

        assert [line.split(":")[0] for line in batch.lines] == ["ok -", "failed 2", "ok -"]
        assert len(os.listdir(home.queue + "/maildrop")) == 2 and is_empty(home)


def test_results_that_nobody_reads_end_the_batch(home: Home) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = batch_command(home, "bsmtp")
    done = subprocess.run(command, input=packed("bsmtp", 1), stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)

    assert done.returncode == 111 and b"unable to write results of messages 1 to 1: broken pipe" in done.stderr


def test_a_program_in_queue_enqueue_s_place_gets_each_message_and_only_it_knows_their_ids(
    home: Home, tmp_path: Path
) -> None:
    # It refuses message 2 for good and message 4 for now, and queues the others.
    program = tmp_path / "filter"
    program.write_text(
        "#!/bin/sh\ncat >$0.$$\n"
        "grep -q 'Subject: 2$' $0.$$ && exit 31\ngrep -q 'Subject: 4$' $0.$$ && exit 71\n"
        f"exec {' '.join(executable('queue-enqueue'))} <$0.$$\n"
    )
    program.chmod(0o755)
    data = b"".join(packed("bsmtp", number) for number in range(1, 6))

    batch = inject_batch(home, "bsmtp", data, QUEUE_ENQUEUE=str(program))

    assert [line.split(":")[0] for line in batch.lines] == ["ok -", "failed 2", "ok -", "failed 4", "ok -"]
    assert batch.code == 111 and "2 of 5 messages are not queued" in batch.error
    assert subjects([each.message for each in queued(home)]) == [1, 3, 5]
