"""control/destinationlimits and control/destinationrate: limits for single destinations.

    name [concurrency=5] [initial=1] [recipients=1] [rate=2/5]     destinationlimits; at least one limit, in any order
    name:2/5                                                       destinationrate; the same as `name rate=2/5`

    example.com              a recipient domain; it is a destination of its own even if its mail goes to a relay
    .example.com             all domains below it, each a destination of its own with these limits
    relay.example.net:2525   a relay of smtproutes, for all its mail together; several relays as named there: a,b+c
    relay.example.net        a recipient domain, and the relay at port 25
    lmtp:/run/dovecot/lmtp   servers of smtproutes and localroutes, as named there
    user@example.org         a local recipient

`concurrency` is the most jobs in flight at once, `initial` the most at first, `recipients` the most recipients of a
job, `rate` the number of messages (2) that are started in a number of seconds (5).

For a domain only the most specific line is used, as in hostmap.py. A limit that it does not set is that of all other
destinations. The limits of a relay apply in addition to those of the domains behind it. If both files have the same
name, the line of destinationlimits is used, with the rate of destinationrate if it has none. Of lines in one file with
the same name, the last is used.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from queue_wire.address import address_key
from queue_wire.control.hostmap import find_key, host_key, refuse_impossible
from queue_wire.control.lines import numbered_lines, unpack_ranged
from queue_wire.control.registry import DESTINATIONCONCURRENCY, DESTINATIONINITIAL, DESTINATIONRECIPIENTS
from queue_wire.control.rewrite import LOCAL, REMOTE, Rules, rewrite
from queue_wire.control.smtproutes import Routes, find_nexthop, unpack_relays
from queue_wire.format_error import FormatError, InLine, quoted

LIMITS = "destinationlimits"
RATES = "destinationrate"

Rate = tuple[int, float]  # messages, seconds

# The words of a line, each with the bounds of the control file that sets it for all destinations.
_NUMBERS = {
    b"concurrency": DESTINATIONCONCURRENCY.bounds,
    b"initial": DESTINATIONINITIAL.bounds,
    b"recipients": DESTINATIONRECIPIENTS.bounds,
}


class LimitLine(NamedTuple):
    """The limits that one line sets, or one line of each file; None for a limit that is not set.

    `where` has the (file, line number) of each. The line is for the `domain` (a key of hostmap), the `relay` (the name
    of a route) and the local `recipient` that are not None.
    """

    name: bytes
    where: tuple[tuple[str, int], ...]
    domain: bytes | None = None
    relay: bytes | None = None
    recipient: bytes | None = None
    concurrency: int | None = None
    initial: int | None = None
    recipients: int | None = None
    rate: Rate | None = None

    @property
    def places(self) -> str:
        """The file and line, such as `destinationlimits line 3`."""
        return ", ".join(f"{file} line {number}" for file, number in self.where)

    @property
    def text(self) -> str:
        """The limits, as written in destinationlimits."""
        words = [f"{word.decode()}={value}" for word in _NUMBERS if (value := getattr(self, word.decode())) is not None]
        return " ".join([*words, *([f"rate={self.rate[0]}/{self.rate[1]:.0f}"] if self.rate else [])])


class LimitLines(NamedTuple):
    """The lines by key of domain, by name of route, and by local recipient; `idle` lines are not used."""

    domains: Mapping[bytes, LimitLine]
    relays: Mapping[bytes, LimitLine]
    recipients: Mapping[bytes, LimitLine]
    idle: tuple[LimitLine, ...] = ()


NO_LINES = LimitLines({}, {}, {})


class Nexthop(NamedTuple):
    """Where mail for a domain goes: the name of the destination, and whether it is a route of smtproutes.

    `relay` is the route of a domain that is a destination of its own because it has limits; None if it has no route.
    """

    name: bytes
    relayed: bool
    relay: bytes | None


def unpack_limits(data: bytes) -> list[LimitLine]:
    """Return the lines of destinationlimits. Raises LineError."""
    found = []
    for number, line in numbered_lines(data):
        with InLine(number):
            words = line.split()
            if len(words) < 2:  # None at all if the line is a form feed.
                raise FormatError(f"not name concurrency=, initial=, recipients= or rate=: {quoted(line)}")
            found.append(_unpack_words(_named(words[0], LIMITS, number), words[1:]))
    return found


def unpack_rates(data: bytes) -> list[LimitLine]:
    """Return the lines of destinationrate. The last colon divides, since a name may have a port. Raises LineError."""
    found = []
    for number, line in numbered_lines(data):
        with InLine(number):
            name, _, rate = line.rpartition(b":")
            if not name.strip():
                raise FormatError(f"not nexthop:messages/seconds: {quoted(line)}")
            found.append(_named(name.strip(), RATES, number)._replace(rate=_rate(rate.strip())))
    return found


def _named(name: bytes, file: str, number: int) -> LimitLine:
    where = ((file, number),)
    refuse_impossible(name)
    if b"@" in name:
        return LimitLine(name, where, recipient=address_key(name))
    if not name.strip(b"."):
        raise FormatError(f"not the name of a domain, relay or recipient: {quoted(name)}")
    literal = name.startswith(b"[") and name.endswith(b"]")
    domain = host_key(name) if literal or not any(byte in b":,+" for byte in name) else None
    relay = None
    if not name.startswith(b"."):
        try:
            relays = unpack_relays(name)
            relay = None if relays is None else relays.name
        except FormatError:
            if domain is None:
                raise
    if domain is None and relay is None:
        # For example `example.com:`, written as in destinationrate.
        raise FormatError(f"not the name of a domain, relay or recipient: {quoted(name)}")
    return LimitLine(name, where, domain, relay)


def _unpack_words(line: LimitLine, words: list[bytes]) -> LimitLine:
    for word in words:
        key, _, value = word.partition(b"=")
        field = key.decode("ascii", "replace")
        if key != b"rate" and key not in _NUMBERS:
            raise FormatError(f"not concurrency=, initial=, recipients= or rate=: {quoted(word)}")
        if getattr(line, field) is not None:
            raise FormatError(f"{field}= is there twice")
        if key == b"rate":
            line = line._replace(rate=_rate(value))
        else:
            try:
                line = line._replace(**{field: unpack_ranged(value, _NUMBERS[key])})  # type: ignore[arg-type]
            except FormatError as error:
                raise FormatError(f"{field}= has {error}") from error
    return line


def _rate(text: bytes) -> Rate:
    messages, _, seconds = text.partition(b"/")
    numbers = messages.isdigit() and seconds.isdigit() and len(text) <= 18
    if not (numbers and int(messages) and int(seconds)):
        raise FormatError(f"not a rate, messages/seconds, both from 1: {quoted(text)}")
    return int(messages), float(seconds)


def join_lines(limits: Iterable[LimitLine], rates: Iterable[LimitLine]) -> LimitLines:
    """Return the lines of both files that are used."""
    limits, rates = list(limits), list(rates)
    domains = _join(limits, rates, lambda line: line.domain)
    relays = _join(limits, rates, lambda line: line.relay)
    recipients = _join(limits, rates, lambda line: line.recipient)
    used = {where for found in (domains, relays, recipients) for line in found.values() for where in line.where}
    return LimitLines(domains, relays, recipients, tuple(line for line in limits + rates if line.where[0] not in used))


def _join(
    limits: list[LimitLine], rates: list[LimitLine], key: Callable[[LimitLine], bytes | None]
) -> dict[bytes, LimitLine]:
    found = {name: line for line in limits if (name := key(line)) is not None}
    for name, line in {name: line for line in rates if (name := key(line)) is not None}.items():
        other = found.get(name)
        if other is None:
            found[name] = line
        elif other.rate is None:
            found[name] = other._replace(rate=line.rate, where=other.where + line.where)
    return found


def find_limits(lines: LimitLines, nexthop: Nexthop) -> LimitLine | None:
    """Return the line for a destination of remote mail, or None."""
    if nexthop.relayed:
        return lines.relays.get(nexthop.name)
    key = find_key(lines.domains, nexthop.name) if lines.domains else None
    return None if key is None else lines.domains[key]


def choose_nexthop(routes: Routes, lines: LimitLines, domain: bytes) -> Nexthop:
    """Return where mail for a domain (in lower case) goes. A domain that has a line is a destination of its own."""
    name, relayed = find_nexthop(routes, domain)
    if not relayed or name == domain or not lines.domains or find_key(lines.domains, domain) is None:
        return Nexthop(name, relayed, None)
    return Nexthop(domain, False, name)


def warn_of(
    lines: LimitLines, routes: Routes, rules: Rules, local_routes: Routes | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (file and line, why) for each line that can match nothing with the present control files.

    A domain can match if its mail may be remote.
    """
    for line in lines.idle:
        yield line.places, f"another line sets the same for {_shown(line.name)}, and that one counts"
    names = {relays.name for relays in (*routes.values(), *(local_routes or {}).values()) if relays is not None}
    together = {part: name for name in sorted(names) for part in name.replace(b"+", b",").split(b",")}
    prepends = {prepend.lower() for prepend in rules.virtualdomains.values() if prepend}
    # All suffixes, so that the time is not the number of lines times the number of exceptions.
    exceptions = {
        entry[place:]
        for entry, prepend in rules.virtualdomains.items()
        if not prepend
        for place, byte in enumerate(entry)
        if byte in b"@."
    }
    used = {where: line for found in lines[:3] for line in found.values() for where in line.where}
    for (file, number), line in used.items():
        if line.relay in names:
            continue
        why = None
        if line.recipient is not None:
            if not _may_be_local(line.recipient, rules, prepends):
                why = f"no local recipient can be {_shown(line.name)}, by locals and virtualdomains"
        elif line.domain is None:
            why = f"smtproutes has no route to {_shown(line.name)}"
            if line.relay in together:
                why += f" alone; several relays are named together: {_shown(together[line.relay])}"
        elif not _may_be_remote(line.domain, rules, exceptions):
            why = f"mail for {_shown(line.name)} is local, by locals or virtualdomains"
        if why is not None:
            yield f"{file} line {number}", why


def _may_be_remote(key: bytes, rules: Rules, exceptions: set[bytes]) -> bool:
    """Return whether mail for a domain, or if the key begins with a dot for one below it, may be remote.

    `exceptions` are the suffixes, from an `@` or a dot on, of the entries of virtualdomains that make mail remote.
    """
    # No control file can contain this address.
    channel, _ = rewrite(b"\n@" + (b"\n" if key.startswith(b".") else b"") + key, rules)
    if channel is REMOTE:
        return True
    end = key if key.startswith(b".") else b"@" + key
    return end in exceptions


def _may_be_local(recipient: bytes, rules: Rules, prepends: set[bytes]) -> bool:
    """Return whether a local recipient, as queue-local receives it, can result from any address."""
    if recipient.rpartition(b"@")[2] in rules.locals:
        return True
    # For a virtual domain it is `prepend-user@domain`.
    return any(
        recipient[:dash] in prepends and rewrite(recipient[dash + 1 :], rules)[0] is LOCAL
        for dash, byte in enumerate(recipient)
        if byte == 0x2D
    )


def _shown(name: bytes) -> str:
    return ascii(name[:200])[2:-1]
