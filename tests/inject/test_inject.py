"""queue-inject keeps qmail-inject's contract: recipients, options, added fields, bytes and exit codes."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from queue_base.home import Home
from support.inject.injectors import Outcome, Queued, file_limit, inject, is_empty, only, run
from support.processes.suite import program

HEADER = b"From: ann@me.example.org\nTo: bob@example.net\nDate: x\nMessage-ID: <y>\n"


def sent(home: Home, *arguments: str, message: bytes = HEADER, **environment: str) -> Queued:
    """Inject a message; return what was queued."""
    assert inject(home, *arguments, message=message, **environment).code == 0
    return only(home)


def refused(home: Home, outcome: Outcome, code: int, *words: bytes) -> None:
    assert outcome.code == code, outcome
    assert outcome.error.startswith(b"queue-inject: fatal: unable to ") and outcome.output == b"", outcome
    assert all(word in outcome.error for word in words), outcome
    assert is_empty(home)


@pytest.mark.parametrize(
    "body",
    [b"\n", b"\n\nno newline at the end", b"\n.\n..\n.\n", b"\n" + bytes(range(256)) * 3, b"\r\none\r\ntwo\r\n"],
    ids=["nothing", "no final newline", "dots", "every byte", "CRLF"],
)
def test_a_complete_message_is_queued_byte_for_byte(home: Home, body: bytes) -> None:
    assert sent(home, message=HEADER + body).message == HEADER + body


def test_a_message_of_30_mb_is_queued_byte_for_byte(home: Home) -> None:
    message = HEADER + b"\n" + os.urandom(30_000_000)

    assert sent(home, message=message).message == message


def test_a_message_of_0_bytes_gets_a_header(home: Home) -> None:
    message = sent(home, "bob@example.net", message=b"")

    form = rb"Date: (.*)\nMessage-ID: <(.*)>\nFrom: ann@me\.example\.org\nCc: recipient list not shown: ;\n"
    match = re.fullmatch(form, message.message)
    assert match
    assert re.fullmatch(rb"\d{1,2} [A-Z][a-z][a-z] 20\d\d \d\d:\d\d:\d\d -0000", match[1])
    assert re.fullmatch(rb"20\d{12}\.\d{6}\.%d\.qmail@me\.example\.org" % message.envelope.pid, match[2])
    assert (message.envelope.sender, message.envelope.recipients) == (b"ann@me.example.org", [b"bob@example.net"])


def test_a_message_without_header_gets_an_empty_line_before_its_body(home: Home) -> None:
    assert sent(home, "bob@example.net", message=b"hello").message.endswith(b": ;\n\nhello")


LISTS = b"From: ann@me.example.org\nTo: to@x.y\nCc: cc@x.y\nBcc: bcc@x.y\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], [b"to@x.y", b"cc@x.y", b"bcc@x.y"]),
        (["arg@x.y"], [b"arg@x.y"]),
        (["-A", "arg@x.y"], [b"arg@x.y"]),
        (["-a", "arg@x.y", "--", "-b@x.y"], [b"arg@x.y", b"--@me.example.org", b"-b@x.y"]),
        (["-a", "--", "-b@x.y"], [b"-b@x.y"]),
        (["-h", "arg@x.y"], [b"to@x.y", b"cc@x.y", b"bcc@x.y"]),
        (["-H", "arg@x.y"], [b"arg@x.y", b"to@x.y", b"cc@x.y", b"bcc@x.y"]),
        (["-hA", "arg@x.y"], [b"arg@x.y"]),
    ],
)
def test_options_say_whose_recipients_count(home: Home, options: list[str], expected: list[bytes]) -> None:
    message = sent(home, *options, message=LISTS)

    assert message.envelope.recipients == expected
    assert b"bcc@x.y" not in message.message


def test_resent_fields_alone_count_where_there_are_any(home: Home) -> None:
    message = sent(home, message=LISTS + b"Resent-To: re@x.y\nResent-Bcc: rebcc@x.y\n")

    assert message.envelope.recipients == [b"re@x.y", b"rebcc@x.y"]
    assert b"\nResent-From: ann@me.example.org\n" in message.message and b"rebcc" not in message.message


@pytest.mark.parametrize(
    ("options", "header", "sender"),
    [
        (["-f", "s@x.y"], b"", b"s@x.y"),
        (["-fs"], b"", b"s@me.example.org"),
        (["-f", ""], b"", b""),
        ([], b"Return-Path: <rp@x.y>\n", b"rp@x.y"),
        ([], b"Return-Path: <>\n", b""),
        (["-f", "s@x.y"], b"Return-Path: <rp@x.y>\n", b"s@x.y"),
        ([], b"", b"ann@me.example.org"),
    ],
)
def test_the_sender_is_that_of_the_option_or_return_path_or_environment(
    home: Home, options: list[str], header: bytes, sender: bytes
) -> None:
    assert sent(home, *options, message=header + HEADER).envelope.sender == sender


def test_qmailinject_letters_change_sender_and_fields(home: Home) -> None:
    environment = {"QMAILINJECT": "sifr", "QMAILNAME": "Ann B", "QMAILUSER": "a"}
    message = sent(home, message=b"Return-Path: <rp@x.y>\n" + HEADER, **environment)

    assert message.envelope.sender == b"a-@me.example.org-@[]"
    assert b'\nFrom: "Ann B" <a@me.example.org>\n' in message.message and b"<y>" not in message.message


def test_control_files_complete_names_and_the_environment_goes_before_them(home: Home) -> None:
    control = Path(home.control)
    (control / "defaulthost").write_text("dh+\n")
    (control / "defaultdomain").write_text("dd.example\n")
    (control / "plusdomain").write_text("pd.example\n")
    (control / "idhost").write_text("id.example\n")
    result = sent(home, message=b"To: a, b@c, d@e+\n")
    assert result.envelope.recipients == [b"a@dh.pd.example", b"b@c.dd.example", b"d@e.pd.example"]
    assert b"qmail@id.example>" in result.message and result.envelope.sender == b"ann@dh.pd.example"

    environment = {"QMAILDEFAULTHOST": "eh", "QMAILDEFAULTDOMAIN": "ed", "QMAILIDHOST": "i"}
    shown = inject(home, "-n", message=b"To: a, b@c, d@e+\n", **environment)
    assert b"\nTo: a@eh.ed, b@c.ed, d@e.pd.example\n" in shown.output and b"qmail@i>" in shown.output


def test_n_prints_the_message_and_needs_no_queue(home: Home) -> None:
    Path(home.queue).rename(home.queue + ".away")
    body = b"\nbody \0\xff no newline" + b"x" * 200_000
    shown = inject(home, "-n", message=LISTS + body)

    assert shown.code == 0
    assert shown.output.startswith(b"Return-Path: <ann@me.example.org>\nDate: ")
    assert shown.output.endswith(b"From: ann@me.example.org\nTo: to@x.y\nCc: cc@x.y\n" + body)
    assert inject(home, "-n", message=b"Subject: nobody is named\n").code == 0


def test_no_recipients_is_100(home: Home) -> None:
    for arguments, message in (([], b"Subject: x\n"), (["-a"], LISTS), (["-h", "a@b.c"], b"Subject: x\n")):
        refused(home, inject(home, *arguments, message=message), 100, b"no recipients")


def test_a_field_of_which_no_recipient_can_be_read_is_100_and_named(home: Home) -> None:
    outcome = inject(home, message=b"Subject: x\nTo: (oops\n\nbody")

    refused(home, outcome, 100, b"To field in line 2:", b"a ( without its )", b"nothing was queued")


@pytest.mark.parametrize("arguments", [["-a", "r@x.y"], ["r@x.y"]])
def test_with_recipients_as_arguments_a_strangers_header_stays_byte_for_byte(
    home: Home, arguments: list[str]
) -> None:
    header = b"Date: x\nMessage-ID: <y>\nFrom: <@r.x:a@b.c>\nTo: undisclosed-recipients:\nReply-To: <a@b.c>>\n"

    queued = sent(home, *arguments, message=header + b"\nbody")

    assert (queued.message, queued.envelope.recipients) == (header + b"\nbody", [b"r@x.y"])


@pytest.mark.parametrize("arguments", [["-z"], ["-f"], ["--foo"], ["-ahz", "x@y"]])
def test_a_wrong_option_is_100_with_the_usage(home: Home, arguments: list[str]) -> None:
    outcome = inject(home, *arguments, message=HEADER)

    assert outcome.code == 100 and b"usage: queue-inject" in outcome.error and is_empty(home)


@pytest.mark.parametrize(
    "arguments",
    [
        *(["a b@c d"], [""], ["@x.y"], ['""@x.y'], ['""'], ["a\nb@x.y"]),
        *(["-f", "a@(b", "x@y.z"], ["-f", '""@x', "x@y.z"]),
    ],
)
def test_an_argument_that_is_no_address_is_100(home: Home, arguments: list[str]) -> None:
    refused(home, inject(home, *arguments, message=HEADER), 100, b"unable to use")


@pytest.mark.parametrize("place", ["argument", "header", "sender"])
def test_an_address_of_1004_bytes_is_100(home: Home, place: str) -> None:
    address = "x" * (1004 - 12) + "@example.net"
    arguments = {"argument": [address], "header": [], "sender": ["-f", address]}[place]
    message = b"To: %s\n" % address.encode() if place == "header" else HEADER

    refused(home, inject(home, *arguments, message=message), 100, b"1004 bytes", b"limit 1002")


def test_a_header_over_16_mb_is_100(home: Home) -> None:
    refused(home, inject(home, message=b"X: " + b"x" * (17 << 20)), 100, b"over 16777216 bytes")


def test_a_full_disk_is_111_and_leaves_nothing(home: Home) -> None:
    command = [*program("queue-inject"), "--home", home.path]

    refused(home, run(command, HEADER + b"\n" + b"x" * 300_000, file_limit(200_000)), 111, b"unable to write")


def test_a_control_file_that_cannot_be_read_is_111(home: Home) -> None:
    Path(home.control, "defaulthost").mkdir()

    refused(home, inject(home, "bob", message=b""), 111, b"control/defaulthost")


def test_a_home_that_is_not_there_is_111(home: Home, tmp_path: Path) -> None:
    outcome = inject(Home(str(tmp_path / "nowhere")), message=HEADER)

    assert outcome.code == 111 and b"queuectl init" in outcome.error


def test_a_closed_stdin_is_111(home: Home) -> None:
    command = [*program("queue-inject"), "--home", home.path, "a@b.c"]

    refused(home, run(command, b"", lambda: os.close(0)), 111, b"unable to use descriptor 0")


def test_n_to_a_closed_pipe_is_111(home: Home) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run(
            [*program("queue-inject"), "--home", home.path, "-n"], input=HEADER, stdout=pipe, stderr=subprocess.PIPE
        )

    assert done.returncode == 111 and b"standard output" in done.stderr


def test_no_name_that_is_added_ends_in_a_dot(home: Home) -> None:
    for name, text in (("me", "me.example.org."), ("defaultdomain", "example.net."), ("plusdomain", "plus.example.")):
        Path(home.control, name).write_text(text + "\n")
    queued = sent(home, "joe", "joe@h", "joe@h+", "joe@x.example.", message=b"Subject: x\n\nhello\n")
    assert queued.envelope.recipients == [
        b"joe@me.example.org", b"joe@h.example.net", b"joe@h.plus.example", b"joe@x.example",
    ]  # fmt: skip
    assert queued.envelope.sender == b"ann@me.example.org"
    assert b".>" not in queued.message and b"org.\n" not in queued.message


def test_a_byte_order_mark_of_a_stranger_is_data(home: Home) -> None:
    text = b"\xef\xbb\xbfTo: bob@example.net\n\nhello\n"
    queued = sent(home, "-a", "carl@example.net", message=text)
    assert queued.message.endswith(b"\n\n" + text)
    assert queued.envelope.recipients == [b"carl@example.net"]


def test_a_byte_order_mark_that_hides_all_recipients_is_named(home: Home) -> None:
    refused(home, inject(home, message=b"\xef\xbb\xbf" + HEADER), 100, b"byte order mark (BOM)")


def test_recipients_that_cannot_be_read_are_named_when_the_others_get_the_message(home: Home) -> None:
    field = "To: bob@example.net\u00a0, <carl@example.net>\n".encode()
    outcome = inject(home, message=b"From: ann@x.y\n" + field + b"\nhello\n")
    assert outcome.code == 0
    assert outcome.error == (
        b"queue-inject: warning: unable to parse the To field in line 2: address holds U+00A0, a character that nobody"
        b" sees: 'bob@example.net\\xc2\\xa0'; sent to those that can be read\n"
    )
    assert field in only(home).message
    assert only(home).envelope.recipients == [b"carl@example.net"]


def test_fields_that_name_no_recipient_are_not_warned_of(home: Home) -> None:
    field = "To: bob@example.net\u00a0, <carl@@example.net>\nFrom: b@@x\n".encode()
    outcome = inject(home, "dan@example.net", message=field + b"\nhello\n")
    assert (outcome.code, outcome.error) == (0, b"")
    assert field in only(home).message


def test_an_address_in_utf_8_is_taken_as_it_is(home: Home) -> None:
    queued = sent(home, message="To: j\u00fcrgen@b\u00fccher.example, Ann\u00a0B. <ann@x.y>\n\nhello\n".encode())
    assert queued.envelope.recipients == ["j\u00fcrgen@b\u00fccher.example".encode(), b"ann@x.y"]
