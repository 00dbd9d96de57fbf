"""The author of a message that sendmail is called with: who From and the envelope sender name if nothing else does.

It is the user who runs sendmail, from the password database, as in other sendmails: in cron, PHP or `su` the variables
USER and LOGNAME are missing or another user's. The variables that are meant for mail (QUEUE_USER, QMAILUSER, MAILUSER)
have precedence.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

_USER = (b"QUEUE_USER", b"QMAILUSER", b"MAILUSER")
_NAME = (b"QUEUE_NAME", b"QMAILNAME", b"MAILNAME", b"NAME")
_HOST = (b"QUEUE_HOST", b"QMAILHOST")
_VERP = b"-@[]"


def set_author(environment: "MutableMapping[bytes, bytes]", sender: bytes | None, full_name: bytes | None) -> None:
    """Set user, host and full name in the environment, where the completion of a header looks for them.

    `sender` is that of -f, and makes From if the message has none, as in Postfix and Sendmail. `full_name` is that of
    -F.
    """
    if full_name is not None:
        _set(environment, _NAME[:2], full_name)
    if any(environment.get(name) for name in _USER):
        return
    if sender:
        user, at, host = sender.removesuffix(_VERP).rpartition(b"@")
        _set(environment, _USER[:2], user if at else host)
        if at:
            _set(environment, _HOST, host)
        return
    # Imported here because few callers need it: most use -f, or send a message with From.
    import pwd

    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return
    _set(environment, _USER[:2], os.fsencode(entry.pw_name))
    name = entry.pw_gecos.partition(",")[0].replace("&", entry.pw_name.capitalize())
    # An empty name is set too: it means that there is to be none.
    if name.isascii() and not any(each in environment for each in _NAME):
        _set(environment, _NAME[:2], name.encode("ascii"))


def _set(environment: "MutableMapping[bytes, bytes]", names: tuple[bytes, ...], value: bytes) -> None:
    for name in names:
        environment[name] = value
