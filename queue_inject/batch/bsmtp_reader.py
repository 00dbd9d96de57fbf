"""Reads messages from batch SMTP (RFC 2442): the commands of an SMTP client (RFC 5321 section 4.1) without replies.

The syntax is what exim -bS and sendmail -bs accept. Lines end in CRLF or LF, and become LF. A message is what DATA
gives, with the MAIL and RCPT commands before it; a dot at the beginning of a line is removed (RFC 5321 section 4.5.2),
and a line with a lone dot ends the message. A wrong command makes the message that follows it a bad one, because half
of its recipients would be worse than none; other messages are not affected. RSET forgets MAIL and RCPT. HELO, EHLO,
MAIL, QUIT or the end of the input before DATA makes a bad message. Another batch may follow QUIT.

`unpack_command` parses one line; BsmtpReader knows the order of commands.
"""

import re

from queue_inject.batch.pieces import BatchReader, EndOfMessage, Piece, Unreadable
from queue_wire.address import split_address
from queue_wire.files.envelope import check_address
from queue_wire.format_error import FormatError, quoted

# A command line with its end. RFC 5321 section 4.5.3.1.4 has 512; extensions add to that, addresses may have 1,002.
COMMAND_MAX = 4096
HELLO = frozenset((b"HELO", b"EHLO", b"LHLO"))
# These have no effect in a batch. TICK and VERB are from BITNET's BSMTP.
IGNORED = frozenset((b"NOOP", b"VRFY", b"EXPN", b"HELP", b"TICK", b"VERB", b"ONEX"))
KNOWN = HELLO | IGNORED | {b"MAIL", b"RCPT", b"DATA", b"RSET", b"QUIT"}
# SIZE, BODY, and the parameters of RFC 2852, 3461, 4865, 4954, 6531, 6710 and 8689. They have no effect.
_PARAMETERS = {
    b"MAIL": frozenset(b"SIZE BODY RET ENVID AUTH SMTPUTF8 MT-PRIORITY REQUIRETLS BY HOLDFOR HOLDUNTIL".split()),
    b"RCPT": frozenset(b"NOTIFY ORCPT RRVS".split()),
}
# An address in angle brackets, perhaps with a source route and quoting; or a bare one, as many clients write it.
_PATH = re.compile(
    rb'[ \t]*(?:<(?:@[^:<>"]*:)?(?P<path>(?:"(?:[^"\\]|\\.)*"|[^"<>\\ \t]|\\.)*)>|(?P<bare>[^ \t<>"\\]+))(?=[ \t]|$)',
    re.DOTALL,
)
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_PAIR = re.compile(rb"\\(.)", re.DOTALL)


def unpack_command(line: bytes) -> tuple[bytes, bytes]:
    """Return the command of a line, in upper case, and the address of MAIL or RCPT. `line` has no line end.

    Raises FormatError.
    """
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
        # `""` would be nobody in an envelope, or the empty sender.
        raise FormatError(f"no name before the @: {quoted(line)}")
    if not address and verb == b"RCPT":
        raise FormatError(f"a recipient is empty: {quoted(line)}")
    return check_address(address)


def _unpack_path(path: bytes) -> bytes:
    """Return the address of a path as an envelope has it, without quoting."""
    if path[:1] == b"@" or path[-1:] == b"@":
        raise FormatError(f"not an address: {quoted(path)}")
    if b'"' in path:
        return _QUOTED.sub(lambda found: _PAIR.sub(rb"\1", found[1]), path)
    return _PAIR.sub(rb"\1", path) if b"\\" in path else path


