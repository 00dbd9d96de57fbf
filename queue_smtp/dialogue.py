"""Commands out, replies in: the ground that queue_smtp.opening and queue_smtp.client stand on.

Each command is asked together with what its reply is given to, and replies are handed out in that order, so
several commands may be under way. Nothing that a peer sends raises: bytes that are no reply, or a reply that
nobody asked for, close the connection.
"""

from collections import deque
from collections.abc import Callable

from queue_smtp import text
from queue_smtp.reply import Reply, ReplyReader
from queue_smtp.session import Phase, Session
from queue_smtp.text import Verdict
from queue_wire.format_error import FormatError
from queue_wire.report import TEMPORARY

Handler = Callable[[Reply], None]

CLOSED_BY_PEER = "it closed the connection"


class Dialogue:
    """One connection. `failure` is why it came to nothing; `replies` counts the replies taken.

    `cut` says that it was ended in the middle of a message, so that no orderly end may follow; `farewell`
    that QUIT was said.
    """

    __slots__ = ("_expected", "_out", "_peer", "_reader", "cut", "failure", "farewell", "phase", "replies", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.phase = Phase.GREETING
        self.failure: Verdict | None = None
        self.replies = 0
        self.cut = False
        self.farewell = False
        self._peer = session.peer
        self._out: list[bytes] = []
        self._reader = ReplyReader()
        self._expected: deque[tuple[bytes, Handler]] = deque()

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the peer; return what to send."""
        phase = self.phase
        if phase is Phase.CLOSED:
            return b""
        if phase is Phase.STARTTLS:
            self._injected()
            return b""
        self._reader.feed(data)
        try:
            while self.phase is not Phase.CLOSED and (reply := self._reader.next()) is not None:
                self._take(reply)
        except FormatError as error:
            self.fail(TEMPORARY, text.not_smtp(self._peer, self.stage, str(error)))
        return self._sent()

    @property
    def stage(self) -> bytes:
        """What is being waited for, for texts: `greeting`, a command's name, `message`, `end of message`, or `idle`."""
        if self.phase is Phase.STARTTLS:
            return b"TLS handshake"
        if self.phase is Phase.MESSAGE:
            return b"message"
        return self._expected[0][0] if self._expected else b"idle"

    def lost(self, reason: str = CLOSED_BY_PEER) -> None:
        """The connection ended, or no reply came in time."""
        if self.phase is not Phase.CLOSED:
            critical = self.phase is Phase.ANSWER
            self.fail(TEMPORARY, text.connection_died(self._peer, self.stage, reason, critical))

    def fail(self, letter: bytes, reason: bytes) -> None:
        """End the connection, whatever it is doing; the first reason stays."""
        if self.phase is not Phase.CLOSED:
            self.cut = self.phase is Phase.MESSAGE
            self.phase = Phase.CLOSED
            self.failure = (letter, reason)
            self._expected.clear()

    def _injected(self) -> None:
        """Bytes came between the answer to STARTTLS and TLS. Anybody on the way could have put them there."""
        self.fail(TEMPORARY, text.injected(self._peer, self.session.policy))

    def _ask(self, stage: bytes, command: bytes, then: Handler) -> None:
        self._out.append(command)
        self._expected.append((stage, then))

    def _sent(self) -> bytes:
        out = self._out
        if not out:
            return b""
        said = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return said

    def _take(self, reply: Reply) -> None:
        self.replies += 1
        if not self._expected:
            # Between messages a server may say 421 and close; anything else is out of step.
            self.fail(TEMPORARY, text.out_of_step(self._peer, reply))
            return
        self._expected.popleft()[1](reply)

    def _decline(self, reason: bytes) -> None:
        """The peer does not want to talk to us, or not as it must: part in good order."""
        self._out.append(b"QUIT\r\n")
        self.farewell = True
        self.fail(TEMPORARY, reason)
