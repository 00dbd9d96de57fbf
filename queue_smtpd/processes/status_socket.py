"""The socket on which a process tells root and the queue's owner what it is doing (queue_wire.admin.smtpd_status).

Nobody who asks can stall the daemon: an answer is made and sent in slices, there are at most ASKERS_MAX at once, and
each has ANSWER_SECONDS. Without the socket the daemon goes on.
"""

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from queue_base.accounts import queue_owner
from queue_base.daemon.unix_sockets import listen_abstract, peer_of, status_prefix
from queue_base.errors import Failure, reason
from queue_base.home import Home
from queue_smtpd.smtp_connection import OpenConnections, SmtpConnection
from queue_wire.admin.smtpd_status import COUNTERS, REREAD, SESSIONS, SETTINGS, STATES, ProcessStatus, pack_status

ASKERS_MAX = 4
ANSWER_SECONDS = 10.0
# Sessions that are packed in one turn of the loop: about 2 ms.
SLICE = 200
_BACKLOG = 16

# What is known of the process but for its sessions and counters.
About = Callable[[], ProcessStatus]
# Returns what is in force of the control files (queue_wire.admin.settings), if asked after reading them.
SettingsSource = Callable[[bool], Awaitable[bytes]]


class StatusSocket:
    """The socket; `about` tells of the process, `settings` of its control files."""

    def __init__(self, home: Home, connections: OpenConnections, about: About, settings: SettingsSource) -> None:
        self._home = home
        self._connections = connections
        self._about = about
        self._settings = settings
        self._server: asyncio.Server | None = None
        self._askers = 0

    async def open(self) -> str:
        """Listen; return why that is not possible, empty if it is."""
        try:
            name = f"{status_prefix(self._home.run)}{os.getpid()}.{os.urandom(8).hex()}"
            listening = listen_abstract(name, _BACKLOG)
        except OSError as error:
            return f"unable to listen for queuectl smtpd: {reason(error)}; it does not show this process; mail goes on"
        self._server = await asyncio.start_unix_server(self._answer, sock=listening)
        return ""

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    def _may_ask(self, connection: socket.socket) -> bool:
        with suppress(OSError, Failure):
            return peer_of(connection)[1] in (0, queue_owner(self._home).uid)
        return False

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._askers >= ASKERS_MAX or not self._may_ask(writer.get_extra_info("socket")):
            writer.transport.abort()
            return
        self._askers += 1
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._tell(reader, writer)
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, ValueError):
            # It has gone, is too slow, or says something that is no request.
            pass
        finally:
            self._askers -= 1
            writer.transport.abort()

    async def _tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readline()
        if request in (SETTINGS, REREAD):
            writer.write(await self._settings(request == REREAD) + b"\n\n")
            return
        if request not in (COUNTERS, SESSIONS):
            return
        found = self._connections.all()
        states = dict.fromkeys(STATES, 0)
        for at in range(0, len(found), SLICE):
            for each in found[at : at + SLICE]:
                states[each.state()] += 1
            await asyncio.sleep(0)
        counters = {name: number for name, number in self._connections.counters.counts.items() if number}
        about = self._about()._replace(sessions=len(found), states=states, counters=counters)
        writer.write(pack_status(about))
        if request == SESSIONS:
            for at in range(0, len(found), SLICE):
                writer.write(_pack(found[at : at + SLICE]))
                await writer.drain()
                await asyncio.sleep(0)


def _pack(connections: list[SmtpConnection]) -> bytes:
    now = time.monotonic()
    return b"".join([pack_status(each.status(now)) for each in connections])
