"""The message that a person names by an id, as all commands find it. Reads only.

An id that no message can have, and a bare number where a long id is asked for, are errors of the command line: Usage.
What is not there is NotFound: the exit code is the same in all commands.
"""

from queue_admin.messages.stored_mail import StoredMail, StoredMessage
from queue_admin.messages.survey import Snapshot, look
from queue_base.errors import NotFound, Usage
from queue_base.queue.layout import Layout
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_long_id

_NO_SUCH = "no such message"


def read_id(name: str) -> tuple[int, int | None]:
    """Return the number and the birth in an id; the birth is None for a bare number. Raises Usage, NotFound."""
    try:
        message, birth = unpack_long_id(name)
    except FormatError as error:
        raise Usage(f"unable to use this id: {error}") from error
    if birth is not None and birth >= 1 << 63:
        raise NotFound(f"unable to find message {name}: {_NO_SUCH}")
    return message, birth


def find_message(layout: Layout, name: str) -> Snapshot:
    """Return the message of the queue with an id. Raises Usage, NotFound."""
    message, birth = read_id(name)
    snapshot = look(layout, message)
    if snapshot is None:
        raise NotFound(f"unable to find message {name}: {_NO_SUCH}")
    if birth is not None and snapshot.birth != birth:
        raise NotFound(f"unable to find message {name}: {_NO_SUCH} (inode reused by {snapshot.long_id})")
    return snapshot


def find_stored(mail: StoredMail, name: str) -> list[StoredMessage]:
    """Return what is stored of a message with an id. Raises Usage also if several have it; NotFound."""
    message, birth = read_id(name)
    if birth is not None:
        return mail.find(name)
    names = sorted(mail.find_number(message))
    if len(names) > 1:
        raise Usage(f"unable to use {name}: {' and '.join(names)} are stored; name one of them")
    return [each for long_id in names for each in mail.find(long_id)]


def check_long_id(layout: Layout, name: str, mail: StoredMail | None = None) -> str:
    """Return a long id, whether its message is there or not. Raises Usage, NotFound for anything else.

    With `mail`, the number of a message that is stored, and no longer in the queue, is that of a message, too.
    """
    message, birth = read_id(name)
    if birth is None:
        if mail is not None and look(layout, message) is None:
            for long_id in sorted(mail.find_number(message)):
                raise no_long_id(name, long_id)
        found = find_message(layout, name)
        if found.birth is None:
            raise NotFound(f"unable to find message {name}: {_NO_SUCH}")
        raise no_long_id(name, found.long_id)
    return name


def no_long_id(name: str, long_id: str) -> Usage:
    """Return the error for a bare number where a long id is asked for."""
    return Usage(f"unable to use {name}: inode numbers are used again; name its long id (it is {long_id} now)")
