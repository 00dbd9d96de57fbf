"""One delivery: a transaction carried over a connection that is open, or to the first host that will have it.

`deliver` never raises. The scope that it returns is `h` (the nexthop) where no host could be reached, opened a
session, or kept it (421) until MAIL was accepted, and `m` (the message and its recipients) after that; it is `m` too
for what is not the nexthop's fault.
"""

import time

from queue_remote.connect import Opener
from queue_remote.connection import Connection
from queue_remote.message.file import Message
from queue_remote.message.form import Forms, Unfit
from queue_remote.message.signing import Unsigned
from queue_remote.pool import Key, Pool
from queue_remote.route.lookup import Unroutable
from queue_remote.route.ourselves import own_names
from queue_remote.setup import Setup
from queue_remote.trace import Trace
from queue_remote.transaction import Transaction
from queue_remote.ways import take_way
from queue_smtp.client import ClientState
from queue_wire.report import MESSAGE_SCOPE


async def deliver(
    setup: Setup,
    pool: Pool,
    sender: bytes,
    nexthop: bytes,
    transaction: Transaction,
    message: Message,
    trace: Trace | None = None,
) -> bytes:
    """Carry the transaction until it is done; return the report's scope. The caller closes the message."""
    if transaction.done:
        return MESSAGE_SCOPE
    forms = Forms(setup, message, sender)
    try:
        await forms.prepare()
        return await _deliver(setup, pool, sender, nexthop, transaction, forms, trace)
    except (Unfit, Unsigned) as error:
        transaction.finish(*error.verdict)
        return MESSAGE_SCOPE
    finally:
        forms.close()


async def _deliver(
    setup: Setup,
    pool: Pool,
    sender: bytes,
    nexthop: bytes,
    transaction: Transaction,
    forms: Forms,
    trace: Trace | None,
) -> bytes:
    """Carry the transaction until it is done; return the report's scope. Raises Unfit, Unsigned."""
    key = Key(take_way(setup.settings, sender, nexthop), setup.settings)
    until = time.monotonic() + setup.settings.connect_timeout + setup.settings.reply_timeout
    # One that has died while it waited did not hear of the message yet: the next one, or a new one, has it.
    while time.monotonic() < until and (connection := pool.take(key)) is not None:
        if await _carry(pool, key, connection, transaction, forms):
            return MESSAGE_SCOPE
    try:
        return await _deliver_afresh(setup, pool, key, nexthop, transaction, forms, trace)
    except Unroutable as error:
        _tell(trace, error.reasons)
        transaction.finish(*error.verdict)
        return error.scope


async def _deliver_afresh(
    setup: Setup, pool: Pool, key: Key, nexthop: bytes, transaction: Transaction, forms: Forms, trace: Trace | None
) -> bytes:
    """Carry the transaction over a new connection; return the report's scope. Raises Unroutable."""
    route = await setup.router.find(nexthop, setup.policies.secure)
    _tell(trace, route.reasons)
    # A person who chose a host by a route or as a literal may well mean this very one.
    chosen = route.relayed or nexthop.startswith(b"[")
    ours = frozenset[bytes]() if chosen else own_names(setup.settings.me, key.way.helohost)
    opener = Opener(key, nexthop, pool, trace, ours)
    for target in route.targets:
        if time.monotonic() > opener.until:
            break
        plan = await setup.policies.plan(nexthop, route, target)
        if plan.refusal is not None:
            opener.pass_over(target, plan)
            continue
        connection = await opener.open(target, plan, setup.credentials(nexthop, route, target))
        if connection is not None:
            if await _carry(pool, key, connection, transaction, forms):
                return MESSAGE_SCOPE
            opener.refused(connection)
    transaction.finish(*opener.failure)
    return opener.scope


async def _carry(pool: Pool, key: Key, connection: Connection, transaction: Transaction, forms: Forms) -> bool:
    """Carry the transaction over a connection; return whether it is done. It is not where MAIL was not accepted.

    Raises Unfit, Unsigned.
    """
    try:
        form = await forms.fit(connection, transaction)
        if connection.client.state is ClientState.READY:
            await connection.transact(transaction, form)
    except (Unfit, Unsigned):
        pool.give(key, connection)
        raise
    except BaseException:
        connection.close()
        raise
    pool.give(key, connection)
    return transaction.done


def _tell(trace: Trace | None, reasons: list[str]) -> None:
    if trace is not None:
        for line in reasons:
            trace.note(line)
