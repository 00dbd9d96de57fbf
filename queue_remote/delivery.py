"""Delivers one message over SMTP: on an idle connection, or on a new one to the first target that accepts it.

`deliver` never raises. The scope that it returns is `h` (the nexthop) if no target could be reached or greeted, or the
last one closed the session (421) before it accepted MAIL. It is `m` (the message and its recipients) otherwise, and for
failures that are not the nexthop's.
"""

import time

from queue_remote.message.file import Message
from queue_remote.message.form import Forms, Unsendable
from queue_remote.message.signing import Unsigned
from queue_remote.options import ConnectionKey
from queue_remote.report_text import Verdict, describe_failure
from queue_remote.route.order import Target
from queue_remote.route.router import Route
from queue_remote.route.this_host import own_names
from queue_remote.route.unroutable import Unroutable
from queue_remote.setup import Setup
from queue_remote.smtp.connect import Opener
from queue_remote.smtp.connection import Connection
from queue_remote.smtp.pool import Pool
from queue_remote.smtp.reversed_hosts import settle
from queue_remote.smtp.trace import Trace
from queue_remote.smtp.transaction import Transaction
from queue_smtp.client import ENDED, ClientState, Problem
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE, SUCCESS


async def deliver(
    setup: Setup,
    pool: Pool,
    nexthop: bytes,
    key: ConnectionKey,
    sender: bytes,
    transaction: Transaction,
    message: Message,
    trace: Trace | None = None,
) -> bytes:
    """Carry out the transaction until it is done; return the report's scope. The caller closes the message."""
    if transaction.done:
        return MESSAGE_SCOPE
    # Local mail is not signed: nexthop is an address.
    forms = Forms(setup, message, sender, signed=b"@" not in nexthop)
    try:
        await forms.prepare()
        # A connection that died while it was idle did not receive the message: the next one, or a new one, sends it.
        while time.monotonic() < transaction.until and (connection := pool.take(key)) is not None:
            if await _transact(pool, key, connection, transaction, forms):
                return MESSAGE_SCOPE
            failure = connection.client.failure
            if failure is not None and failure.problem is Problem.SENDER:
                break  # It may be the number of messages that it refuses, which all the idle ones have carried.
        return await _deliver_anew(setup, pool, key, nexthop, transaction, forms, trace)
    except (Unsendable, Unsigned) as error:
        transaction.finish(*error.verdict)
        return MESSAGE_SCOPE
    except Unroutable as error:
        _note(trace, error.reasons)
        transaction.finish(*error.verdict)
        return error.scope
    finally:
        forms.close()


async def _deliver_anew(
    setup: Setup,
    pool: Pool,
    key: ConnectionKey,
    nexthop: bytes,
    transaction: Transaction,
    forms: Forms,
    trace: Trace | None,
) -> bytes:
    """Carry out the transaction on a new connection; return the report's scope.

    Raises Unroutable, Unsendable, Unsigned.
    """
    begun = time.monotonic()
    route = await setup.router.find(nexthop, setup.tls_planner.secure)
    # Lookups have limits of their own. A server that nobody has tried has not used up the time of the job.
    transaction.until += time.monotonic() - begun
    _note(trace, route.reasons)
    # The administrator, or the sender of an address literal, may have chosen this very host.
    chosen = route.relayed or nexthop.startswith(b"[")
    ours = frozenset[bytes]() if chosen else own_names(setup.config.me, key.options.helohost)
    opener = Opener(key, nexthop, pool, trace, ours, transaction.until)
    for target in route.targets:
        if time.monotonic() > opener.until:
            break
        transaction.expect(target.address.encode("ascii"))
        connection = await _open(setup, opener, nexthop, route, target)
        if connection is not None:
            if await _transact(pool, key, connection, transaction, forms):
                return MESSAGE_SCOPE
            opener.refused(connection)
    transaction.finish(*opener.failure)
    return opener.scope


async def deliver_reversed(
    setup: Setup, connection: Connection, sender: bytes, transaction: Transaction, message: Message
) -> bytes:
    """Carry out the transaction over a connection whose server has asked for mail; return the report's scope.

    It is `h` if the connection can carry nothing more, whatever became of the transaction.
    """
    if transaction.done:
        return MESSAGE_SCOPE
    forms = Forms(setup, message, sender, signed=True)
    client = connection.client
    try:
        await forms.prepare()
        if client.state not in ENDED:
            await _carry(connection, transaction, forms)
    except (Unsendable, Unsigned) as error:
        transaction.finish(*error.verdict)
    finally:
        forms.close()
    if not transaction.done:
        assert client.failure is not None
        transaction.finish(*describe_failure(client, client.failure))
    await settle(connection)
    return HOST_SCOPE if client.state in ENDED else MESSAGE_SCOPE


async def probe(setup: Setup, pool: Pool, nexthop: bytes, key: ConnectionKey) -> tuple[bytes, Verdict]:
    """Connect to a nexthop and greet it, and send nothing; return the report's scope, and the verdict.

    The connection is kept for mail, as after a transaction.
    """
    try:
        connection = pool.take(key)
        if connection is None:
            route = await setup.router.find(nexthop, setup.tls_planner.secure)
            ours = frozenset[bytes]() if route.relayed else own_names(setup.config.me, key.options.helohost)
            opener = Opener(key, nexthop, pool, None, ours, time.monotonic() + setup.config.job_seconds)
            for target in route.targets:
                if connection is None and time.monotonic() <= opener.until:
                    connection = await _open(setup, opener, nexthop, route, target)
            if connection is None:
                return opener.scope, opener.failure
        pool.give(key, connection)
        return MESSAGE_SCOPE, (SUCCESS, b"reachable\n")
    except Unroutable as error:
        return error.scope, error.verdict


async def _open(setup: Setup, opener: Opener, nexthop: bytes, route: Route, target: Target) -> Connection | None:
    """Return a connection to a target, None if it cannot be used. Raises Unroutable."""
    plan = await setup.tls_planner.plan(nexthop, route, target)
    if plan.refusal is not None:
        opener.pass_over(target, plan)
        return None
    return await opener.open(target, plan, setup.logins.find(nexthop, route.relayed, target))


async def _transact(
    pool: Pool, key: ConnectionKey, connection: Connection, transaction: Transaction, forms: Forms
) -> bool:
    """Carry out the transaction on a connection; return whether it is done. It is not if MAIL was not accepted.

    Raises Unsendable, Unsigned.
    """
    try:
        await _carry(connection, transaction, forms)
    except (Unsendable, Unsigned):
        pool.give(key, connection)
        raise
    except BaseException:
        connection.close()
        raise
    pool.give(key, connection)
    return transaction.done


async def _carry(connection: Connection, transaction: Transaction, forms: Forms) -> None:
    """Carry out the transaction on a connection, unless that ends before. Raises Unsendable, Unsigned."""
    # The server may send something, or close the connection, while the form is made.
    connection.park(_ignore)
    transaction.eight_bit = forms.eight_bit
    transaction.header_utf8 = forms.header_utf8
    form, transaction.size = await forms.fit(connection.client)
    if connection.client.state is ClientState.READY:
        await connection.transact(transaction, form)


def _ignore(connection: Connection) -> None:
    """The state of the client tells whether the connection has ended."""


def _note(trace: Trace | None, reasons: list[str]) -> None:
    if trace is not None:
        for line in reasons:
            trace.note(line)
