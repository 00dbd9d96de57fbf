"""The table of dot-qmail's rules, each row in a home and a process of its own."""

import mailbox
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_local.local_delivery import deliver_as
from queue_local.result import Outcome, unpack_forward
from queue_wire.mailbox import Account, Mailbox
from support.local.deliveries import end_of
from support.local.dotqmail_rules import RULES, Rule
from support.local.mailboxes import UID, MailHome, give, mail_home

MESSAGE = b"Subject: x\n\nbody\n"


@pytest.fixture(scope="module")
def home() -> Iterator[MailHome]:
    with mail_home() as made:
        yield made


@pytest.fixture
def mail(home: MailHome) -> MailHome:
    """Return the home with nothing but two maildirs in alias/."""
    shutil.rmtree(home.alias)
    home.alias.mkdir()
    give(home.alias)
    for name in ("Maildir", "Default"):
        home.maildir(name)
    return home


def found(path: Path, name: str) -> int | bytes:
    """Return how many messages a maildir or an mbox has, or the bytes of another file; 0 where it is not there."""
    if not path.exists():
        return 0
    if name.endswith("/"):
        return len(list((path / "new").iterdir()))
    if not name.startswith("."):
        return path.read_bytes()
    read = mailbox.mbox(path, create=False)
    try:
        return len(read)
    finally:
        read.close()


@pytest.mark.parametrize("rule", RULES, ids=[rule.rule for rule in RULES])
def test_a_home_s_files_decide_about_a_message(mail: MailHome, rule: Rule) -> None:
    for name, content in rule.files.items():
        text, mode = content if isinstance(content, tuple) else (content, 0o644)
        mail.qmail(name, text, mode)
    mail.alias.chmod(rule.mode)
    dash, local = (b"", b"joe") if rule.extension is None else (b"-", b"joe-" + rule.extension)
    account = Account("joe", UID, UID, str(mail.alias))
    recipient = local + b"@host.example"

    def work(message: int) -> Outcome:
        box = Mailbox(account, dash, rule.extension or b"")
        return deliver_as(mail.home, box, rule.sender, recipient, message, rule.default)

    ended = end_of(work, mail.path / "queue" / mail.message(MESSAGE).decode())
    mail.alias.chmod(0o755)
    assert ended.letter + ended.text == rule.did
    assert {name: found(mail.alias / name, name) for name in rule.mail} == rule.mail
    if rule.forward is None:
        assert ended.forward is None
    else:
        assert ended.forward is not None
        forward = unpack_forward(b"".join(ended.forward))
        assert (forward.sender, forward.recipients) == rule.forward
        assert (forward.uid, forward.head) == (UID, b"Delivered-To: %s\n" % recipient)
