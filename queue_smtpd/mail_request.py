"""Asks queue-ondemand for the mail of a domain, on behalf of a client's ETRN (queue_wire.admin.ondemand_socket)."""

import asyncio

from queue_base.daemon.unix_sockets import connect_to
from queue_smtp import server_replies as replies
from queue_smtp.server_replies import ServerReply
from queue_wire.admin.ondemand_socket import (
    EMPTY,
    ETRN,
    LATER,
    REQUEST_MOST,
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
_REPLIES = {
    STARTED: replies.MAIL_STARTED,
    EMPTY: replies.MAIL_NONE,
    RUNNING: replies.MAIL_RUNNING,
    LATER: replies.MAIL_LATER,
    UNKNOWN: replies.MAIL_NOT_ALLOWED,
}


async def ask_for_mail(queue: str, name: bytes, client: str) -> ServerReply:
    """Return the reply to ETRN; `queue` is the path of the queue.

    If queue-ondemand does not answer, the client is to come again.
    """
    request = RunRequest(ETRN, name, client.encode("ascii", "replace"))
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return _REPLIES[await _ask(f"{queue}/{SOCKET}", request)]
    except (OSError, FormatError, EOFError):
        return replies.MAIL_LATER


async def _ask(path: str, request: RunRequest) -> bytes:
    """Return the word of the answer. Raises OSError, EOFError, FormatError."""
    reader, writer = await asyncio.open_unix_connection(sock=connect_to(path))
    try:
        writer.write(pack_run_request(request))
        answers = NetstringReader(REQUEST_MOST)
        while (payload := answers.next()) is None:
            data = await reader.read(REQUEST_MOST)
            if not data:
                raise EOFError
            answers.feed(data)
        return unpack_run_answer(payload).word
    finally:
        writer.close()
