"""What qmail-remote says of a delivery (qmail-remote(8)), as qmail-rspawn reads it: reports of a letter, text and NUL.

    r  h  s    for each recipient in order: taken, refused for good, refused for now
    K  Z  D    then for the message: taken, temporary failure, permanent failure

The first report on the message is the last that counts. Records that begin with another letter are passed over. A
program may report on the message alone: that holds for every recipient.
"""

import itertools
import re
from collections.abc import Sequence

from queue_smtp.reply import TEXT_MAX, clean
from queue_smtp.text import Verdict
from queue_wire.format_error import FormatError
from queue_wire.report import HOST_SCOPE, MESSAGE_SCOPE, PERMANENT, SUCCESS, TEMPORARY

_RANK = {SUCCESS: 1, TEMPORARY: 0, PERMANENT: -1}
_REFUSED = {b"h": PERMANENT, b"s": TEMPORARY}
# Records that count; a program may write very many others.
_RECIPIENT = re.compile(rb"(?:\A|(?<=\0))([rhs])([^\0]*)\0")
_MESSAGE = re.compile(rb"(?:\A|(?<=\0))([KZD])([^\0]*)\0")
_UNCERTAIN = b"The program said that it was done, and nothing about this recipient. (#4.3.0)\n"
# Trouble with the network or the route (RFC 3463 section 3.5), in qmail-remote's way of writing it.
_HOST_TROUBLE = re.compile(rb"\(#4\.4\.[0-9]+\)")


def unpack_reports(data: bytes, count: int) -> tuple[bytes, list[Verdict]]:
    """Return the scope and the verdicts on `count` recipients. Raises FormatError where the message has no report.

    The scope is that of the nexthop where the message is deferred without a word on any recipient, and its
    text has a status 4.4.x: qmail-remote was not connected, or not greeted, or lost the connection.
    """
    message = _MESSAGE.search(data)
    if message is None:
        raise FormatError("no report on the message" if data else "no output")
    found = itertools.islice(_RECIPIENT.finditer(data, 0, message.start()), count)
    recipients = [(record[1], clean(record[2][:TEXT_MAX])) for record in found]
    letter, text = message[1], clean(message[2][:TEXT_MAX])
    away = letter == TEMPORARY and not recipients and _HOST_TROUBLE.search(text)
    return (HOST_SCOPE if away else MESSAGE_SCOPE), _judge(recipients, (letter, text), count)


def _judge(recipients: Sequence[Verdict], message: Verdict, count: int) -> list[Verdict]:
    found: list[Verdict] = []
    for letter, text in recipients:
        verdict = _REFUSED.get(letter, message[0])
        # As qmail-rspawn: what is said of the message is added where it is no better news.
        found.append((verdict, text + message[1] if _RANK[message[0]] <= _RANK[verdict] else text))
    rest = (TEMPORARY, _UNCERTAIN) if recipients and message[0] == SUCCESS else message
    return found + [rest] * (count - len(found))
