"""One delivery with qmail-remote's arguments and reports (qmail-remote(8)): the message on fd 0, reports on fd 1.

    r          the peer took this recipient       h  it refused it for good      s  for now
    K  Z  D    then the message: taken, temporary failure, permanent failure

Each is a letter, text and a NUL. Recipients are reported in order as far as the peer was asked about
them. The exit code says nothing: trouble of every kind is a Z or D report.
"""

from collections.abc import Callable

from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_remote.delivery import deliver
from queue_remote.message.converting import Conversions
from queue_remote.message.file import open_input
from queue_remote.pool import Pool
from queue_remote.report_text import Verdict, no_controls, no_message
from queue_remote.setup import read_setup
from queue_remote.tls.sts import StsCache
from queue_remote.trace import Trace
from queue_remote.transaction import Transaction
from queue_wire.report import PERMANENT, TEMPORARY

_RECIPIENT_LETTERS = {PERMANENT: b"h", TEMPORARY: b"s"}


async def deliver_alone(
    home: Home,
    nexthop: bytes,
    sender: bytes,
    recipients: list[bytes],
    put: Callable[[bytes], None],
    trace: Trace | None = None,
) -> None:
    """Deliver the message on fd 0; `put` gets the reports as soon as they are known."""
    pool = Pool(1)
    put(await _deliver(home, pool, nexthop, sender, recipients, trace))
    # The goodbye, which no report waits for.
    await pool.drain()


async def _deliver(
    home: Home, pool: Pool, nexthop: bytes, sender: bytes, recipients: list[bytes], trace: Trace | None
) -> bytes:
    try:
        setup = read_setup(home, StsCache(), Conversions())
    except Temporary as error:
        return pack_alone([], (TEMPORARY, no_controls(str(error))))
    try:
        message = open_input(0)
    except OSError as error:
        return pack_alone([], (TEMPORARY, no_message(reason(error))))
    try:
        transaction = Transaction(sender, recipients, message.size)
        await deliver(setup, pool, sender, nexthop, transaction, message, trace)
    finally:
        message.close()
    assert transaction.verdict is not None
    return pack_alone(transaction.refused[: transaction.reported], transaction.verdict)


def pack_alone(recipients: list[Verdict | None], verdict: Verdict) -> bytes:
    """Return the reports: one a recipient (None: taken), one for the message. NULs in texts become `?`."""
    reports = [b"r" if refusal is None else _RECIPIENT_LETTERS[refusal[0]] + refusal[1] for refusal in recipients]
    reports.append(verdict[0] + verdict[1])
    return b"".join([report.replace(b"\0", b"?") + b"\0" for report in reports])
