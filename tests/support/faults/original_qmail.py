"""What an original qmail would deliver from a queue that it finds, by its INTERNALS: it knows S1 to S5, no marks."""

import os
from collections import Counter
from pathlib import Path

from queue_base.home import Home
from queue_base.queue.layout import Presence, open_layout
from queue_wire.files.envelope import unpack_todo
from queue_wire.files.recipients import unpack_pending
from support.queues.letters import token_of


def owed_by_qmail(home: Home) -> Counter[tuple[str, str]]:
    """Return how often it would deliver each (token, recipient). Fail where a message is in no state.

    A file in todo/ is all that counts for its message; else the recipients with a T in local/ and remote/. Of info/ it
    reads the first record. It does not know the trees of classes.
    """
    layout = open_layout(home.queue)
    numbers: set[int] = set()
    for kind in ("mess", "intd", "todo", "info", "local", "remote"):
        for directory in layout.directories(kind):
            numbers.update(int(name) for name in os.listdir(directory) if name.isdigit())
    owed: Counter[tuple[str, str]] = Counter()
    for number in numbers:
        state = Presence(layout, number).state()
        assert state is not None, f"message {number} is in no state: {vars_of(Presence(layout, number))}"
        if state not in (4, 5) or layout.class_of(number):
            continue
        recipients = []
        if state == 4:
            recipients = unpack_todo(Path(layout.todo(number)).read_bytes()).recipients
        else:
            sender, end, _ = Path(layout.hashed("info", number)).read_bytes().partition(b"\0")
            assert sender[:1] == b"F" and end, f"message {number} has no sender: {sender!r}"
            for kind in ("local", "remote"):
                path = Path(layout.hashed(kind, number))
                if path.exists():
                    recipients += [address for _, address in unpack_pending(path.read_bytes())]
        token = token_of(Path(layout.mess(number)).read_bytes())
        owed.update((token, recipient.decode()) for recipient in recipients)
    return owed


def vars_of(presence: Presence) -> list[str]:
    """Return the kinds of files that a message has."""
    kinds = ("bounce", "info", "intd", "local", "mess", "remote", "todo")
    return [kind for kind in kinds if getattr(presence, kind)]
