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
