"""The home and the queues that a command of queuectl is for: those of --home and --queue.

Without --queue a command acts on all queues of a home, one after the other. If there are several, an id that it prints
has the name of its queue before it, `first/457-h5x3k2j1z9`, and so may one that it takes.
"""

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import click

from queue_admin.messages.stored_mail import StoredMail
from queue_admin.messages.survey import look
from queue_base.errors import NOT_FOUND, Failure, NotFound, Temporary, Usage, complain
from queue_base.home import Home, find_home, named_queue
from queue_base.queue.layout import open_layout
from queue_wire.format_error import FormatError
from queue_wire.ids import pack_queue_id, split_queue_id, unpack_long_id


class Choice(NamedTuple):
    """The options of queuectl itself, None for one that is not given."""

    home: str | None
    queue: str | None


def home_of(context: click.Context, directory: str | None = None) -> Home:
    """Return the home of a command, with the queue of --queue; `directory` has precedence over --home.

    Raises Usage, Temporary.
    """
    found: Choice = context.obj
    home = find_home(found.home if directory is None else directory)
    return home if found.queue is None else named_queue(home, found.queue)


def each_queue(
    home: Home, act: Callable[[Home], None], heading: bool = True, both: bool = False, apart: bool = False
) -> None:
    """Call `act` with each queue of a home; with only one that is all. Raises Exit with the code of the command.

    Of several queues, the name of each is printed before what `act` prints if `heading`. A queue whose disk is not
    there is named on stderr, and the others are worked on. The exit code is that of the worst failure; else 1 if an
    `act` has exited with 1, but if `both` is false only if all have: 1 says that nothing was found. With `apart` each
    has a process of its own, because `act` gives up being root for its queue.
    """
    if not home.several:
        act(home)
        return
    missing: list[NotFound] = []
    codes = [(_act_apart if apart else _act_on)(one, act, heading, missing) for one in home.each()]
    failures = [code for code in codes if code > NOT_FOUND]
    quiet = min(codes) if not both else max(codes)
    if quiet == NOT_FOUND and missing:
        complain("queuectl", f"fatal: {missing[0]}")  # None of the queues has it.
    raise click.exceptions.Exit(max(failures) if failures else quiet)


def _act_on(home: Home, act: Callable[[Home], None], heading: bool, missing: list[NotFound]) -> int:
    if heading:
        print(f"queue {home.name}:")
    code = 0
    try:
        act(home)
    except click.exceptions.Exit as ended:
        code = ended.exit_code
    except NotFound as failure:
        code = failure.exit_code
        missing.append(failure)
    except Failure as failure:
        code = failure.exit_code
        sys.stdout.flush()
        complain("queuectl", f"queue {home.name}: {failure}")
    sys.stdout.flush()
    return code


def _act_apart(home: Home, act: Callable[[Home], None], heading: bool, missing: list[NotFound]) -> int:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code = Temporary.exit_code
        try:
            code = _act_on(home, act, heading, missing)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else Temporary.exit_code


def with_queue(home: Home, facts: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object with the name of its queue, if there are several."""
    return {"queue": home.name, **facts} if home.name else facts


def find_queue(home: Home, name: str) -> tuple[Home, str]:
    """Return the queue that has a message, and the id without the name of the queue. Raises Usage, Temporary.

    An id without the name of a queue is looked for in all. If no queue has the message, it is the first queue.
    """
    queue, rest = split_queue_id(name)
    if queue:
        if queue not in home.queues or home.name not in ("", queue):
            raise Usage(f"unable to use {name}: there is no queue {queue} in {', '.join(home.queues)}")
        return home if home.name else home.choose(queue), rest
    homes = home.each()
    if len(homes) == 1:
        return home, name
    having = [one for one in homes if _has(one, name)]
    if len(having) > 1:
        both = " and ".join(pack_queue_id(one.name, name) for one in having)
        raise Usage(f"unable to use {name}: there are {both}; name one of them")
    return (having or homes)[0], name


def _has(home: Home, name: str) -> bool:
    """Return whether a queue has a message. One whose disk is not there has none."""
    try:
        message, birth = unpack_long_id(name)
        found = look(open_layout(home.queue), message)
        if found is not None and birth in (None, found.birth):
            return True
        mail = StoredMail(home)
        return bool(mail.find_number(message) if birth is None else mail.find(name))
    except (Failure, FormatError):
        return False


def share_names(home: Home, names: Iterable[str]) -> dict[str, list[str]]:
    """Return the ids of each queue, without its name, by the names of the queues. Raises Usage, Temporary."""
    shares: dict[str, list[str]] = {}
    for name in names:
        one, rest = find_queue(home, name)
        shares.setdefault(one.name, []).append(rest)
    return shares
