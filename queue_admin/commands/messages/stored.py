"""queuectl stored: the mail that is stored for on-demand domains; lists it, deletes it, or returns it."""

import json
import os
import time

import click

from queue_admin.home.chosen import each_queue, find_queue, home_of, with_queue
from queue_admin.messages.admin_client import ask_for_runs
from queue_admin.messages.named_message import no_long_id, read_id
from queue_admin.messages.stored_mail import StoredDomain, StoredMessage, check_read, read_stored, stored_domains
from queue_admin.printable import size_text, span, visible, word
from queue_admin.system_accounts import be_owner
from queue_base.control import read_value
from queue_base.errors import Failure, NotFound, Temporary, Usage, complain
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.admin.ondemand_socket import BOUNCE, DELETE, EMPTY, RUNNING, RunRequest
from queue_wire.control.hostmap import host_key
from queue_wire.control.ondemand import OnDemandLines, is_domain_name
from queue_wire.control.registry import ONDEMAND
from queue_wire.ids import pack_queue_id, split_queue_id, unpack_long_id


@click.command("stored")
@click.argument("domain", required=False)
@click.argument("identity", metavar="[ID]", required=False)
@click.option("--delete", is_flag=True, help="Remove it without a bounce: the message ID, or all of DOMAIN.")
@click.option("--bounce", is_flag=True, help="Return it to its sender: the message ID, or all of DOMAIN.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def command(
    context: click.Context, domain: str | None, identity: str | None, delete: bool, bounce: bool, form: str
) -> None:
    """List the mail that is stored for on-demand domains; delete it, or return it.

    Without DOMAIN, a line for each domain: recipients, messages, bytes, the age of the oldest message. With DOMAIN, a
    line for each recipient, in the order in which they are delivered. `queuectl flush --domain` has it delivered.
    Exit 1 if DOMAIN has nothing stored, or not the message ID.

    \b
    Examples:
      queuectl stored
      queuectl stored customer.example
      queuectl stored customer.example 457-h5x3k2j1z9 --bounce
    """
    home = home_of(context)
    be_owner(home)
    if delete and bounce:
        raise Usage("give --delete or --bounce, not both")
    if domain is None and (delete or bounce):
        raise Usage("--delete and --bounce need a domain")
    name = host_key(os.fsencode(domain or ""))
    if domain is not None and not is_domain_name(name):
        raise Usage(f"not the name of a domain: {domain!a}")
    # What is stored for a domain may be in several queues, a message in one.
    queue, identity = split_queue_id(identity or "")
    long_id = _check_id(home, name, identity) if identity else b""
    if queue:
        home = find_queue(home, f"{queue}/{identity}")[0]
    elif identity and (delete or bounce):
        home = _find_stored(home, name, identity)
    if delete or bounce:
        request = RunRequest(DELETE if delete else BOUNCE, name, long_id)
        each_queue(home, lambda one: _order(one, request), heading=False)
    else:
        each_queue(home, lambda one: _list(one, name, identity, form), heading=form == "text" and not name)


def _list(home: Home, domain: bytes, identity: str | None, form: str) -> None:
    """List what one queue has, of all domains if `domain` is empty. Raises NotFound if it has nothing of a domain."""
    open_layout(home.queue)
    if not domain:
        _list_domains(home, form)
        return
    faults: dict[str, str] = {}
    found = False
    for stored in StoredDomain(home, domain, faults).messages():
        if not identity or stored.long_id == identity:
            found = True
            for recipient in stored.recipients:
                _print_recipient(home, stored, recipient, form)
    check_read(faults)
    if not found:
        raise _not_stored(home, domain, identity or "")


def _list_domains(home: Home, form: str) -> None:
    """Print a line for each domain. Raises Temporary at the end if not all of a domain could be read."""
    lines = _read_lines(home)
    faults: list[Temporary] = []
    for name in stored_domains(home):
        unread: dict[str, str] = {}
        domain = StoredDomain(home, name, unread)
        stored = list(domain.messages())
        try:
            check_read(unread)
        except Temporary as error:
            faults.append(error)
            if not stored:
                continue
        _print_domain(home, domain, stored, form, lines is None or name in lines)
    for fault in faults[:-1]:
        complain("queuectl", f"warning: {fault}")
    if faults:
        raise faults[-1]


def _read_lines(home: Home) -> OnDemandLines | None:
    """Return control/ondemand, None if it cannot be used."""
    try:
        return read_value(home, ONDEMAND)
    except Temporary:
        return None


def _check_id(home: Home, domain: bytes, identity: str) -> bytes:
    """Return a long id, whether its message is stored or not. Raises Usage, NotFound, Temporary."""
    number, birth = read_id(identity)
    if birth is None:
        for one in home.each():
            open_layout(one.queue)
            for each in read_stored(one, domain):
                if unpack_long_id(each.long_id)[0] == number:
                    raise no_long_id(identity, pack_queue_id(one.name, each.long_id))
        raise _not_stored(home, domain, identity)
    return identity.encode()


