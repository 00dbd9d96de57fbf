"""Reads a message's envelope files: who sent it, to whom, who is done, when the next attempt is due.

Nothing is locked, so a file may vanish between a look and a read; and nothing is believed: bytes that
are not in their format make `trouble`, and the rest is still shown.
"""

import os
from collections.abc import Callable

from queue_admin.survey import Sight, read_head, read_regular
from queue_base.errors import reason
from queue_base.layout import Layout
from queue_wire.envelope import unpack_info, unpack_todo
from queue_wire.failures import unpack_failures
from queue_wire.format_error import FormatError
from queue_wire.recipients import unpack_recipients

CHANNELS = ("local", "remote")


class Channel:
    """One channel's recipients as (done, address), and its next attempt in seconds since the epoch."""

    __slots__ = ("next_attempt", "recipients")

    def __init__(self, recipients: list[tuple[bool, bytes]], next_attempt: float) -> None:
        self.recipients = recipients
        self.next_attempt = next_attempt

    @property
    def left(self) -> int:
        """Recipients not yet done."""
        return sum(not done for done, _ in self.recipients)

    @property
    def done(self) -> int:
        """Recipients done."""
        return len(self.recipients) - self.left


class Detail:
    """A message's envelope; `sender` is None where it cannot be read, `unsorted` is for a queued message."""

    __slots__ = ("channels", "sender", "trouble", "uid", "unsorted")

    def __init__(self, layout: Layout, sight: Sight) -> None:
        """Read what the state says is there."""
        self.sender: bytes | None = None
        self.uid: int | None = None
        self.unsorted: list[bytes] = []
        self.channels: dict[str, Channel] = {}
        self.trouble: list[str] = [sight.trouble] if sight.trouble else []
        if sight.presence.todo:
            self._take(layout.todo(sight.message), self._todo)
            return
        if sight.presence.info:
            self._take(layout.hashed("info", sight.message), self._info)
        for name in CHANNELS:
            if getattr(sight.presence, name):
                self._channel(name, layout.hashed(name, sight.message))

    def next_attempt(self) -> float | None:
        """Return when the first recipient left is due, in seconds since the epoch; None where nobody is left."""
        return min((channel.next_attempt for channel in self.channels.values() if channel.left), default=None)

    def _take(self, path: str, unpack: Callable[[bytes], None]) -> None:
        name = "/".join(path.rsplit("/", 3)[1:])
        try:
            unpack(read_regular(path))
        except FormatError as error:
            self.trouble.append(f"{name}: {error}")
        except OSError as error:
            self.trouble.append(f"{name}: {reason(error)}")

    def _todo(self, data: bytes) -> None:
        envelope = unpack_todo(data)
        self.sender, self.uid, self.unsorted = envelope.sender, envelope.uid, envelope.recipients

    def _info(self, data: bytes) -> None:
        self.sender = unpack_info(data)

    def _channel(self, name: str, path: str) -> None:
        def unpack(data: bytes) -> None:
            recipients = [(done, address) for _, done, address in unpack_recipients(data)]
            self.channels[name] = Channel(recipients, os.stat(path).st_mtime)

        self._take(path, unpack)


def mark_reason(layout: Layout, kind: str, message: int) -> bytes:
    """Return the reason in hold/B/I or corrupt/B/I, one line; what failed where it cannot be read."""
    try:
        return read_head(layout.hashed(kind, message), 4096).split(b"\n", 1)[0]
    except OSError as error:
        return f"its reason: {reason(error)}".encode()


def failures(layout: Layout, message: int) -> list[tuple[bytes, bytes]]:
    """Return (recipient, text) of the permanent failures noted so far; none where the file cannot be read."""
    try:
        return unpack_failures(read_regular(layout.bounce(message)))
    except OSError:
        return []
