"""A message that ends between being found and being changed is no news, unless a person has named it."""

import pytest

from queue_admin.commands.messages.change import _Change
from queue_admin.messages.choosing import Chosen
from queue_admin.messages.selectors import Selectors
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.admin.socket import GONE, Note, Request, Response


class OneIsGone:
    """A queue of which the first message has ended."""

    def close(self) -> None:
        pass

    def ask(self, request: Request) -> Response:
        return Response(len(request.names) - 1, [Note(GONE, request.names[0] + b": no such message")])


@pytest.mark.parametrize(("by_id", "told"), [(True, "1-a: no such message\n"), (False, "")])
def test_a_message_that_is_gone_is_named_only_to_who_named_it(
    by_id: bool, told: str, home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queue_admin.commands.messages.change.connect_or_lock", lambda home, layout: OneIsGone())
    change = _Change(home, open_layout(home.queue), "delete", Selectors(uid=1001), b"", by_id)
    chosen = (Chosen(name, set(), 0) for name in ("1-a", "2-b", "3-c"))
    change.carry_out(chosen, None)
    assert (change.touched, change.found) == (2, True)
    assert capsys.readouterr() == ("", told)
