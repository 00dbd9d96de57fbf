"""sendmail accepts the options of Sendmail, Postfix and qmail, and queues the message that it was given."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from queue_base.home import Home
from support.inject.injectors import Queued, is_empty, only, queued, sendmail

ME = pwd.getpwuid(os.getuid()).pw_name.encode()
HEADER = b"From: ann@me.example.org\nTo: to@x.y\nCc: cc@x.y\nDate: x\nMessage-ID: <y>\n"
BODY = b"\n\n.x\n..\n" + bytes(byte for byte in range(256) if byte != 13) + b"\nno newline"
MESSAGE = HEADER + BODY
WHO = ME + b"@me.example.org"


def sent(home: Home, *arguments: str, message: bytes = MESSAGE, **environment: str) -> Queued:
    """Have sendmail queue a message; return what was queued."""
    outcome = sendmail(home, *arguments, message=message, **environment)
    assert (outcome.code, outcome.output) == (0, b""), outcome
    return only(home)


# Each option of the manuals, with its value as for getopt. None changes the message or its envelope.
WITHOUT_EFFECT = [
    ["-bm"], ["-i"], ["-oi"], ["-oiTrue"], ["-o", "i"], ["-oem"], ["-oee"], ["-odb"], ["-odi"], ["-om"], ["-o7"],
    ["-o8"], ["-oA/etc/aliases"], ["-o", "z"], ["-O", "DeliveryMode=b"], ["-OIgnoreDots"], ["-Am"], ["-A", "c"],
    ["-C", "/file"], ["-D", "/dev/null"], ["-d"], ["-d0.1"], ["-em"], ["-e", "q"], ["-E"], ["-G"], ["-h", "17"],
    ["-h17"], ["-J"], ["-L", "label"], ["-m"], ["-n"], ["-p", "UUCP:host"], ["-pSMTP"], ["-s"], ["-T"], ["-U"], ["-v"],
    ["-v", "-v"], ["-X", "/log"], ["-x"], ["-c"], ["-nvm", "-iUG"], ["--"], ["-B8BITMIME"], ["-B", "7bit"],
    ["-N", "never"], ["-Nsuccess,failure,delay"], ["-N", "FAILURE"], ["-Rfull"], ["-R", "HDRS"], ["-V", "id+2Bx"],
    ["-V" + "x" * 100],
    # As cron, mutt and PHP have them.
    ["-FCronDaemon", "-i", "-B8BITMIME", "-oem"], ["-oem", "-oi", "-N", "failure,delay", "-R", "full", "--"],
]  # fmt: skip


@pytest.mark.parametrize("options", WITHOUT_EFFECT, ids=" ".join)
def test_an_option_without_effect_leaves_message_and_envelope_alone(home: Home, options: list[str]) -> None:
    found = sent(home, *options, "b@x.y", "c")

    assert found.message == MESSAGE
    assert (found.envelope.sender, found.envelope.recipients) == (WHO, [b"b@x.y", b"c@me.example.org"])


@pytest.mark.parametrize(
    ("options", "sender"),
    [
        (["-f", "s@x.y"], b"s@x.y"),
        (["-fs"], b"s@me.example.org"),
        (["-r", "s@x.y"], b"s@x.y"),
        (["-rs@x.y", "-i"], b"s@x.y"),
        (["-if", "s@x.y"], b"s@x.y"),
        (["-f", "a@x.y", "-f", "s@x.y"], b"s@x.y"),
        (["-f", ""], b""),
        (["-f", "<>"], b""),
        (["-f<>"], b""),
        (["-f", "<s@x.y>"], b"s@x.y"),
        (["-f", "Sam S. <s@x.y>"], b"s@x.y"),
        (["-f", "s@x.y (Sam)"], b"s@x.y"),
        (["-f", '"a b"@x.y'], b"a b@x.y"),
        (["-f", "list-@x.y-@[]"], b"list-@x.y-@[]"),
        (["-f", "-odd@x.y"], b"-odd@x.y"),
        ([], WHO),
    ],
)
def test_f_and_r_set_the_envelope_sender(home: Home, options: list[str], sender: bytes) -> None:
    found = sent(home, *options, "b@x.y")

    assert (found.envelope.sender, found.envelope.recipients, found.message) == (sender, [b"b@x.y"], MESSAGE)


@pytest.mark.parametrize(
    ("arguments", "recipients"),
    [
        (["a@x.y"], [b"a@x.y"]),
        (["a", "-f", "b@x.y", "--"], [b"a", b"-f", b"b@x.y", b"--"]),
        (["--", "-f", "b@x.y"], [b"-f", b"b@x.y"]),
        (["-"], [b"-"]),
        (["a,b@x.y"], [b"a", b"b@x.y"]),
        (["Ann <a@x.y>, b@x.y (Bob)", "c@x.y"], [b"a@x.y", b"b@x.y", b"c@x.y"]),
        (["a@x.y b@x.y"], [b"a@x.y", b"b@x.y"]),
        (["a@x.y", "a@x.y"], [b"a@x.y"]),
        (["|/bin/sh"], [b"|/bin/sh"]),
        (["a@[IPv6:::1]"], [b"a@[IPv6:::1]"]),
        (["-t"], [b"to@x.y", b"cc@x.y", b"bcc@x.y"]),
        (["-ti", "a@x.y"], [b"a@x.y", b"to@x.y", b"cc@x.y", b"bcc@x.y"]),
        (["-t", "cc@x.y"], [b"cc@x.y", b"to@x.y", b"bcc@x.y"]),
        (["-it", "-odb", "--", "-a@x.y"], [b"-a@x.y", b"to@x.y", b"cc@x.y", b"bcc@x.y"]),
    ],
)
def test_recipients_are_those_of_the_arguments_and_with_t_of_the_header(
    home: Home, arguments: list[str], recipients: list[bytes]
) -> None:
    found = sent(home, *arguments, message=HEADER + b"Bcc: bcc@x.y\n" + BODY)

    assert found.envelope.recipients == [each if b"@" in each else each + b"@me.example.org" for each in recipients]
    assert found.message == MESSAGE


@pytest.mark.parametrize(
    ("options", "environment", "author", "sender"),
    [
        (["-F", "Ann B.", "-f", "s@x.y"], {}, b'"Ann B." <s@x.y>', b"s@x.y"),
        (["-FAnn", "-f", "list-@x.y-@[]"], {}, b'"Ann" <list-@x.y>', b"list-@x.y-@[]"),
        (["-f", "s@x.y"], {}, b"s@x.y", b"s@x.y"),
        (["-f", "s@x.y"], {"NAME": "Env"}, b'"Env" <s@x.y>', b"s@x.y"),
        (["-F", "Ann", "-f", "<>"], {"NAME": "Env"}, b'"Ann" <%s>' % WHO, b""),
        (["-FAnn"], {}, b'"Ann" <%s>' % WHO, WHO),
        (["-FAnn"], {"QMAILUSER": "u", "QMAILHOST": "h.x"}, b'"Ann" <u@h.x>', b"u@h.x"),
        (["-FAnn", "-f", "s@x.y"], {"QMAILUSER": "u"}, b'"Ann" <u@me.example.org>', b"s@x.y"),
        (["-FAnn\nBcc: evil@x.y"], {}, b'"Ann Bcc: evil@x.y" <%s>' % WHO, WHO),
    ],
)
def test_a_message_without_from_gets_the_sender_and_full_name(
    home: Home, options: list[str], environment: dict[str, str], author: bytes, sender: bytes
) -> None:
    found = sent(home, *options, "b@x.y", message=b"Subject: x\n\nbody", **environment)

    fields = found.message.partition(b"\n\n")[0].split(b"\n")
    assert [field for field in fields if field.startswith((b"From:", b"Bcc:"))] == [b"From: " + author]
    assert found.envelope.sender == sender and found.message.endswith(b"\n\nbody")


def test_the_user_is_the_one_of_the_uid_and_not_of_the_environment(home: Home) -> None:
    entry = pwd.getpwuid(os.getuid())
    found = sent(home, "b@x.y", message=b"", USER="someone", LOGNAME="else")

    assert found.envelope.sender == WHO
    [line] = [line for line in found.message.split(b"\n") if line.startswith(b"From: ")]
    assert WHO in line and entry.pw_gecos.partition(",")[0].encode() in line


@pytest.mark.parametrize("name", ["QUEUE_NAME", "QMAILNAME", "MAILNAME", "NAME"])
def test_a_name_that_is_set_and_empty_is_no_name_as_for_queue_inject(home: Home, name: str) -> None:
    assert b"\nFrom: %s\n" % WHO in sent(home, "b@x.y", message=b"", **{name: ""}).message


def test_a_lone_dot_ends_the_message_where_the_caller_does_not_say_i(home: Home) -> None:
    assert sent(home, "b@x.y", message=HEADER + b"\none\n.\ntwo\n").message == HEADER + b"\none\n"


def test_crlf_becomes_lf_in_header_and_body_and_other_crs_stay(home: Home) -> None:
    message = HEADER.replace(b"\n", b"\r\n") + b"\r\none\r\ntwo\nthr\ree\r\n"

    assert sent(home, "-i", "b@x.y", message=message).message == HEADER + b"\none\ntwo\nthr\ree\n"


def test_an_mbox_line_on_top_goes(home: Home) -> None:
    line = b"From ann@example.org Thu Jan  1 00:00:00 1970\n"

    assert sent(home, "-i", "b@x.y", message=line + MESSAGE).message == MESSAGE


def test_a_message_of_30_mb_is_queued_byte_for_byte(home: Home) -> None:
    message = HEADER + b"\n" + os.urandom(30_000_000).replace(b"\r", b"\n")

    assert sent(home, "-i", "b@x.y", message=message).message == message


def test_newaliases_does_nothing_and_says_nothing(home: Home, tmp_path: Path) -> None:
    (tmp_path / "newaliases").symlink_to(Path(__file__).parents[3] / "bin/sendmail")
    called = subprocess.run([sys.executable, tmp_path / "newaliases"], stdin=subprocess.DEVNULL, capture_output=True)

    assert (called.returncode, called.stdout, called.stderr) == (0, b"", b"")
    for option in ("-bi", "-I"):
        assert sendmail(home, option) == (0, b"", b"")
    assert is_empty(home)


def test_the_ordinary_path_imports_nothing_heavy(home: Home) -> None:
    heavy = "typing collections re enum signal socket subprocess contextlib dataclasses functools shutil email asyncio"
    script = (
        "import sys; before = set(sys.modules); from queue_inject.sendmail.main import main; code = main(sys.argv)\n"
        "print(' '.join(set(sys.modules) - before)); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script, "--home", home.path, "-oi", "-fs@x.y", "b@x.y"],
        input=HEADER,
        capture_output=True,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )

    assert done.returncode == 0 and len(queued(home)) == 1, done
    loaded = set(done.stdout.decode().split())
    assert "queue_base.queue.writer" in loaded and not loaded & {*heavy.split(), "pwd"}
