"""queue-inject reads the file of mailing lists that QUEUE_MFTFILE or QMAILMFTFILE names."""

from pathlib import Path

import pytest

from queue_base.home import Home
from support.inject.injectors import inject, is_empty, only
from support.queues.home import make_home

HEADER = b"From: ann@me.example.org\nTo: bob@example.net\nDate: x\nMessage-ID: <y>\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "lists").write_text("#\nBOB@example.net\n")
    return make_home(tmp_path / "home")


@pytest.mark.parametrize("variable", ["QUEUE_MFTFILE", "QMAILMFTFILE"])
def test_mail_to_a_list_gets_mail_followup_to(home: Home, tmp_path: Path, variable: str) -> None:
    assert inject(home, message=HEADER, **{variable: str(tmp_path / "lists")}).code == 0

    assert only(home).message == b"Mail-Followup-To: bob@example.net\n" + HEADER


def test_our_variable_goes_first_and_a_file_that_is_not_there_names_no_lists(home: Home, tmp_path: Path) -> None:
    environment = {"QUEUE_MFTFILE": str(tmp_path / "none"), "QMAILMFTFILE": str(tmp_path / "lists")}

    assert inject(home, message=HEADER, **environment).code == 0
    assert only(home).message == HEADER


def test_a_file_that_cannot_be_read_is_111(home: Home, tmp_path: Path) -> None:
    outcome = inject(home, message=HEADER, QMAILMFTFILE=str(tmp_path))

    assert outcome.code == 111 and is_empty(home)
    assert outcome.error.startswith(b"queue-inject: fatal: unable to read %s, the file of" % str(tmp_path).encode())
