"""The commands of batch SMTP (RFC 2442), as RFC 5321 section 4.1 has them, and as exim -bS and sendmail -bs take them.

`unpack_command` judges one line by itself; which order they come in is the reader's (queue_inject.batch.bsmtp).
"""

import re

from queue_wire.address import split_address
from queue_wire.envelope import check_address
from queue_wire.format_error import FormatError, quoted

# A command line with its end: RFC 5321 section 4.5.3.1.4 has 512, extensions add to that, addresses here may be 1,002.
COMMAND_MOST = 4096
HELLO = frozenset((b"HELO", b"EHLO", b"LHLO"))
# They change nothing in a batch. TICK and VERB are of BSMTP as BITNET had it.
IGNORED = frozenset((b"NOOP", b"VRFY", b"EXPN", b"HELP", b"TICK", b"VERB", b"ONEX"))
KNOWN = HELLO | IGNORED | {b"MAIL", b"RCPT", b"DATA", b"RSET", b"QUIT"}
# SIZE, BODY and those of RFC 2852, 3461, 4865, 4954, 6531, 6710 and 8689: they change nothing about how mail is queued.
_PARAMETERS = {
    b"MAIL": frozenset(b"SIZE BODY RET ENVID AUTH SMTPUTF8 MT-PRIORITY REQUIRETLS BY HOLDFOR HOLDUNTIL".split()),
    b"RCPT": frozenset(b"NOTIFY ORCPT RRVS".split()),
}
# In angle brackets, perhaps after a source route, perhaps with quoting; or bare, as many clients write it.
_PATH = re.compile(
    rb'[ \t]*(?:<(?:@[^:<>"]*:)?(?P<path>(?:"(?:[^"\\]|\\.)*"|[^"<>\\ \t]|\\.)*)>|(?P<bare>[^ \t<>"\\]+))(?=[ \t]|$)',
    re.DOTALL,
)
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_PAIR = re.compile(rb"\\(.)", re.DOTALL)


def unpack_command(line: bytes) -> tuple[bytes, bytes]:
    """Return a command, in upper case, and the address of MAIL or RCPT; `line` has no end. Raises FormatError."""
    verb, _, rest = line.partition(b" ")
    verb = verb.upper()
    if verb in (b"MAIL", b"RCPT"):
        word, colon, rest = rest.lstrip(b" \t").partition(b":")
        if not colon or word.rstrip(b" \t").upper() != (b"FROM" if verb == b"MAIL" else b"TO"):
            raise FormatError(f"not a command: {quoted(line)}")
        return verb, _unpack_argument(verb, rest, line)
    if verb.rstrip() not in KNOWN:
        raise FormatError(f"not a command: {quoted(line)}")
    return verb.rstrip(), b""


def _unpack_argument(verb: bytes, text: bytes, line: bytes) -> bytes:
    """Return the address of `<path> [KEYWORD[=VALUE] ...]`."""
    found = _PATH.match(text)
    if not found:
        raise FormatError(f"not an address in angle brackets: {quoted(line)}")
    for parameter in text[found.end() :].split():
        keyword, equals, value = parameter.partition(b"=")
        if keyword.upper() not in _PARAMETERS[verb] or (equals and not value):
            raise FormatError(f"not a parameter of {verb.decode()}: {quoted(parameter)}")
        if keyword.upper() == b"SIZE" and not value.isdigit():
            raise FormatError(f"not a size: {quoted(parameter)}")
    path = found["bare"] or found["path"] or b""
    address = _unpack_path(path)
    if path and not split_address(address)[0]:
        # `""`: to envelopes it is nobody, or no sender at all.
        raise FormatError(f"no name before the @: {quoted(line)}")
    if not address and verb == b"RCPT":
        raise FormatError(f"a recipient is empty: {quoted(line)}")
    return check_address(address)


def _unpack_path(path: bytes) -> bytes:
    """Return the address of a path as envelopes have it: without quoting."""
    if path[:1] == b"@" or path[-1:] == b"@":
        raise FormatError(f"not an address: {quoted(path)}")
    if b'"' in path:
        return _QUOTED.sub(lambda found: _PAIR.sub(rb"\1", found[1]), path)
    return _PAIR.sub(rb"\1", path) if b"\\" in path else path
