"""Changes what is stored for on-demand domains: marks in hold/, and orders that queue-ondemand carries out.

Both are files (queue_wire.files.stored_order), durable before queue-ondemand is told of them. If it does not run, it
finds them at its next start.
"""

import os
import time
from collections.abc import Iterable, Iterator

from queue_admin.messages.selectors import Selectors
from queue_admin.messages.stored_mail import StoredMail, StoredMessage, ask_for_runs
from queue_admin.messages.survey import look
from queue_base.durable import Commit
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_base.queue.layout import FILE_MODE, Layout
from queue_wire.admin.ondemand_socket import HOLDS, ORDERS, RunRequest
from queue_wire.files.stored_order import HOLD_DIRECTORY, ORDER_DIRECTORY, WHOLE, StoredOrder, pack_order
from queue_wire.ids import unpack_long_id

DIRECTORY_MODE = 0o2750
ORDER_SECONDS = 10.0  # An order that takes longer goes on without the command.
LOOK_SECONDS = 0.02


class StoredIds:
    """Looks for ids among what is stored while they are passed on; `found` is what there is of them."""

    def __init__(self, layout: Layout, mail: StoredMail) -> None:
        self._layout = layout
        self._mail = mail
        self.found: list[StoredMessage] = []

    def pass_on(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the ids but for those of messages that are stored and no longer in the queue."""
        for name in names:
            stored = self._mail.find(name)
            self.found += stored
            if stored:
                message, birth = unpack_long_id(name)
                there = look(self._layout, message)
                if there is None or there.birth != birth:
                    continue
            yield name


class StoredChange:
    """What a command is to change: messages that a person named, or all that match.

    `messages` are long ids by domain; `whole` are the domains of which all was chosen.
    """

    def __init__(self, home: Home, mail: StoredMail, selectors: Selectors, now: float) -> None:
        self._home = home
        self._mail = mail
        self._selectors = selectors
        self._now = now
        self.messages: dict[bytes, dict[str, None]] = {}
        self.whole: set[bytes] = set()

    @property
    def count(self) -> int:
        """How many messages were chosen."""
        return sum(map(len, self.messages.values()))

    def take_named(self, found: Iterable[StoredMessage], held: bool = False) -> None:
        """Take those of the messages that match; with `held` only those on hold."""
        for message in found:
            chosen = self._mail.choose(message, self._selectors, self._now)
            if chosen is not None and (chosen.held is not None or not held):
                self.messages.setdefault(chosen.domain, {})[chosen.long_id] = None

    def take_matching(self, held: bool = False) -> None:
        """Take all that match; with `held` only those on hold."""
        self.take_named(self._mail.messages(self._selectors, self._now), held)
        by_domain = Selectors(domain=self._selectors.domain, prepends=self._selectors.prepends)
        if self._selectors == by_domain:
            self.whole = set(self.messages)

    def hold(self, why: bytes) -> None:
        """Put them on hold. Raises Temporary."""
        for domain, names in self.messages.items():
            marks = [WHOLE] if domain in self.whole else list(names)
            self._change(domain, HOLD_DIRECTORY, dict.fromkeys(marks, why + b"\n"))
        self._tell(HOLDS)

    def release(self) -> list[bytes]:
        """Take them from hold; return the domains that are on hold as a whole, and stay so. Raises Temporary."""
        left = []
        for domain, names in self.messages.items():
            place = self._place(domain, HOLD_DIRECTORY)
            commit = Commit()
            try:
                there = set(os.listdir(place))
                wanted = there if domain in self.whole else there.intersection(names)
                for name in wanted:
                    commit.unlink(f"{place}/{name}")
                commit.sync()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _unable(error, place) from error
            if WHOLE in there - wanted:
                left.append(domain)
        self._tell(HOLDS)
        return left

    def order(self, command: bytes) -> bool:
        """Have them deleted, bounced or requeued; return whether that is done. Raises Temporary."""
        recipient = self._selectors.recipient or b""
        made = []
        name = f"{time.time_ns():020}.{os.getpid()}"
        for domain, names in self.messages.items():
            ids = frozenset() if domain in self.whole else frozenset(names)
            self._change(domain, ORDER_DIRECTORY, {name: pack_order(StoredOrder(command, recipient, ids))})
            made.append(f"{self._place(domain, ORDER_DIRECTORY)}/{name}")
        if not self._tell(ORDERS):
            return False
        until = time.monotonic() + ORDER_SECONDS
        while any(map(os.path.lexists, made)):
            if time.monotonic() > until:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def _change(self, domain: bytes, kind: str, contents: dict[str, bytes]) -> None:
        """Make files of a domain, durably, each at once; nothing if its mail is gone."""
        place = self._place(domain, kind)
        passing = f"{self._home.queue}/pid/stored.{os.getpid()}"
        commit = Commit()
        try:
            if not os.path.isdir(place):
                commit.removed(place)
                os.mkdir(place)
                os.chmod(place, DIRECTORY_MODE)
            for name, data in contents.items():
                commit.unlink(passing)
                commit.create(passing, data, FILE_MODE)
                commit.sync()  # Its bytes must not come after its name.
                commit.rename(passing, f"{place}/{name}")
            commit.sync()
        except FileNotFoundError:
            return  # The last message of the domain is gone, and its directory.
        except OSError as error:
            raise _unable(error, place) from error

    def _tell(self, command: bytes) -> bool:
        """Tell queue-ondemand; return whether it runs."""
        try:
            ask_for_runs(self._home, [RunRequest(command, domain) for domain in self.messages])
        except Temporary:
            return False
        return True

    def _place(self, domain: bytes, kind: str) -> str:
        return f"{self._home.queue}/ondemand/{domain.decode()}/{kind}"


def _unable(error: OSError, path: str) -> Temporary:
    return Temporary(f"unable to change {error.filename or path}: {reason(error)}")
