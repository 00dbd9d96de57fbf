"""One delivery: a transaction carried to the first host that will talk to us. `deliver` never raises.

The scope that it returns is `h` (the nexthop) as long as no host has greeted us, or where one has only to say at
MAIL that it is not available (421); it is `m` (the message and its recipients) after that, and for what is not the
nexthop's fault.
"""

import errno

from queue_remote.connection import Connection, connect
from queue_remote.lookup import Unroutable
from queue_remote.message import Message
from queue_remote.route import Route, Router
from queue_wire.report import HOST_SCOPE, MESSAGE_SCOPE, TEMPORARY
from queue_wire.smtp_client import Phase, SmtpClient
from queue_wire.smtp_text import NO_RESOURCES, NOT_CONNECTED
from queue_wire.smtp_transaction import Transaction

_OUR_SHORTAGE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}


async def deliver(router: Router, nexthop: bytes, transaction: Transaction, message: Message) -> bytes:
    """Carry the transaction until it is done; return the report's scope. The caller closes the message."""
    if transaction.done:
        return MESSAGE_SCOPE
    try:
        route = await router.find(nexthop)
        connection = await _open(router, route, transaction)
    except Unroutable as error:
        transaction.finish(*error.verdict)
        return error.scope
    if connection is None:
        return HOST_SCOPE
    try:
        await connection.transact(transaction, message)
    finally:
        connection.close()
    return HOST_SCOPE if connection.client.unavailable else MESSAGE_SCOPE


async def _open(router: Router, route: Route, transaction: Transaction) -> Connection | None:
    """Return a connection to the first host that greets us; None, with the transaction done, where none does.

    The last host that answered has the word in the verdict. Raises Unroutable where this machine is short
    of something.
    """
    settings = router.settings
    verdict = (TEMPORARY, NOT_CONNECTED)
    for target in route.targets:
        address = target.address
        client = SmtpClient(address.encode("ascii"), settings.helohost)
        try:
            connection = await connect(address, target.port, client, settings.connect_timeout, settings.reply_timeout)
        except OSError as error:
            if error.errno in _OUR_SHORTAGE:
                raise Unroutable(TEMPORARY, NO_RESOURCES, MESSAGE_SCOPE) from error
            continue
        try:
            await connection.greeted()
        finally:
            if client.phase is not Phase.READY:
                connection.close()
        if client.phase is Phase.READY:
            return connection
        verdict = client.failure or verdict
    transaction.finish(*verdict)
    return None
