""".qmail files for aliases: what queue-local does with them is what the alias file says."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_admin.aliases.alias_file import Fault, parse_aliases
from queue_admin.aliases.qmail_plan import QmailPlan, compare, is_ours, mark, plan_files
from queue_local.local_delivery import deliver_as
from queue_local.result import Outcome, unpack_forward
from queue_wire.dotqmail import qmail_names, unpack_dotqmail
from queue_wire.mailbox import ALIAS, Account, Mailbox
from support.local.deliveries import end_of
from support.local.mailboxes import UID, MailHome, give, mail_home

SOURCE = b"/etc/aliases"
SENDER = b"from@far.example"
MESSAGE = b"Subject: x\n\nbody\n"


def plan(text: bytes, included: Mapping[bytes, bytes | str] | None = None) -> QmailPlan:
    """Return the plan for an alias file that can be parsed."""
    parsed = parse_aliases(text)
    assert not parsed.faults
    return plan_files(parsed.aliases, included or {}, SOURCE)


def lines_of(found: QmailPlan) -> dict[bytes, list[bytes]]:
    """Return the lines of each file after its first, which must be the mark."""
    assert all(is_ours(data, SOURCE) for data in found.files.values())
    return {name: data.splitlines()[1:] for name, data in found.files.items()}


def test_names_become_files_and_targets_lines() -> None:
    found = plan(b'Joe.Shmoe: ann, "a b"@far.example, ann, /var/mail/old, /srv/md/\nx+y: "|/bin/prog -a b"\n')
    assert not found.faults
    assert lines_of(found) == {
        b".qmail-joe:shmoe": [b"&ann", b"&a b@far.example", b"/var/mail/old", b"/srv/md/"],
        b".qmail-x+y": [b"|preline /bin/prog -a b"],
    }


def test_the_owner_of_a_list_becomes_the_sender_of_its_forwards() -> None:
    found = plan(b"owner-list: ann\nlist: :include:/etc/list\nowner-none: bob\n", {b"/etc/list": b"carl\n# no\ndora"})
    assert lines_of(found) == {
        b".qmail-owner-list": [b"&ann"],
        b".qmail-list": [b"&carl", b"&dora"],
        b".qmail-owner-none": [b"&bob"],
        b".qmail-list-owner": [b"&ann"],
    }
    # An entry of that name comes first.
    found = plan(b"owner-list: ann\nlist: carl\nlist-owner: bob\n")
    assert lines_of(found)[b".qmail-list-owner"] == [b"&bob"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"a: a, b", "it forwards to itself, and there is no account of that name"),
        (b"default: b", ".qmail-default would take mail for all addresses"),
        (b"a-default: b", ".qmail-a-default would take mail for all addresses"),
        (b"x.y: b\nx/y: c", "x.y in line 1 has the same file, .qmail-x:y"),
        (b"a: b, :include:/none", "unable to read /none: no such file"),
        (b"a: b, :include:/bad", "/bad line 2: a program is not allowed in an included file"),
        (b"a: :include:/big", "its file would have over 1048576 bytes"),
        (b"a" * 300 + b": b", "the name of its file would have over 255 bytes"),
    ],
)
def test_an_entry_that_cannot_be_expressed_makes_no_file_and_is_named(text: bytes, why: str) -> None:
    included: dict[bytes, bytes | str] = {
        b"/none": "no such file",
        b"/bad": b"x\n|y\n",
        b"/big": b"".join(b"%06d\n" % n for n in range(140_000)),
    }
    found = plan(text + b"\nlast: b\n", included)
    assert len(found.faults) == 1 and why in found.faults[0].why
    assert found.faults[0].line == text.count(b"\n") + 1
    assert b".qmail-last" in found.files and len(found.files) == text.count(b"\n") + 1


def test_only_files_of_this_source_are_replaced_and_removed() -> None:
    wanted = plan(b"new: a\nsame: a\nother: a\nmine: a\nlink: a\n")
    ours = mark(SOURCE) + b"&old\n"
    found: dict[bytes, bytes | None] = {
        b".qmail-same": wanted.files[b".qmail-same"],
        b".qmail-other": ours,
        b".qmail-mine": b"&me\n",
        b".qmail-link": None,
        b".qmail-gone": ours,
        b".qmail-left": ours,
        b".qmail-second": mark(b"/etc/aliases2") + b"&old\n",
    }
    changes = compare(wanted, found, SOURCE, [Fault(9, b"left", "why")])
    assert sorted(changes.write) == [b".qmail-new", b".qmail-other"]
    assert sorted(changes.conflicts) == [b".qmail-link", b".qmail-mine"]
    assert (changes.remove, changes.unchanged) == ([b".qmail-gone"], 1)


def test_a_line_that_nobody_can_read_removes_no_file() -> None:
    found: dict[bytes, bytes | None] = {b".qmail-gone": mark(SOURCE) + b"&old\n"}
    assert not compare(QmailPlan({}, []), found, SOURCE, [Fault(1, b"", "why")]).remove


@given(st.binary(max_size=80).filter(lambda data: b"include" not in data.lower()))
def test_whatever_is_planned_can_be_read_as_a_qmail_file(data: bytes) -> None:
    parsed = parse_aliases(b"a: " + data)
    found = plan_files(parsed.aliases, {}, SOURCE)
    assert len(found.files) + len(found.faults) >= len(parsed.aliases)
    for contents in found.files.values():
        lines = [line for line in contents.split(b"\n") if line and not line.startswith(b"#")]
        assert len(unpack_dotqmail(contents)) == len(lines)


@pytest.fixture(scope="module")
def home() -> Iterator[MailHome]:
    with mail_home() as made:
        yield made


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are looked for beside the one that runs, which is pytest here."""
    monkeypatch.setattr(sys, "argv", [str(Path(sys.executable).with_name("queue-local"))])


