"""Requests of queue-smtpd to queue-ondemand (queue_wire.admin.ondemand_socket), and what a client's ETRN asks of it."""

import asyncio

from queue_base.daemon.unix_sockets import connect_to, send_with_descriptor
from queue_smtp import server_replies as replies
from queue_smtp.server_replies import ServerReply
from queue_wire.admin.ondemand_socket import (
    EMPTY,
    ETRN,
    LATER,
    REQUEST_MAX,
    RUNNING,
    SOCKET,
    STARTED,
    UNKNOWN,
    RunRequest,
    pack_run_request,
    unpack_run_answer,
)
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader

ANSWER_SECONDS = 10.0
# The best one first.
_REPLIES = {
    STARTED: replies.MAIL_STARTED,
    RUNNING: replies.MAIL_RUNNING,
    LATER: replies.MAIL_LATER,
    EMPTY: replies.MAIL_NONE,
    UNKNOWN: replies.MAIL_NOT_ALLOWED,
}


async def ask_for_mail(queues: list[str], name: bytes, client: str) -> ServerReply:
    """Return the reply to ETRN; `queues` are the paths of the queues. Of several answers the best one counts.

    If queue-ondemand does not answer, the client is to come again.
    """
    request = RunRequest(ETRN, name, client.encode("ascii", "replace"))
    words = await asyncio.gather(*[_ask_queue(f"{queue}/{SOCKET}", request) for queue in queues])
    return _REPLIES[min(words, key=list(_REPLIES).index)]


async def _ask_queue(path: str, request: RunRequest) -> bytes:
    """Return the word of the answer; LATER if there is none."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await _ask(path, request)
    except (OSError, FormatError, EOFError):
        return LATER


async def _ask(path: str, request: RunRequest) -> bytes:
    """Return the word of the answer. Raises OSError, EOFError, FormatError."""
    asked = await open_request(path, request)
    try:
        return await asked.answer()
    finally:
        asked.close()


class QueueRequest:
    """A request to the queue-ondemand of one queue, and its answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answers = NetstringReader(REQUEST_MAX)

    async def answer(self) -> bytes:
        """Return the word of the next answer. Raises OSError, EOFError, FormatError."""
        while (payload := self._answers.next()) is None:
            data = await self._reader.read(REQUEST_MAX)
            if not data:
                raise EOFError
            self._answers.feed(data)
        return unpack_run_answer(payload).word

    def close(self) -> None:
        """Close its connection."""
        self._writer.close()


async def open_request(path: str, request: RunRequest, descriptor: int | None = None) -> QueueRequest:
    """Ask a queue-ondemand; a descriptor goes with the request. Raises OSError."""
    packed = pack_run_request(request)
    sent = 0
    connection = connect_to(path)
    if descriptor is not None:
        try:
            # A new connection takes the beginning at least, at once.
            sent = send_with_descriptor(connection, packed, descriptor)
        except OSError:
            connection.close()
            raise
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    writer.write(packed[sent:])
    return QueueRequest(reader, writer)
