"""The options of `queuectl` that choose messages. list and all commands that change messages have the same."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from queue_admin.messages.selectors import STATES, Selectors, unpack_size, unpack_span
from queue_base.click_group import RenamedOption
from queue_base.errors import Usage
from queue_wire.address import address_key

F = TypeVar("F", bound=Callable[..., Any])

UID_MAX = 2**32 - 1

_OPTIONS = (
    click.option("--sender", metavar="ADDRESS", help="Messages from this sender; '' for bounces."),
    click.option("--sender-domain", metavar="DOMAIN", help="Messages from senders in this domain."),
    click.option("--recipient", metavar="ADDRESS", help="Messages with this pending recipient."),
    click.option("--domain", help="Messages with a pending recipient in this domain."),
    click.option("--uid", type=click.IntRange(0, UID_MAX), help="Messages that this user has injected."),
    click.option("--size", metavar="SIZE", help="Messages of at least (+100k) or at most (-1M) this size."),
    click.option("--older-than", metavar="TIME", help="Messages of at least this age, such as 90s, 15m, 12h, 2d, 1w."),
    click.option("--state", type=click.Choice(STATES), help="Messages in this state."),
    click.option("--subject", metavar="TEXT", help="Messages whose subject has this text in it."),
)


def limit_option(text: str) -> Callable[[F], F]:
    """Return a decorator that adds the option for the most messages or lines."""
    return click.option("-n", "--limit", type=click.IntRange(min=0), metavar="N", help=text)


def selector_options(former: Sequence[str] = ("--reason",)) -> Callable[[F], F]:
    """Return a decorator that adds the options; `former` are names that the one for the reason had."""

    def add(command: F) -> F:
        text = "Messages with this text in their reason: of a hold, of being corrupt, or their last results."
        wrap = click.option("--with-reason", cls=RenamedOption, former=former, metavar="TEXT", help=text)
        command = wrap(command)
        for option in reversed(_OPTIONS):
            command = option(command)
        return command

    return add


def make_selectors(options: dict[str, Any], prepends: dict[bytes, bytes]) -> Selectors:
    """Return the selectors that the options give. Raises Usage, also for an empty text, which everything would match.

    In a script it is most likely a variable without a value. Only an empty sender means something: bounces.
    """
    for name in ("recipient", "domain", "sender_domain", "with_reason", "subject"):
        if options[name] is not None and not options[name].strip():
            option = f"--{name.replace('_', '-')}"
            raise Usage(f"unable to choose messages: the text of {option} is empty")
    older, size = options["older_than"], options["size"]
    return Selectors(
        _key(options["sender"]),
        _key(options["recipient"]),
        _key(options["domain"]),
        None if older is None else unpack_span(older),
        prepends,
        _key(options["sender_domain"]),
        options["uid"],
        None if size is None else unpack_size(size),
        options["state"],
        None if options["with_reason"] is None else options["with_reason"].lower(),
        None if options["subject"] is None else options["subject"].lower(),
    )


def _key(option: str | None) -> bytes | None:
    return None if option is None else address_key(option.encode("utf-8", "surrogateescape"))
