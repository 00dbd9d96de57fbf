"""A connection to a milter on the event loop: commands go out, and each answer is waited for, until a time.

A milter that cannot be asked needs a person: an alert says so, once in a while and not for each session.
"""

import asyncio
import socket
import tempfile
import time
from collections.abc import Callable

from queue_base.daemon.unread_input import read_unread
from queue_base.errors import reason
from queue_smtpd.milter.milter_client import MilterAnswer, MilterClient
from queue_wire.control.milters import MilterLine
from queue_wire.format_error import FormatError
from queue_wire.logline import alert

_READ_MAX = 65536
# A milter may ask for more time again and again, but a client waits ten minutes for the end of its message.
LONGEST = 560.0
# Seconds between two alerts about one milter.
ALERT_SECONDS = 600.0
_CLOSED = "it has closed the connection"


class MilterTrouble(Exception):
    """The milter cannot be asked; the text says why. The link is useless."""


class MilterAlerts:
    """What the log was told of milters that cannot be asked, and of messages that cannot be kept for them.

    That is of all sessions of this process.
    """

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def note(self, line: MilterLine, error: MilterTrouble, accepts: bool, now: float) -> list[bytes]:
        """Return the log lines for a milter that could not be asked: an alert, or none if there was one lately.

        `accepts`: mail is taken without it.
        """
        following = "mail is accepted without it" if accepts else "its mail is deferred"
        return self._tell(line.name, f"unable to ask milter {line.name}: {error}; {following}", now)

    def note_spool(self, why: str, now: float) -> list[bytes]:
        """Return the log lines for a message that could not be kept while filters look at it."""
        text = f"unable to keep a message for filters in {tempfile.gettempdir()}: {why}; mail is deferred"
        return self._tell("", text, now)

    def _tell(self, name: str, text: str, now: float) -> list[bytes]:
        if now < self._told.get(name, now - ALERT_SECONDS) + ALERT_SECONDS:
            return []
        self._told[name] = now
        return [alert(text)]


class _MilterProtocol(asyncio.StreamReaderProtocol):
    """What a milter says before the connection fails is read; the failure is that of the next write."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection = transport
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and (unread := read_unread(self._connection)):
            self.data_received(unread)
        # Given an error, the reader would throw away what it has.
        super().connection_lost(None)


class MilterLink:
    """A link. `client` makes the commands, `exchange` carries them out."""

    def __init__(self, line: MilterLine) -> None:
        self.client = MilterClient()
        self._line = line
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Connect, and negotiate. Raises MilterTrouble."""
        line = self._line
        try:
            async with asyncio.timeout(line.connect):
                await self._connect(line)
        except TimeoutError as error:
            raise MilterTrouble(f"unable to connect within {line.connect} seconds") from error
        except OSError as error:
            # Names that cannot be looked up have numbers of their own.
            why = str(error.strerror) if isinstance(error, socket.gaierror) else reason(error)
            raise MilterTrouble(f"unable to connect: {why}") from error
        except UnicodeError as error:
            raise MilterTrouble(f"unable to connect: {line.host} cannot be the name of a host") from error
        self.client.negotiate()
        await self.exchange(time.monotonic() + line.connect)

    async def _connect(self, line: MilterLine) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = _MilterProtocol(reader, loop=loop)
        if line.path:
            transport, _ = await loop.create_unix_connection(lambda: protocol, line.path)
        else:
            transport, _ = await loop.create_connection(lambda: protocol, line.host, line.port)
        self._reader, self._writer = reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def exchange(self, until: float, take_body: Callable[[bytes], None] | None = None) -> MilterAnswer:
        """Send what the client has to send, and return the answer that it waits for. Raises MilterTrouble.

        `until` is a monotonic time. A milter that says that it needs time has as long again, up to LONGEST in all.
        `take_body` gets the pieces of a new body as they come.
        """
        client, writer = self.client, self._writer
        assert writer is not None
        data = client.data_to_send()
        if not data and not client.waits:
            return client.answer
        if writer.is_closing():
            raise MilterTrouble(_CLOSED)
        begun = time.monotonic()
        try:
            async with asyncio.timeout(until - begun) as limit:
                writer.write(data)
                try:
                    await writer.drain()
                except OSError:
                    # The milter may have answered before it closed the connection.
                    if not client.waits:
                        raise
                if client.waits:
                    await self._read_answer(limit, begun, until - begun, take_body)
                else:
                    # A message may have thousands of such commands. Other connections have their turns.
                    await asyncio.sleep(0)
        except TimeoutError as error:
            raise MilterTrouble(f"no answer within {time.monotonic() - begun:.0f} seconds") from error
        except FormatError as error:
            raise MilterTrouble(f"it does not keep to the protocol: {error}") from error
        except OSError as error:
            raise MilterTrouble(reason(error)) from error
        return client.answer

    async def _read_answer(
        self, limit: asyncio.Timeout, begun: float, seconds: float, take_body: Callable[[bytes], None] | None
    ) -> None:
        """Read what the milter says until its answer is there. Raises MilterTrouble, FormatError, OSError.

        If it says that it needs time, the limit is `seconds` from then, but LONGEST after `begun` at most.
        """
        client, reader = self.client, self._reader
        assert reader is not None
        while client.waits:
            progress = client.progress
            data = await reader.read(_READ_MAX)
            if not data:
                raise MilterTrouble(_CLOSED)
            client.feed(data)
            if take_body is not None:
                for piece in client.take_body():
                    take_body(piece)
            if client.progress > progress:
                more = min(seconds, begun + LONGEST - time.monotonic())
                limit.reschedule(asyncio.get_running_loop().time() + more)

    def close(self) -> None:
        """Tell the milter that it is over, and close the connection without waiting."""
        writer, self._writer = self._writer, None
        if writer is None or writer.is_closing():
            return
        if self.client.waits or writer.transport.get_write_buffer_size():
            # To a milter that does not read, the transport would try to send the rest for ever.
            writer.transport.abort()
            return
        self.client.quit()
        writer.write(self.client.data_to_send())
        writer.close()
