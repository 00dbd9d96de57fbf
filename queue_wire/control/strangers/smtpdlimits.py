"""`control/smtpdlimits`: what a stranger may do, counted for its address and for the network around it. Pure.

    connections 60 240        in a minute: of an address, of its network
    messages 120 480
    recipients 600 2400
    errors 60 240
    concurrency 50 200        connections at once
    reserve 10                percent of concurrencyincoming that are not for strangers
    pause 0                   seconds before the greeting, on listeners of role mx
    exempt 192.0.2.0/24       a network without these limits, pauses and checks; any number of lines

These are the defaults. The number of the network is 4 times the first one if it is left out. 0 is no limit.
"""

from typing import NamedTuple

from queue_wire.control.lines import line_words, numbered_lines, unpack_ranged
from queue_wire.control.networks import Network, unpack_network
from queue_wire.format_error import FormatError, InLine, quoted

NETWORK_SHARE = 4
LIMIT_MAX = 1_000_000
RESERVE_MAX = 90
PAUSE_MAX = 60
_PAIRS = ("connections", "messages", "recipients", "errors", "concurrency")
_SINGLES = {"reserve": RESERVE_MAX, "pause": PAUSE_MAX}
_NAMES = (*_PAIRS, *_SINGLES, "exempt")


class ClientLimit(NamedTuple):
    """The limits of one kind of thing: of an address, and of the network around it. 0: no limit."""

    address: int
    network: int


class SmtpdLimits(NamedTuple):
    """The file. Those in a minute are the first four; `concurrency` counts connections at once."""

    connections: ClientLimit = ClientLimit(60, 60 * NETWORK_SHARE)
    messages: ClientLimit = ClientLimit(120, 120 * NETWORK_SHARE)
    recipients: ClientLimit = ClientLimit(600, 600 * NETWORK_SHARE)
    errors: ClientLimit = ClientLimit(60, 60 * NETWORK_SHARE)
    concurrency: ClientLimit = ClientLimit(50, 50 * NETWORK_SHARE)
    reserve: int = 10
    pause: int = 0
    exempt: tuple[Network, ...] = ()


def unpack_smtpd_limits(data: bytes) -> SmtpdLimits:
    """Return the limits. Raises LineError, also for a name that stands twice."""
    pairs: dict[str, ClientLimit] = {}
    singles: dict[str, int] = {}
    exempt: list[Network] = []
    for number, line in numbered_lines(data):
        with InLine(number):
            name, *words = [word.decode("ascii", "replace") for word in line_words(line)]
            if name not in _NAMES:
                raise FormatError(f"not one of {', '.join(_NAMES)}: {quoted(line)}")
            if name in pairs or name in singles:
                raise FormatError(f"a second line for {name}")
            if name in _PAIRS:
                pairs[name] = _pair(words, line)
            elif len(words) != 1:
                raise FormatError(f"not a name and one value: {quoted(line)}")
            elif name == "exempt":
                exempt.append(unpack_network(words[0].encode()))
            else:
                singles[name] = unpack_ranged(words[0].encode(), (0, 0, _SINGLES[name]))
    usual = SmtpdLimits()
    return SmtpdLimits(
        connections=pairs.get("connections", usual.connections),
        messages=pairs.get("messages", usual.messages),
        recipients=pairs.get("recipients", usual.recipients),
        errors=pairs.get("errors", usual.errors),
        concurrency=pairs.get("concurrency", usual.concurrency),
        reserve=singles.get("reserve", usual.reserve),
        pause=singles.get("pause", usual.pause),
        exempt=tuple(exempt),
    )


def _pair(words: list[str], line: bytes) -> ClientLimit:
    if not 1 <= len(words) <= 2:
        raise FormatError(f"not a name and one or two numbers: {quoted(line)}")
    own, *network = [unpack_ranged(word.encode(), (0, 0, LIMIT_MAX)) for word in words]
    return ClientLimit(own, network[0] if network else own * NETWORK_SHARE)