class BsmtpReader(BatchReader):
    """Keeps at most a command line and the recipients of one message, up to `recipients_max` bytes."""

    def __init__(self, recipients_max: int = 64 * 1024 * 1024) -> None:
        self._recipients_max = recipients_max
        # A CR at the end of the input so far, which waits for its LF.
        self._held = b""
        self._rest = b""
        self._in_data = False
        # Whether the text so far ends within a line.
        self._middle = False
        self._unreadable = False
        self._reset()

    def _reset(self) -> None:
        self._sender: bytes | None = None
        self._recipients: list[bytes] = []
        self._size = 0
        self._error = ""

    def feed(self, data: bytes) -> list[Piece]:
        pieces: list[Piece] = []
        if self._unreadable:
            return pieces
        if self._held:
            data, self._held = self._held + data, b""
        if b"\r" in data:
            if data.endswith(b"\r"):
                data, self._held = data[:-1], b"\r"
            data = data.replace(b"\r\n", b"\n")
        self._parse(pieces, self._rest + data)
        return pieces

    def _parse(self, pieces: list[Piece], data: bytes) -> None:
        place = 0
        while not self._unreadable:
            if self._in_data:
                place = self._text(pieces, data, place)
                if self._in_data:
                    break
            else:
                end = data.find(b"\n", place)
                if end < 0:
                    break
                self._line(pieces, data[place:end])
                place = end + 1
        self._rest = b"" if self._unreadable else data[place:]
        if not self._in_data and len(self._rest) > COMMAND_MAX:
            # The line has not ended yet. Its rest counts as another line, and makes the message a bad one too.
            self._line(pieces, self._rest)
            self._rest = b""

    def _line(self, pieces: list[Piece], line: bytes) -> None:
        if len(line) > COMMAND_MAX:
            self._spoil(f"a command is over {COMMAND_MAX} bytes: {quoted(line)}")
        elif line[:5].upper().rstrip() == b"BDAT":
            # The bytes that follow are not lines, so nobody can tell where the next command begins.
            pieces.append(Unreadable("BDAT cannot be used in batches, use DATA"))
            self._unreadable = True
        elif line.strip():
            try:
                self._command(pieces, *unpack_command(line))
            except FormatError as error:
                self._spoil(str(error))

    def _command(self, pieces: list[Piece], verb: bytes, address: bytes) -> None:
        if verb in HELLO or verb in (b"RSET", b"QUIT"):
            self._drop(pieces, "" if verb == b"RSET" else f"{verb.decode()} comes before its DATA")
        elif verb == b"MAIL":
            if self._sender is not None:
                self._drop(pieces, "MAIL comes before its DATA")
            self._sender = address
        elif verb == b"RCPT":
            if self._sender is None:
                raise FormatError("RCPT without MAIL")
            self._size += len(address) + 2
            if self._size > self._recipients_max:
                self._recipients.clear()
                raise FormatError("the recipients are too many")
            self._recipients.append(address)
        elif verb == b"DATA":
            if self._sender is None:
                self._spoil("DATA without MAIL")
            elif not self._recipients:
                self._spoil("DATA without RCPT")
            self._in_data = True

    def _spoil(self, error: str) -> None:
        self._error = self._error or error

    def _drop(self, pieces: list[Piece], why: str) -> None:
        """Forget MAIL and RCPT. If there was a MAIL, `why` is the error of its message; empty if that is no error."""
        error = self._error or (why if self._sender is not None else "")
        if error:
            pieces.append(EndOfMessage(error=error))
        self._reset()

    def _text(self, pieces: list[Piece], data: bytes, place: int) -> int:
        """Read the text of a message from `place` on; return where the rest begins."""
        if not self._middle and data.startswith(b".\n", place):
            end, after = place, place + 2
        else:
            found = data.find(b"\n.\n", place)
            end, after = found + 1, found + 3
            if found < 0:
                # A dot at the beginning of the last line may end the message.
                dot = data.endswith(b"\n.", place) or (not self._middle and data[place:] == b".")
                end = after = len(data) - dot
                self._take(pieces, data[place:end])
                return after
        self._take(pieces, data[place:end])
        pieces.append(EndOfMessage(error=self._error) if self._error else EndOfMessage(self._sender, self._recipients))
        self._in_data = self._middle = False
        self._reset()
        return after

    def _take(self, pieces: list[Piece], text: bytes) -> None:
        if not text:
            return
        if not self._middle and text.startswith(b"."):
            text = text[1:]
        self._middle = not text.endswith(b"\n")
        if not self._error and text:
            pieces.append(text.replace(b"\n.", b"\n") if b"\n." in text else text)

    def finish(self) -> list[Piece]:
        pieces: list[Piece] = []
        if self._unreadable:
            return pieces
        rest, self._rest = self._rest + self._held, b""
        if self._in_data:
            pieces.append(EndOfMessage(error=self._error or "the input ends before the dot that ends it"))
        else:
            self._line(pieces, rest.removesuffix(b"\r"))
            self._drop(pieces, "the input ends before its DATA")
        return pieces
