"""queuectl hold, release, requeue, delete, bounce, flush: change messages, whether queue-send runs or not.

All six choose messages in the same way, and send them in batches as one kind of order. On a terminal the messages are
counted first, and a question comes before many are changed; otherwise they are changed as they are found.
"""

import re
import sys
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import click

from queue_admin.home.chosen import each_queue, home_of, share_names
from queue_admin.messages.admin_client import AdminClient, connect_or_lock, runs
from queue_admin.messages.choosing import Chosen, choose, read_names
from queue_admin.messages.named_message import check_long_id
from queue_admin.messages.offline import OfflineQueue
from queue_admin.messages.selector_options import limit_option, make_selectors, selector_options
from queue_admin.messages.selectors import Selectors
from queue_admin.messages.standing_change import add_standing, list_standing, remove_standing
from queue_admin.messages.stored_change import StoredChange, StoredIds, flush_domains
from queue_admin.messages.stored_mail import StoredMail, stored_domains
from queue_admin.printable import visible
from queue_admin.progress import Progress
from queue_admin.question import ASKED_FROM, ask
from queue_admin.system_accounts import be_owner
from queue_base.control import read_value
from queue_base.errors import Temporary, Usage
from queue_base.home import Home
from queue_base.queue.hold_marks import clean_reason
from queue_base.queue.layout import Layout, open_layout
from queue_wire.address import domain_of
from queue_wire.admin.socket import (
    BOUNCE,
    BOUNCE_SOME,
    FLUSH,
    FLUSH_SOME,
    GONE,
    HOLD,
    IDS_MAX,
    NEWS,
    ON_HOLD,
    PROBE,
    TROUBLE,
    Request,
)
from queue_wire.control.registry import VIRTUALDOMAINS
from queue_wire.ids import pack_long_id, pack_queue_id, unpack_long_id

T = TypeVar("T")
# The id that a note begins with, and the new one of a message that was requeued.
_LONG_ID = re.compile(r"(?:^|(?<= is ))[1-9][0-9]*-[0-9a-z]+(?=:| now)")

_HELP = """{first}

IDS are long ids, as `queuectl list` prints them; `-` reads them from standard input, a line or a NUL after each.
Options choose messages that match all of them; with IDS, only among these. Works whether queue-send runs or not.
Repeating a command does no harm; IDS that are gone are named, and are not an error. On a terminal, a question comes
before more than 100 messages are changed; --yes answers it. Exit 1 if no message was found, except with --all.
{stored}

{more}

\b
Examples:
{examples}
"""


_STORED = """What is stored for on-demand domains is changed, too; of these messages only the recipients that match.
--state stored chooses nothing else.
"""


class Verb(NamedTuple):
    """One of the commands. `on_whole`: it acts on whole messages, though --recipient or --domain choose recipients;
    `on_whole_offline`: it does so while queue-send does not run."""

    done: str
    first: str
    more: str
    examples: list[str]
    on_whole: bool = True
    on_whole_offline: bool = True


