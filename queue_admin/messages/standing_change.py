"""Standing holds: `queuectl hold --standing` and `release --standing` change queue/holds, which queue-todo reads."""

import json

from queue_admin.messages.selectors import Selectors
from queue_admin.printable import visible
from queue_base.errors import Permanent, Temporary, Usage, reason
from queue_base.home import Home
from queue_base.queue.standing_holds import changing_holds, read_holds, write_holds
from queue_wire.files.standing_hold import BYTES_MAX, HOLDS_MAX, StandingHold, describe_hold, pack_holds
from queue_wire.format_error import FormatError


def add_standing(home: Home, selectors: Selectors, why: bytes) -> None:
    """Add a standing hold; one that fits the same has the new reason then. Raises Usage, Temporary, Permanent."""
    hold = _make(selectors, why)
    try:
        with changing_holds(home.queue):
            holds = [each for each in _read(home) if each.key != hold.key]
            if len(holds) >= HOLDS_MAX:
                raise Permanent(f"unable to add a standing hold: there are {len(holds)}, which is the limit")
            if len(pack_holds([*holds, hold])) > BYTES_MAX:
                raise Permanent(f"unable to add a standing hold: all of them may have {BYTES_MAX} bytes together")
            write_holds(home.queue, [*holds, hold])
    except OSError as error:
        raise _unable(home, error) from error
    print(f"standing hold: {_shown(hold)}")


def remove_standing(home: Home, selectors: Selectors) -> bool:
    """Remove the standing hold with these selectors; return whether there was one. Raises Usage, Temporary."""
    key = _make(selectors, b"").key
    try:
        with changing_holds(home.queue):
            holds = _read(home)
            left = [each for each in holds if each.key != key]
            if len(left) == len(holds):
                return False
            write_holds(home.queue, left)
    except OSError as error:
        raise _unable(home, error) from error
    print("standing hold removed")
    return True


def list_standing(home: Home, form: str) -> bool:
    """Print the standing holds, one a line, as text or JSON; return whether there are any. Raises Temporary."""
    holds = _read(home)
    for hold in holds:
        print(json.dumps(_facts(hold)) if form == "json" else _shown(hold))
    return bool(holds)


def _facts(hold: StandingHold) -> dict[str, object]:
    """Return the JSON object of a hold; null for a selector that it does not have."""
    names = ("sender", "sender_domain", "recipient", "domain")
    texts = {name: visible(getattr(hold, name)) or None for name in names}
    return {**texts, "uid": hold.uid, "reason": visible(hold.reason)}


def _read(home: Home) -> list[StandingHold]:
    try:
        return read_holds(home.queue)
    except FormatError as error:
        raise Permanent(f"unable to parse {home.queue}/holds: {error}; mend or remove it") from error
    except OSError as error:
        raise _unable(home, error) from error


def _unable(home: Home, error: OSError) -> Temporary:
    return Temporary(f"unable to use {error.filename or home.queue + '/holds'}: {reason(error)}")


def _make(selectors: Selectors, why: bytes) -> StandingHold:
    others = selectors._replace(sender=None, sender_domain=None, uid=None, recipient=None, domain=None)
    if others.any:
        raise Usage("a standing hold is by --sender, --sender-domain, --uid, --recipient or --domain, and nothing else")
    if selectors.sender == b"":
        raise Usage("a standing hold is not for bounces: their sender is empty")
    chosen = StandingHold(
        selectors.sender or b"", selectors.sender_domain or b"", selectors.uid,
        selectors.recipient or b"", selectors.domain or b"", why,
    )  # fmt: skip
    if any(b"\0" in field for field in (chosen.sender, chosen.sender_domain, chosen.recipient, chosen.domain)):
        raise Usage("an address has no NUL")
    return chosen


def _shown(hold: StandingHold) -> str:
    return f"{visible(describe_hold(hold))} reason: {visible(hold.reason)}"