def _find_stored(home: Home, domain: bytes, identity: str) -> Home:
    """Return the queue in which a message is stored for a domain; the home itself if it has one queue.

    Raises Usage if several have it, NotFound if none has, Temporary if none has, and one cannot be read.
    """
    homes = home.each()
    if len(homes) == 1:
        return home
    having: list[Home] = []
    unread: list[str] = []
    for one in homes:
        try:
            open_layout(one.queue)
            if _is_stored(one, domain, identity):
                having.append(one)
        except Failure as failure:
            unread.append(f"queue {one.name}: {failure}")
    if len(having) > 1:
        both = " and ".join(pack_queue_id(one.name, identity) for one in having)
        raise Usage(f"unable to use {identity}: there are {both}; name one of them")
    if having:
        return having[0]
    if unread:
        raise Temporary(f"unable to find {identity}: {'; '.join(unread)}")
    queues = ", ".join(home.queues)
    raise NotFound(f"unable to find {identity}: it is not stored for {domain.decode()} in any queue ({queues})")


def _not_stored(home: Home, domain: bytes, identity: str = "") -> NotFound:
    if identity:
        return NotFound(f"unable to find {pack_queue_id(home.name, identity)}: it is not stored for {domain.decode()}")
    return NotFound(f"unable to find {domain.decode()}: nothing is stored for it")


def _is_stored(home: Home, domain: bytes, identity: str) -> bool:
    return any(each.long_id == identity for each in read_stored(home, domain))


def _order(home: Home, request: RunRequest) -> None:
    """Have one queue delete or return mail. Raises NotFound if it has none, Temporary."""
    open_layout(home.queue)
    if request.client and not _is_stored(home, request.name, request.client.decode()):
        raise _not_stored(home, request.name, request.client.decode())
    if next(read_stored(home, request.name), None) is None:
        raise _not_stored(home, request.name)
    [answer] = ask_for_runs(home, [request])
    if answer.word == RUNNING:
        raise Temporary(f"unable to change what is stored for {request.name.decode()}: {answer.text.decode()}")
    if answer.word == EMPTY:
        raise _not_stored(home, request.name)
    what = request.client.decode() or request.name.decode()
    where = f"queue {home.name}: " if home.name else ""
    print(f"{where}{'deleting' if request.command == DELETE else 'returning'} {what}")


def _print_domain(home: Home, domain: StoredDomain, stored: list[StoredMessage], form: str, has_line: bool) -> None:
    messages = {each.long_id: each for each in stored}
    recipients = sum(len(each.recipients) for each in stored)
    size = sum(each.first.size for each in messages.values())
    age = time.time() - min((each.first.birth for each in stored), default=time.time_ns() // 1000) / 1e6
    held = sum(each.held is not None for each in messages.values())
    orders = [order.command.decode() for order in domain.orders]
    name = domain.domain.decode()
    if form == "json":
        found = {"domain": name, "recipients": recipients, "messages": len(messages), "bytes": size}
        state = {"held": held, "hold": domain.held, "orders": orders}
        print(json.dumps(with_queue(home, {**found, "oldest": round(age), "line": has_line, **state})))
        return
    counts = f"{_count(recipients, 'recipient')} of {_count(len(messages), 'message')}"
    lacks = "" if has_line else "; no line in control/ondemand"
    hold = f"; on hold: {visible(domain.held.encode())}" if domain.held is not None else ""
    if held and not hold:
        hold = f"; {_count(held, 'message')} on hold"
    ordered = f"; ordered: {', '.join(orders)}" if orders else ""
    print(f"{name}: {counts}, {size_text(size)}, {span(age)} old{lacks}{hold}{ordered}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _print_recipient(home: Home, message: StoredMessage, recipient: bytes, form: str) -> None:
    first = message.first
    age = time.time() - first.birth / 1e6
    long_id = pack_queue_id(home.name, message.long_id)
    if form == "json":
        sender, to = (each.decode("utf-8", "replace") for each in (first.sender, recipient))
        found = {"id": long_id, "sender": sender, "recipient": to, "bytes": first.size}
        state = {"held": message.held, "ordered": message.ordered}
        print(json.dumps(with_queue(home, {**found, "age": round(age), **state})))
        return
    held = "" if message.held is None else f" held: {visible(message.held.encode())}"
    ordered = f" ordered: {message.ordered}" if message.ordered else ""
    addresses = f"{word(first.sender) or '<>'} {word(recipient)}"
    print(f"{long_id} {span(age)} {size_text(first.size)} {addresses}{held}{ordered}")