VERBS = {
    "hold": Verb(
        "held",
        "Freeze messages: no delivery starts until they are released.",
        "Deliveries in flight are finished. A message on hold does not expire. It is held with all its recipients.\n\n"
        "With --standing, also messages that come later and match, until `release --standing` with the same options.",
        [
            "hold --sender news@example.com --reason 'complaints, ask Jo'",
            "hold --uid 1007 --standing --reason 'script sends spam'",
            "hold --standing --list",
        ],
    ),
    "release": Verb(
        "released",
        "Release held messages, and have corrupt ones read again.",
        "They are due at once. With --standing, what matches is not held any more when it comes; messages that are on\n"
        "hold stay so.",
        ["release --all", "release 457-h5x3k2j1z9", "release --uid 1007 --standing"],
    ),
    "requeue": Verb(
        "requeued",
        "Give messages a new birth: they are due at once and have their whole lifetime again.",
        "They get new long ids, which are printed. What is on hold stays so; stored mail on hold stays stored.",
        ["requeue --domain example.net", "requeue 457-h5x3k2j1z9"],
    ),
    "delete": Verb(
        "deleted",
        "Remove messages without a bounce, with all their pending recipients.",
        "Deliveries in flight are finished. The sender is not told; to tell the sender, use bounce.",
        ["delete 457-h5x3k2j1z9", "delete --sender spammer@example.com --dry-run"],
    ),
    "bounce": Verb(
        "bounced",
        "Return messages to their senders now: every pending recipient fails.",
        "With --recipient or --domain only those recipients fail; the others are tried as before, and the sender gets\n"
        "the bounce when none is left. Deliveries in flight are finished.",
        ["bounce --recipient gone@example.net", "bounce --older-than 2d --domain example.net"],
        on_whole=False,
        on_whole_offline=False,
    ),
    "flush": Verb(
        "flushed",
        "Attempt messages now. Their dead destinations are probed.",
        "With --recipient or --domain only those recipients are tried; if they are deferred, they wait for the next\n"
        "attempt of their message again. What is stored for on-demand domains is delivered, too, unless the domain's\n"
        "host has to ask for it with ATRN; a message that is chosen goes to all its recipients at the domain. While\n"
        "queue-send does not run, whole messages are made due. Messages on hold stay on hold.",
        ["flush --domain example.net", "flush 457-h5x3k2j1z9"],
        on_whole=False,
    ),
}


# What is said of messages on hold that a command has left as they are.
_STAY = {
    "hold": "already, with the reason as it was",
    "flush": "and not tried; queuectl release releases them",
    "requeue": "and not requeued; queuectl release releases them",
}


class Gathered(NamedTuple):
    """The messages to change, as numbers, births, and numbers of recipients that were not chosen."""

    keys: "array[int]"
    domains: set[bytes]

    @property
    def messages(self) -> int:
        """How many there are."""
        return len(self.keys) // 3

    @property
    def others(self) -> int:
        """How many recipients were not chosen."""
        return sum(self.keys[2::3])

    def chosen(self) -> Iterator[Chosen]:
        """Yield the messages, without their recipients."""
        for at in range(0, len(self.keys), 3):
            yield Chosen(pack_long_id(self.keys[at], self.keys[at + 1]), set(), self.keys[at + 2])


def _run(context: click.Context, verb: str, ids: tuple[str, ...], options: dict[str, Any]) -> None:
    home = home_of(context)
    prepends = read_value(home, VIRTUALDOMAINS)
    be_owner(home)
    selectors = make_selectors(options, prepends)
    reason = clean_reason((options.get("reason") or "by the administrator").encode("utf-8", "surrogateescape"))
    if options.get("list_standing"):
        if not options["standing"] or ids or selectors.any or options["all_messages"]:
            raise Usage("--list is given with --standing, and nothing else")
        each_queue(
            home, lambda one: _exit_unless(list_standing(one, options["form"])), heading=options["form"] == "text"
        )
        return
    if (bool(ids or selectors.any) + options["all_messages"]) != 1:
        raise Usage("give long ids, or selectors, or --all")
    if options.get("standing"):
        if ids or options["all_messages"] or options["limit"] is not None:
            raise Usage("a standing hold has selectors, and neither ids nor --all nor --limit")
        if verb == "release":
            each_queue(home, lambda one: _exit_unless(remove_standing(one, selectors)))
            return
    if not home.several:
        _run_in(home, verb, ids, options, selectors, reason)
        return
    shares = share_names(home, read_names(tuple(dict.fromkeys(ids)))) if ids else None

    def change(one: Home) -> None:
        """Change the messages of one queue."""
        share = ids if shares is None else tuple(shares.get(one.name, ()))
        if shares is not None and not share:
            raise click.exceptions.Exit(1)
        _run_in(one, verb, share, options, selectors, reason)

    each_queue(home, change, heading=False)


