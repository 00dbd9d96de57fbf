"""Whose name a message from sendmail has: From and the sender, where neither the message nor an option says it.

The user is the one who runs sendmail, from the password database, as other sendmails have it: in cron, PHP or `su` the
variables USER and LOGNAME are missing or another's. Those that are meant for mail (QUEUE_USER, QMAILUSER, MAILUSER) go
before it.
"""

import os

from queue_inject.sendmail.options import SendmailOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

_USER = (b"QUEUE_USER", b"QMAILUSER", b"MAILUSER")
_NAME = (b"QUEUE_NAME", b"QMAILNAME", b"MAILNAME", b"NAME")
_HOST = (b"QUEUE_HOST", b"QMAILHOST")
_VERP = b"-@[]"


def set_author(options: SendmailOptions, environment: "MutableMapping[bytes, bytes]") -> None:
    """Put user, host and full name where the completing of a message looks for them: into its environment.

    A message without From gets the sender of -f there, as in Postfix and Sendmail.
    """
    if options.full_name is not None:
        _set(environment, _NAME[:2], options.full_name)
    if any(environment.get(name) for name in _USER):
        return
    if options.sender:
        user, at, host = options.sender.removesuffix(_VERP).rpartition(b"@")
        _set(environment, _USER[:2], user if at else host)
        if at:
            _set(environment, _HOST, host)
        return
    # Imported here because few callers need it: most say -f, or are a program with a From of its own and -f.
    import pwd

    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return
    _set(environment, _USER[:2], os.fsencode(entry.pw_name))
    name = entry.pw_gecos.partition(",")[0].replace("&", entry.pw_name.capitalize())
    # An empty one says that there is to be no name.
    if name.isascii() and not any(each in environment for each in _NAME):
        _set(environment, _NAME[:2], name.encode("ascii"))


def _set(environment: "MutableMapping[bytes, bytes]", names: tuple[bytes, ...], value: bytes) -> None:
    for name in names:
        environment[name] = value