@pytest.fixture
def mail(home: MailHome) -> MailHome:
    """Return the home with an empty alias/."""
    shutil.rmtree(home.alias)
    home.alias.mkdir()
    give(home.alias)
    return home


def deliver(mail: MailHome, local: bytes, files: Mapping[bytes, bytes]) -> tuple[bytes, list[bytes], bytes]:
    """Deliver to an alias; return the report, the recipients of the forward, and its sender."""
    for name, data in files.items():
        mail.qmail(name.decode(), data)
    account = Account("alias", UID, UID, str(mail.alias))

    def work(message: int) -> Outcome:
        box = Mailbox(account, b"-", local, ALIAS)
        return deliver_as(mail.home, box, SENDER, local + b"@host.example", message, b"./none\n")

    ended = end_of(work, mail.path / "queue" / mail.message(MESSAGE).decode())
    forward = None if ended.forward is None else unpack_forward(b"".join(ended.forward))
    return ended.letter + ended.text, forward.recipients if forward else [], forward.sender if forward else b""


def test_a_list_forwards_to_its_members_with_its_owner_as_sender(mail: MailHome) -> None:
    files = plan(b"owner-List: ann\nList: b@far.example, :include:/l\n", {b"/l": b"c\n"}).files
    assert deliver(mail, b"list", files) == (b"Kdid 0+2+0\n", [b"b@far.example", b"c"], b"list-owner@host.example")
    assert deliver(mail, b"list-owner", files)[1] == deliver(mail, b"owner-list", files)[1] == [b"ann"]


def test_a_command_gets_the_message_as_sendmail_gives_it_also_if_it_needs_a_shell(mail: MailHome) -> None:
    for number, command in enumerate((b"/bin/dd status=none of=out%d", b"tr -d z | sed 's/b\\\"o/x/' >out%d; exit 0")):
        files = plan(b'prog: "|%s"\n' % (command % number)).files
        assert deliver(mail, b"prog", files) == (b"Kdid 0+0+1\n", [], b"")
        got = (mail.alias / f"out{number}").read_bytes()
        assert got.startswith(b"From from@far.example ") and got.endswith(b"\n" + MESSAGE)
        assert b"\nReturn-Path: <from@far.example>\nDelivered-To: prog@host.example\n" in got


def test_a_file_is_an_mbox_and_a_directory_a_maildir(mail: MailHome) -> None:
    maildir = mail.maildir("md")
    text = b"keep: %s/box, %s/\n" % (bytes(mail.alias), bytes(maildir))
    assert deliver(mail, b"keep", plan(text).files)[0] == b"Kdid 2+0+0\n"
    assert (mail.alias / "box").read_bytes().startswith(b"From from@far.example ")
    assert len(list((Path(maildir) / "new").iterdir())) == 1


def test_a_file_is_the_first_that_queue_local_looks_for() -> None:
    for name in (b"a.b", b"A-b", b"x/y", b"a+b"):
        (file,) = plan(name + b": c\n").files
        assert file == qmail_names(b"-", name)[0]