def _run_in(
    home: Home, verb: str, ids: tuple[str, ...], options: dict[str, Any], selectors: Selectors, reason: bytes
) -> None:
    """Change the messages of one queue. Raises Exit if there are none."""
    layout = open_layout(home.queue)
    if options.get("standing"):
        add_standing(home, selectors, reason)
    mail = StoredMail(home)
    for name in ids:
        if name != "-":
            check_long_id(layout, name, mail)  # Before anything is locked.
    names = read_names(tuple(dict.fromkeys(ids))) if ids else None
    now = time.time()
    # Flush of a domain, or of all, reads nothing of what is stored.
    limit = options["limit"]
    picks = bool(ids) or limit is not None or not selectors.of_domain_alone
    has_stored = bool(mail.domains) and (verb != "flush" or picks)
    stored, stored_ids = StoredChange(home, layout, mail, selectors, now), StoredIds(layout, mail)
    if names is not None and has_stored:
        names = stored_ids.pass_on(names)

    def take_stored(count: int) -> None:
        """Choose among what is stored, after so many messages of the queue; ids have been looked for by then."""
        if not has_stored:
            return
        stored.most = None if limit is None else max(0, limit - count)
        wanted = {"release": True, "requeue": False, "flush": False}.get(verb)
        if ids:
            stored.take_named(stored_ids.found, wanted)
        else:
            stored.take_matching(wanted)

    if options["dry_run"]:
        chosen = islice(choose(layout, selectors, names, now, None, False, verb == "release"), limit)
        count, others = _list(home, chosen, options["nul"])
        take_stored(count)
        _list_stored(home, stored, options["nul"])
        hit = others if _is_on_whole(verb, runs(home)) else 0
        print(_account(home, f"would have {VERBS[verb].done}", count, hit, stored), file=sys.stderr)
        mail.check()
        _exit_unless(bool(count or stored.count) or options["all_messages"])
        return
    terminal = sys.stderr.isatty()
    change = _Change(home, layout, verb, selectors, reason, bool(ids))
    if not terminal:
        chosen = islice(choose(layout, selectors, names, now, None, verb == "flush", verb == "release"), limit)
        change.carry_out(chosen, None)
        take_stored(change.asked)
    else:
        gathered = _gather(layout, selectors, names, now, verb, limit)
        take_stored(gathered.messages)
        if not options["yes"]:
            _ask(home, verb, gathered, stored.count, _is_on_whole(verb, runs(home)), "-" in ids)
        if verb == "flush":
            with closing(connect_or_lock(home, layout)) as queue:
                _probe(queue, sorted(gathered.domains))
        with Progress(gathered.messages, "messages", VERBS[verb].done) as progress:
            change.carry_out(gathered.chosen(), progress)
    if verb == "flush":
        found = _flush(home, change, stored, has_stored, options["all_messages"])
    else:
        found = _change_stored(home, verb, change, stored, reason)
    if change.trouble:
        raise Temporary("unable to change some of the messages: see above; try again")
    mail.check()
    # A standing hold is done, whether or not there is a message for it; and all of none are all.
    _exit_unless(found or bool(options.get("standing")) or options["all_messages"])


def _change_stored(home: Home, verb: str, change: "_Change", stored: StoredChange, reason: bytes) -> bool:
    """Change what is stored for on-demand domains, and say what was done to all messages; return whether any was."""
    done, any_stored = True, stored.count + stored.on_hold > 0
    try:
        if not stored.count:
            pass
        elif verb == "hold":
            stored.hold(reason)
        elif verb == "release":
            _print_held(stored.release())
        else:
            done = stored.order(verb.encode())
    except Temporary:
        print(_account(home, VERBS[verb].done, change.touched))
        raise
    for message in stored.requeued:
        new = "in the queue now" if message.new == "-" else f"{message.new} now"
        print(_with_queue_ids(home, f"{message.old}: is {new}, from {message.domain.decode('ascii', 'replace')}"))
    _print_on_hold(_stored_messages, stored.on_hold, verb)
    when = "" if done else " when queue-ondemand comes to it"
    print(f"{_account(home, VERBS[verb].done, change.touched, stored=stored)}{when}")
    return change.found or any_stored


