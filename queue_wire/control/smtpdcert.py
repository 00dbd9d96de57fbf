"""`control/smtpdcert`: the certificates of queue-smtpd, by the name that a client asks for (SNI, RFC 6066). Pure.

    NAME:FILE [FILE]

NAME is one of queue_wire.control.hostmap: `mx.example.org`, `.example.org` for all names below it, and an empty one for
all others and for clients that name none, which must be there. The files, in PEM, have a certificate, those that lead
from it to its authority, and its key. A path without a slash at its beginning is one in control/.
"""

from queue_wire.control.hostmap import host_key, refuse_impossible
from queue_wire.control.lines import numbered_lines
from queue_wire.format_error import FormatError, InLine, LineError, quoted

FILES_MAX = 4


def unpack_certificate_lines(data: bytes) -> dict[bytes, tuple[bytes, ...]]:
    """Return {key: files}; the last of two equal keys counts. Raises LineError."""
    found: dict[bytes, tuple[bytes, ...]] = {}
    for number, line in numbered_lines(data):
        with InLine(number):
            name, colon, rest = line.partition(b":")
            files = tuple(rest.split())
            if not colon or not 0 < len(files) <= FILES_MAX:
                raise FormatError(f"not NAME:FILE [FILE]: {quoted(line)}")
            refuse_impossible(name)
            found[host_key(name)] = files
    if b"" not in found:
        raise LineError(1, "it has no line that begins with a colon, for clients that name no host")
    return found
