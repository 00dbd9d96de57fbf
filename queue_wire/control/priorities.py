"""`control/priorities` and `control/priorityrules`: the classes of mail, and which mail is of which. Pure.

`priorities` has a class a line, the highest first; without the file there are `normal` and `bulk`. `priorityrules` has
a rule a line, and the first that fits a message gives its class:

    uid:NUMBER:CLASS          mail of this user
    sender:ADDRESS:CLASS      mail of this envelope sender; `@DOMAIN` is every address of a domain, empty is `<>`

Mail that no rule fits is of the first class. An injector may ask for another class: a lower one always, a higher one
only if it may raise.

Not a NamedTuple, because queue-inject, which must start fast, does not import typing.
"""

from queue_wire.address import address_key
from queue_wire.control.hostmap import refuse_impossible
from queue_wire.control.lines import numbered_lines
from queue_wire.files.envelope import CLASS_MAX, is_class_name
from queue_wire.format_error import FormatError, InLine, quoted

DEFAULT_CLASSES = ("normal", "bulk")
CLASSES_MAX = 8
_UID_MAX = (1 << 32) - 2
_VERP = b"-@[]"


def unpack_priorities(data: bytes) -> tuple[str, ...]:
    """Return the names of the classes, the highest first. Raises LineError."""
    found: list[str] = []
    for number, line in numbered_lines(data):
        with InLine(number):
            if not is_class_name(line):
                form = f"a letter and up to {CLASS_MAX - 1} letters, digits and `-`"
                raise FormatError(f"not a class, {form}: {quoted(line)}")
            name = line.decode("ascii")
            if name in found:
                raise FormatError(f"a second class {name}")
            if len(found) == CLASSES_MAX:
                raise FormatError(f"more than {CLASSES_MAX} classes")
            found.append(name)
    return tuple(found) or DEFAULT_CLASSES


class PriorityRule:
    """One rule: the uid, or else the sender in lower case, and the class."""

    __slots__ = ("name", "sender", "uid")

    def __init__(self, uid: int | None, sender: bytes, name: str) -> None:
        self.uid = uid
        self.sender = sender
        self.name = name

    def fits(self, uid: int, sender: bytes, domain: bytes) -> bool:
        """Return whether the rule fits a message; `sender` is in lower case, `domain` is the sender's, with its @."""
        if self.uid is not None:
            return self.uid == uid
        return self.sender == sender or (bool(domain) and self.sender == domain)


def unpack_priority_rules(data: bytes) -> tuple[PriorityRule, ...]:
    """Return the rules in their order. Raises LineError. The classes are looked up by `choose_class`."""
    found = []
    for number, line in numbered_lines(data):
        with InLine(number):
            kind, _, rest = line.partition(b":")
            value, colon, name = rest.rpartition(b":")
            if not colon or kind not in (b"uid", b"sender"):
                raise FormatError(f"not uid:NUMBER:CLASS or sender:ADDRESS:CLASS: {quoted(line)}")
            if not is_class_name(name):
                raise FormatError(f"not the name of a class: {quoted(name)}")
            if kind == b"sender":
                refuse_impossible(value)
                found.append(PriorityRule(None, address_key(value), name.decode("ascii")))
            elif value.isdigit() and len(value) <= 10 and int(value) <= _UID_MAX:
                found.append(PriorityRule(int(value), b"", name.decode("ascii")))
            else:
                raise FormatError(f"not a uid: {quoted(value)}")
    return tuple(found)


def rule_class(rules: tuple[PriorityRule, ...], uid: int, sender: bytes) -> str:
    """Return the class that the first rule that fits a message gives; empty if none fits."""
    if not rules:
        return ""
    # Of a VERP sender, `list-@example.org-@[]`, the address is what counts.
    address = address_key(sender.removesuffix(_VERP))
    at = address.rfind(b"@")
    domain = address[at:] if at >= 0 else b""
    for rule in rules:
        if rule.fits(uid, address, domain):
            return rule.name
    return ""


def choose_class(
    classes: tuple[str, ...], rules: tuple[PriorityRule, ...], uid: int, sender: bytes, asked: str, may_raise: bool
) -> str:
    """Return the class of a message; empty for the first one, whose messages are in todo/.

    `asked` is what the injector asks for, empty for nothing. A class that is not in `classes`, since the file has
    changed meanwhile, counts as not given.
    """
    given = rule_class(rules, uid, sender)
    rank = classes.index(given) if given in classes else 0
    if asked in classes:
        wanted = classes.index(asked)
        rank = wanted if may_raise else max(rank, wanted)
    return classes[rank] if rank else ""