def _account(home: Home, done: str, count: int, others: int = 0, stored: StoredChange | None = None) -> str:
    """Return the line that says what was done to how many messages of the queue, and how many stored ones.

    `others`: recipients that were not chosen.
    """
    what = f"{_messages(count)}{_with_others(others)}"
    if stored is not None and stored.count:
        domains = sorted(stored.messages)
        where = domains[0].decode() if len(domains) == 1 else f"{len(domains)} domains"
        what = f"{what}, and " if count else ""
        what += f"{_stored_messages(stored.count)} of {where}"
    return f"{_in_queue(home)}{done} {what}"


def _list_stored(home: Home, stored: StoredChange, nul: bool) -> None:
    """Print the long ids of what would be changed, as _list does."""
    for names in stored.messages.values():
        for name in names:
            print(pack_queue_id(home.name, name), end="\0" if nul else "\n")
    sys.stdout.flush()


def _flush(home: Home, change: "_Change", stored: StoredChange, by_message: bool, everything: bool) -> bool:
    """Have stored mail delivered, and say what is; return whether anything is.

    Without `by_message` it is all of the domain that was chosen, or `everything`.
    """
    if by_message:
        domains: Mapping[bytes, Collection[str]] = stored.messages
        what = f"{_stored_messages(stored.count)} of"
    else:
        names = stored_domains(home)
        domains = dict.fromkeys([name for name in names if everything or name == change.domain], ())
        what = "what is stored for"
    done = VERBS["flush"].done
    try:
        flushed = flush_domains(home, domains)
    except Temporary:
        print(_account(home, done, change.touched))
        raise
    _print_on_hold(_stored_messages, stored.on_hold, "flush")
    count = flushed.delivered
    if change.touched or not count:
        print(_account(home, done, change.touched))
    if count:
        print(f"{_in_queue(home)}delivering {what} {count} on-demand {'domain' if count == 1 else 'domains'}")
    _print_held(flushed.held)
    if len(flushed.asking) > 1:
        print(f"on-demand domains whose hosts have to ask for what is stored, with ATRN: {len(flushed.asking)}")
    elif flushed.asking:
        print(f"{flushed.asking[0].decode('ascii', 'replace')}: its host has to ask for what is stored, with ATRN")
    for domain in flushed.lineless:
        name = domain.decode("ascii", "replace")
        why = f"{name} has no line in control/ondemand any more, so it is not known how its mail is to be delivered"
        print(f"{why}; queuectl requeue --domain {name} sends it by normal routing", file=sys.stderr)
    return change.found or count + stored.on_hold > 0


def _print_on_hold(counted: Callable[[int], str], count: int, verb: str) -> None:
    """Say of so many messages that they stay on hold as they are."""
    if count:
        print(f"{counted(count)} on hold {_STAY[verb]}", file=sys.stderr)


def _print_held(domains: Iterable[bytes]) -> None:
    """Say of domains that they stay on hold."""
    for domain in domains:
        name = domain.decode("ascii", "replace")
        print(f"{name} is on hold as a whole; queuectl release --domain {name} releases it", file=sys.stderr)


def _exit_unless(found: bool) -> None:
    if not found:
        raise click.exceptions.Exit(1)


def _is_on_whole(verb: str, running: bool) -> bool:
    """Return whether a command acts on whole messages, though options choose recipients."""
    return VERBS[verb].on_whole if running else VERBS[verb].on_whole_offline


