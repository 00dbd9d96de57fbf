"""Checks queue-remote's control files, for `queuectl config`: those that have secrets or name them.

`queue-remote --check` prints a line for each fault of the home's files, `NAME TAB WHY`. `queue-remote --check NAME`
checks the contents on fd 0 as if they were in control/NAME. Nothing is connected to, and no secret is printed.
"""

import os
from collections.abc import Callable, Iterator, Mapping

from queue_base.control import read_control
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_remote.message.arc_key import read_arc_key, unpack_arc
from queue_remote.message.dkim_keys import read_keyring, unpack_keys
from queue_remote.smtpauth import read_logins, unpack_logins
from queue_wire.format_error import FormatError

FILE_MAX = 1 << 20  # Bytes of contents on fd 0.


CHECKS: Mapping[str, Callable[[bytes], object]] = {"smtpauth": unpack_logins, "dkim": unpack_keys, "arc": unpack_arc}


def check_contents(name: str, data: bytes) -> str:
    """Return what is wrong with the contents of a control file; empty if nothing is, or the name is not of CHECKS."""
    try:
        CHECKS.get(name, len)(data)
    except FormatError as error:
        return str(error)
    return ""


def check_home(home: Home) -> Iterator[tuple[str, str]]:
    """Yield (name, what is wrong) for the files of a home, and for the keys that control/dkim and control/arc name."""
    sound = set()
    for name in CHECKS:
        try:
            data = read_control(home, name)
        except Temporary as error:
            yield name, str(error)
            continue
        wrong = "" if data is None else check_contents(name, data)
        if wrong:
            yield name, wrong
        else:
            sound.add(name)
    if "dkim" in sound:
        for wrong in read_keyring(home).faults.values():
            yield "dkim", f"unable to sign for {wrong}"
    if "arc" in sound and (fault := read_arc_key(home, b"").fault) is not None:
        yield "arc", f"unable to seal forwarded mail: {fault}"
    if "smtpauth" in sound and (why := read_logins(home).fault) is not None:
        yield "smtpauth", why


def check(home: Home, name: str | None) -> bytes:
    """Return the lines for the home, or for the contents on fd 0 of the control file `name`. Raises Temporary."""
    faults = list(check_home(home) if name is None else [(name, check_contents(name, _read_contents()))])
    lines = [f"{file}\t{' '.join(why.split())}\n" for file, why in faults if why]
    return "".join(lines).encode("utf-8", "backslashreplace")


def _read_contents() -> bytes:
    data = b""
    try:
        while len(data) <= FILE_MAX and (more := os.read(0, 65536)):
            data += more
    except OSError as error:
        raise Temporary(f"unable to read standard input: {reason(error)}") from error
    return data
