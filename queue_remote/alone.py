"""One delivery with qmail-remote's arguments and reports (qmail-remote(8)): the message on fd 0, reports on fd 1.

    r          the server accepted this recipient    h  it failed permanently    s  it failed temporarily
               (LMTP: it took the message for it)
    K  Z  D    then the message: accepted, temporary failure, permanent failure

Each report is a letter, text and a NUL. Recipients are reported in order, as far as the server was asked about them.
Failures of every kind are Z or D reports, not exit codes.
"""

import contextlib
import time
from collections.abc import Callable

from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_remote.delivery import deliver
from queue_remote.message.conversions import Conversions
from queue_remote.message.file import open_input
from queue_remote.report_text import Verdict, no_controls, no_message
from queue_remote.setup import read_setup
from queue_remote.smtp.pool import Pool
from queue_remote.smtp.trace import Trace
from queue_remote.smtp.transaction import Transaction
from queue_remote.tls.mta_sts import StsCache
from queue_wire.pipes.report import PERMANENT, SUCCESS, TEMPORARY

_RECIPIENT_LETTERS = {PERMANENT: b"h", TEMPORARY: b"s"}


async def deliver_alone(
    home: Home,
    nexthop: bytes,
    sender: bytes,
    recipients: list[bytes],
    put: Callable[[bytes], None],
    trace: Trace | None = None,
) -> None:
    """Deliver the message on fd 0; `put` takes the reports before the connection is closed."""
    pool = Pool(1)
    async with contextlib.aclosing(StsCache()) as sts:
        put(await _deliver(home, pool, sts, nexthop, sender, recipients, trace))
        # The caller has the reports before QUIT is answered.
        await pool.drain()


async def _deliver(
    home: Home, pool: Pool, sts: StsCache, nexthop: bytes, sender: bytes, recipients: list[bytes], trace: Trace | None
) -> bytes:
    try:
        setup = read_setup(home, sts, Conversions())
    except Temporary as error:
        return pack_alone([], (TEMPORARY, no_controls(str(error))))
    try:
        message = open_input(0)
    except OSError as error:
        return pack_alone([], (TEMPORARY, no_message(reason(error))))
    try:
        until = time.monotonic() + setup.config.job_seconds
        transaction = Transaction(sender, recipients, message.size, until=until)
        key = setup.options.find(sender, nexthop)
        await deliver(setup, pool, nexthop, key, sender, transaction, message, trace)
    finally:
        message.close()
    return pack_transaction(transaction)


def pack_transaction(transaction: Transaction) -> bytes:
    """Return the reports on a transaction that is done."""
    assert transaction.verdict is not None
    verdicts = transaction.verdicts()
    if any(own is not None and own[0] == SUCCESS for own in transaction.own):
        # The report on the message would count for those that LMTP delivered, too.
        delivered = next(verdict for verdict in verdicts if verdict[0] == SUCCESS)
        return pack_alone([None if verdict[0] == SUCCESS else verdict for verdict in verdicts], delivered)
    return pack_alone(transaction.own[: transaction.reported], transaction.verdict)


def pack_alone(recipients: list[Verdict | None], verdict: Verdict) -> bytes:
    """Return the reports: one for each recipient (None: accepted), one for the message. NULs in texts become `?`."""
    reports = [b"r" if refusal is None else _RECIPIENT_LETTERS[refusal[0]] + refusal[1] for refusal in recipients]
    reports.append(verdict[0] + verdict[1])
    return b"".join([report.replace(b"\0", b"?") + b"\0" for report in reports])
