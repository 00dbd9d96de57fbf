"""Fuzzes what reads bytes of clients, with atheris, which is not among what the tests need (CONTRIBUTING.md).

    cd tests; ../.venv/bin/pip install atheris; ../.venv/bin/python -m support.fuzz TARGET [OPTION OF LIBFUZZER...]

A target takes any bytes, and raises if a promise is broken. The first byte of the input is the size of the pieces in
which the rest comes, 0 for one piece.
"""

import importlib
import sys
from collections.abc import Callable

from queue_smtp.proxy_header import unpack_proxy_header
from queue_smtpd.sessions.forged_results import ForgedResults
from queue_wire.control.intake_hosts import unpack_intake
from queue_wire.control.listeners import Role, unpack_listeners
from queue_wire.control.milters import unpack_milters
from queue_wire.control.strangers.dnslists import unpack_dns_lists
from queue_wire.control.strangers.greylist import unpack_greylist
from queue_wire.control.strangers.smtpdlimits import unpack_smtpd_limits
from queue_wire.format_error import FormatError
from queue_wire.pipes.package_reader import Data, PackageReader
from support.smtpd.sessions import STRANGER, DrivenSession

# Bytes of memory that a session may keep for each byte of input, with what Python takes for an object.
_EVENTS_MAX = 20


def pieces(data: bytes) -> list[bytes]:
    """Divide the input."""
    size, text = data[:1], data[1:]
    step = size[0] if size and size[0] else max(1, len(text))
    return [text[at : at + step] for at in range(0, len(text), step)]


def fuzz_smtp(data: bytes) -> None:
    """A session of SMTP, of a host that may use XCLIENT: it goes on, or is over."""
    _drive(DrivenSession(STRANGER._replace(address="203.0.113.9"), xclients=b"203.0.113.9"), data)


def fuzz_qmtp(data: bytes) -> None:
    """A session of QMTP."""
    _drive(DrivenSession(role=Role.QMTP, recipients=5), data)


def _drive(session: DrivenSession, data: bytes) -> None:
    for piece in pieces(data):
        session.feed(piece)
    assert len(session.lines) <= _EVENTS_MAX + len(data)
    session.lose()
    assert session.session.over


def fuzz_packages(data: bytes) -> None:
    """The reader of queue-intake: it reads the same in pieces."""
    assert _read([data[1:]]) == _read(pieces(data))


def _read(parts: list[bytes]) -> list[object]:
    reader, events, text = PackageReader(), list[object](), b""
    try:
        for part in parts:
            reader.feed(part)
            while (event := reader.next()) is not None or reader.paused:
                if isinstance(event, Data):
                    text += event.data
                elif event is not None:
                    events += [text, event]
                    text = b""
    except FormatError:
        events.append("no package")
    return events


def fuzz_results(data: bytes) -> None:
    """Forged Authentication-Results: what is left is the same in pieces, and nothing more is removed of it."""
    for bare in (False, True):
        left = _remove([data[1:]], bare)
        assert _remove(pieces(data), bare) == left == _remove([left], bare)


def _remove(parts: list[bytes], bare: bool) -> bytes:
    removal = ForgedResults(frozenset((b"mx.example.org",)), bare)
    return b"".join([removal.feed(part) for part in parts] + [removal.end()])


def fuzz_formats(data: bytes) -> None:
    """PROXY headers, and control files: read, or refused with a reason."""
    for unpack in (
        *(unpack_proxy_header, unpack_listeners, unpack_milters, unpack_intake, unpack_smtpd_limits),
        *(unpack_greylist, unpack_dns_lists),
    ):
        try:
            unpack(data)
        except FormatError:
            pass


TARGETS: dict[str, Callable[[bytes], None]] = {
    "smtp": fuzz_smtp,
    "qmtp": fuzz_qmtp,
    "packages": fuzz_packages,
    "results": fuzz_results,
    "formats": fuzz_formats,
}


def main(argv: list[str]) -> None:
    """Fuzz a target until libFuzzer's options, such as -max_total_time=600, say that it is enough."""
    if len(argv) < 2 or argv[1] not in TARGETS:
        sys.exit(f"usage: python -m support.fuzz {'|'.join(TARGETS)} [OPTION OF LIBFUZZER...]")
    atheris = importlib.import_module("atheris")
    atheris.instrument_all()
    atheris.Setup([argv[0], *argv[2:]], TARGETS[argv[1]])
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