def _list(home: Home, chosen: Iterator[Chosen], nul: bool) -> tuple[int, int]:
    """Print the long ids of what would be changed; return how many there are, and recipients that were not chosen."""
    count = others = 0
    for each in chosen:
        print(pack_queue_id(home.name, each.name), end="\0" if nul else "\n")
        count += 1
        others += each.others
    sys.stdout.flush()
    return count, others


def _gather(
    layout: Layout, selectors: Selectors, names: Iterator[str] | None, now: float, verb: str, limit: int | None
) -> Gathered:
    """Return the messages that are chosen, `limit` at most; show on the terminal how many were looked at."""
    keys, domains = array("Q"), set[bytes]()
    with Progress(None, "messages", "looked at") as progress:
        found = choose(layout, selectors, names, now, progress, verb == "flush", verb == "release")
        for each in islice(found, limit):
            keys.extend((*(number or 0 for number in unpack_long_id(each.name)), each.others))
            if verb == "flush":
                domains.update(_domains([each], selectors.domain))
    return Gathered(keys, domains)


def _ask(home: Home, verb: str, gathered: Gathered, stored: int, on_whole: bool, ids_on_stdin: bool) -> None:
    """Ask before very many messages, or recipients that were not chosen, are hit. Raises Permanent if not."""
    hit = gathered.others if on_whole else 0
    if gathered.messages + stored <= ASKED_FROM and not hit:
        return
    more = f" and {_stored_messages(stored)}" if stored else ""
    question = f"{_in_queue(home)}{verb.capitalize()} {_messages(gathered.messages)}{_with_others(hit)}{more}?"
    ask(question, f"nothing is {VERBS[verb].done}", ids_on_stdin)


class _Change:
    """Sends the messages as orders, and prints what came of each. `by_id`: a person has named the messages.

    `asked`: how many were sent; `touched`: how many were changed; `trouble`: some could not be. Each batch has a
    connection, or the lock, of its own: to choose the next one may take longer than queue-send keeps a silent client,
    and it may start meanwhile.
    """

    def __init__(
        self, home: Home, layout: Layout, verb: str, selectors: Selectors, reason: bytes, by_id: bool
    ) -> None:
        self._home = home
        self._layout = layout
        self._verb = verb
        self._by_id = by_id
        self._selectors = selectors
        self._reason = reason
        self._others = 0
        self.touched = self.asked = self._gone = self._held = 0
        self.trouble = False

    @property
    def found(self) -> bool:
        """Whether there was any message."""
        return self.asked > self._gone

    @property
    def domain(self) -> bytes | None:
        """The domain that was chosen, None if it is not only that."""
        return self._selectors.domain if self._selectors.of_domain_alone else None

    def carry_out(self, chosen: Iterator[Chosen], progress: Progress | None) -> None:
        """Change the messages.

        Without `progress`, what `flush` is to probe is taken from the messages.
        """
        verb, running = self._verb, False
        for batch in _batches(chosen):
            self._others += sum(each.others for each in batch)
            whole = [each.name.encode() for each in batch if not each.others]
            in_part = [each.name.encode() for each in batch if each.others]
            with closing(connect_or_lock(self._home, self._layout)) as queue:
                running = isinstance(queue, AdminClient)
                if verb == "flush" and progress is None:
                    _probe(queue, _domains(batch, self._selectors.domain))
                for names, some in (whole, False), (in_part, True):
                    if names:
                        self._send(queue, names, some, progress)
            if progress is not None:
                progress.step(len(batch))
        if progress is not None:
            progress.clear()
        _print_on_hold(_messages, self._held, verb)
        others = self._others if self.touched else 0
        if others and _is_on_whole(verb, running):
            print(f"{_recipients(others)} of these messages that were not named: {VERBS[verb].done}, too",
                  file=sys.stderr)  # fmt: skip

    def _send(
        self, queue: AdminClient | OfflineQueue, names: list[bytes], some: bool, progress: Progress | None
    ) -> None:
        """Send an order; `some`: the messages have recipients that were not chosen."""
        command = self._verb.encode()
        selector = self._selectors.recipients
        if command == BOUNCE and selector.any:
            command = BOUNCE_SOME
        elif command == FLUSH and some:
            command = FLUSH_SOME
        response = queue.ask(Request(command, self._reason if command == HOLD else b"", names, selector))
        self.asked += len(names)
        self.touched += response.touched
        if progress is not None and response.notes:
            progress.clear()
        for note in response.notes:
            if note.letter == GONE:
                self._gone += 1
                if not self._by_id:
                    continue  # It was delivered, or deleted, since it was found.
            if note.letter == ON_HOLD and not self._by_id:
                self._held += 1
                continue
            self.trouble = self.trouble or note.letter == TROUBLE
            text = _with_queue_ids(self._home, visible(note.text))
            print(text, file=sys.stdout if note.letter == NEWS else sys.stderr)


