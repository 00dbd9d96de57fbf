"""Whose an address is, and which channel it goes to: a row a rule of qmail's manuals, in tests/tables/."""

import os
from pathlib import Path

import pytest

from queue_base import users
from queue_base.control_files import read_rules
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_local.local_delivery import NOT_AS_ROOT, find_recipient
from queue_wire.control.rewrite import LOCAL, rewrite
from queue_wire.mailbox import Account
from support.local.assigned import assign
from support.local.tables import Row, read_table
from support.queues.home import make_home

PASSWD = {b"joe": Account("joe", 507, 100, "/home/joe"), b"bob": Account("bob", 508, 100, "/home/bob")}


def name_of(row: Row) -> str:
    return f"{row.rule}: {row.given}"


@pytest.mark.parametrize("row", read_table("assign.txt"), ids=name_of)
def test_a_local_part_has_the_account_dash_and_extension_of_the_manual(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home(tmp_path / "home", split=1)
    if row.setup[0] == "assign":
        # The table's dot is in there; what follows it must not count.
        assign(home, "\n".join((*row.setup[1:], "")))
    monkeypatch.setattr(users, "find_user", PASSWD.get)
    monkeypatch.setattr(users, "alias_account", lambda home: Account("alias", 7, 7, home.alias))
    if row.expected == "deferred":
        with pytest.raises(Temporary) as refused:
            find_recipient(home, os.fsencode(row.given))
        assert str(refused.value) == NOT_AS_ROOT
        return
    found = find_recipient(home, os.fsencode(row.given))
    account, ext = found.account, found.extension.decode()
    shown = f"{account.name}:{account.uid}:{account.gid}:{account.home}:{found.dash.decode()}:{ext}"
    assert f"{found.source} {shown}" == row.expected.replace("HOME", home.path).replace("ALIAS", "7")


@pytest.mark.parametrize("row", read_table("virtualdomains.txt"), ids=name_of)
def test_an_address_goes_to_the_channel_of_the_manual(row: Row, tmp_path: Path) -> None:
    control = tmp_path / "control"
    control.mkdir()
    (control / "me").write_text("me.example\n")
    for line in row.setup:
        name, _, entries = line.partition(": ")
        (control / name).write_text(entries.replace(", ", "\n") + "\n")
    channel, address = rewrite(row.given.encode(), read_rules(Home(str(tmp_path))))
    assert f"{'local' if channel is LOCAL else 'remote'} {address.decode()}" == row.expected