def _probe(queue: AdminClient | OfflineQueue, domains: list[bytes]) -> None:
    for some in _batches(domains):
        queue.ask(Request(PROBE, b"", some))


def _in_queue(home: Home) -> str:
    """Return what a line about one of several queues begins with."""
    return f"queue {home.name}: " if home.name else ""


def _with_queue_ids(home: Home, text: str) -> str:
    """Return a note with the name of the queue before the long ids in it, if there are several queues."""
    return _LONG_ID.sub(rf"{home.name}/\g<0>", text) if home.name else text


def _messages(count: int) -> str:
    return f"{count} message" if count == 1 else f"{count} messages"


def _stored_messages(count: int) -> str:
    return f"{count} stored message" if count == 1 else f"{count} stored messages"


def _recipients(count: int) -> str:
    return f"{count} recipient" if count == 1 else f"{count} recipients"


def _with_others(others: int) -> str:
    return f" with {_recipients(others)} more than were named" if others else ""


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while batch := list(islice(rest, IDS_MAX)):
        yield batch


def _domains(batch: list[Chosen], domain: bytes | None) -> list[bytes]:
    """Return the domains to probe for these messages."""
    if domain is not None:
        return [domain]
    found = {domain_of(address) for each in batch for address in each.recipients}
    return sorted(name for name in found if name and b"\0" not in name)


def _command(verb: str) -> click.Command:
    about = VERBS[verb]

    @click.argument("ids", nargs=-1, metavar="[IDS]...")
    @selector_options(() if verb == "hold" else ("--reason",))
    @click.option("--all", "all_messages", is_flag=True, help="All messages.")
    @limit_option("At most N messages, of each queue.")
    @click.option("--dry-run", is_flag=True, help="Print the long ids of the chosen messages and change nothing.")
    @click.option("-0", "nul", is_flag=True, help="With --dry-run: a NUL after each id, in place of a newline.")
    @click.option("--yes", is_flag=True, help="Ask no question.")
    @click.pass_context
    def command(context: click.Context, /, ids: tuple[str, ...], **options: Any) -> None:
        _run(context, verb, ids, options)

    lines = "\n".join(f"  queuectl {example}" for example in about.examples)
    # Flush says itself what it does with that.
    stored = "" if verb == "flush" else _STORED
    text = _HELP.format(first=about.first, stored=stored, more=about.more, examples=lines)
    wrap: Callable[..., click.Command] = click.command(verb, help=text)
    if verb in ("hold", "release"):
        help_text = "Also messages that come later." if verb == "hold" else "End a standing hold."
        command = click.option("--standing", is_flag=True, help=help_text)(command)
    if verb == "hold":
        forms, text_or_json = click.Choice(["text", "json"]), "With --list; default text."
        command = click.option("--format", "form", type=forms, default="text", help=text_or_json)(command)
        command = click.option("--list", "list_standing", is_flag=True, help="With --standing: list them.")(command)
        command = click.option("--reason", metavar="TEXT", help="The reason, which list and show print.")(command)
    return wrap(command)


commands = [_command(verb) for verb in VERBS]
