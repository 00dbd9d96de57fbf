"""What a delivery's reason says: its template, the RFC 3463 code in it, and the class of the trouble.

Only failures and deferrals are described. The time that a text takes is proportional to its length, whatever it holds.

A reason is text as the log has it, `_` standing for a space. A class says whose trouble it is, and so who mends it:

| class | what was refused, or failed |
|---|---|
| mailbox | there is no such recipient, or it takes no mail |
| full | the recipient's mailbox is full |
| size | the message is too large |
| domain | the recipient's domain does not exist, or takes no mail |
| sender | the sender's address |
| rate | too much at a time: greylisting, limits; later it is taken |
| spam | the content, or our address, counts as spam |
| tls | encryption or a certificate |
| policy | any other rule of theirs: relaying, authentication, SPF, DMARC |
| network | no connection to the host, or none that lasted; name service; routing |
| system | the host is out of order: disk, memory, service |
| protocol | a command or address was not understood |
| content | the message's format |
| line_ends | a bare LF or CR in the message or a command |
| local | our own programs |
| other | none of these |
"""

import re
from functools import lru_cache
from typing import NamedTuple

from queue_wire.status_code import find_status

# The three digits of a reply stand at the beginning, after a slash (a line's end) or after `said:`.
_REPLY = r"(?:^|(?<=/)|(?<=said:_)|(?<=said:_\())[245][0-9][0-9](?![A-Za-z0-9.])"
_CODE = r"[245]\.[0-9]{1,3}+\.[0-9]{1,3}+(?!\.?[0-9])"
_HEX = r"[0-9A-Fa-f]{1,4}+"

# An address without <> begins after a `_`, which may be a space. A word without @ is taken too, so that no part of it
# is tried again.
_ADDRESS = re.compile(r"<[^<>@]*+@[^<>]*+>|([^_/<>()\[\]{},;:=\"'@]++)(@[A-Za-z0-9.-]*[A-Za-z0-9])?")
# What is folded after that, and into what, in this order, each in what the ones before left. For speed each pattern
# begins with the character that a match begins with, looks around only then, and tries nothing twice: so ++, and where
# it is for more than a character (?=(…)) and a reference to it. (There ++ is wrong in CPython before 3.11.5.)
_FOLDED = (
    # Version 6 with :: or with all eight groups, so that 12:34:56 is none.
    (
        r"[0-9A-Fa-f](?<![A-Za-z0-9.].)(?:(?<=[0-9])[0-9]{0,2}+(?:\.[0-9]{1,3}+){3}(?!\.?[0-9])"
        rf"|[0-9A-Fa-f]{{0,3}}+:(?:(?=((?:{_HEX}:){{0,6}}))\1:[0-9A-Fa-f:]*+(?:\.[0-9]{{1,3}}+)*|(?:{_HEX}:){{6}}{_HEX}))",
        "IP",
    ),
    (r"[A-Za-z0-9](?<![A-Za-z0-9.-].)[A-Za-z0-9-]*+(?:\.[A-Za-z0-9-]++)*\.[A-Za-z]{2,}+(?![A-Za-z0-9-])", "HOST"),
    # Eight characters or more, with a digit and a letter, but not a reply's code and a word, as in 550-Requested.
    (
        r"[A-Za-z0-9](?<![A-Za-z0-9.-].)(?=[A-Za-z0-9.-]{7})(?:(?<=[0-9])(?=[0-9.-]*+[A-Za-z])"
        r"|(?<=[A-Za-z])(?=[A-Za-z.-]*+[0-9]))(?<!(?=[245][0-9][0-9]-|8BITMIME|SMTPUTF8).)"
        r"[A-Za-z0-9]*+(?:[.-]++[A-Za-z0-9]++)*",
        "ID",
    ),
    (r"queued_as_[A-Za-z0-9]++", "queued_as_ID"),
    (
        # The Z is that of a time in UTC.
        rf"[0-9](?<![A-Za-z0-9.][0-9])(?<!(?={_REPLY}|{_CODE}).)(?=([0-9]*+(?:\.[0-9]++)*"
        r"(?:[kKMG]?B|[smhdkKMGZ]|ms)?))\1(?![A-Za-z0-9])",
        "N",
    ),
)
_FOLDS = tuple((re.compile(pattern, re.DOTALL), name) for pattern, name in _FOLDED)
# An id that stands by itself: the last one, or one that anybody would take for one.
_LONE_ID = re.compile(
    r"_(?:(?<=[_/(:]queued_as_)(?<!queued_as_queued_as_)|(?!8BITMIME|SMTPUTF8)(?=[A-Za-z0-9]{8})(?=[0-9]*+[A-Za-z])"
    r"(?=[A-Za-z]*+[0-9]))[A-Za-z0-9]++(?<!queued(?=_as_))(?=[_/]|\Z)"
)


def template(reason: str) -> str:
    """Return the reason without what differs each time: ADDRESS, IP, HOST, ID and N stand for that."""
    if "@" in reason:
        reason = _ADDRESS.sub(lambda found: found[1] if found[1] and not found[2] else "ADDRESS", reason)
    for pattern, name in _FOLDS:
        reason = pattern.sub(name, reason)
    return reason


def abridge(reason: str) -> str:
    """Return the reason with some of its ids folded, in a tenth of the time that its template takes.

    The template of what is returned is the template of the reason."""
    return _LONE_ID.sub("_ID", reason)


def enhanced_code(reason: str) -> str:
    """Return the RFC 3463 code of the reason, such as 4.4.1; '' for none."""
    text = reason.replace("_", " ").replace("/", "\n")
    return find_status(text.encode(), b"245").decode()


# The last two numbers of a code that is sure of itself; hosts give the others to nearly everything.
_SURE = {
    "mailbox": ("1.1", "1.3", "1.6", "2.1"),
    "full": ("2.2",),
    "size": ("2.3", "3.4"),
    "domain": ("1.2", "1.10", "4.4"),
    "sender": ("1.7", "1.8", "1.9"),
    "network": ("4.0", "4.1", "4.2", "4.3", "4.5", "4.6", "4.7"),
    "content": ("6.0", "6.1", "6.2", "6.3", "6.4", "6.5", "6.6", "6.7"),
    "line_ends": ("6.11",),
    "tls": ("7.10", "7.11"),
}

# Names of lists of addresses that send spam. They are host names, which a template no longer has.
_LISTS = ("spamhaus", "spamcop", "barracudacentral", "sorbs", "uceprotect", "abuseat", "mailspike")

# Words of the template, in lower case, for the codes that are not sure.
_WORDS = {
    "rate": (
        "greylist", "graylist", "grey_list", "gray_list", "grey-list", "rate_limit", "rate-limit", "ratelimit",
        "too_many_", "too_much_mail", "throttl", "exceeded_the_", "slow_down", "unusual_rate",
    ),
    "spam": (
        "_spam", "/spam", "blacklist", "blocklist", "black_list", "block_list", "denylist", "_rbl", "dnsbl",
        "reputation", "bulk_mail", "virus", "unsolicited", "malware", "phish",
    ),
    "tls": ("_tls", "/tls", "starttls", "certificate", "encrypt"),
    "full": ("quota", "mailbox_full", "mailbox_is_full"),
}  # fmt: skip

# What is left of the subjects of RFC 3463, the second number.
_SUBJECTS = {"1": "protocol", "3": "system", "4": "network", "5": "protocol", "7": "policy"}

# More words of the template, for texts without a code, or with one of subject 0 or 2.
_LAST_WORDS = {
    "mailbox": (
        "no_such_user", "no_such_mailbox", "no_such_recipient", "no_such_address", "no_mailbox", "user_unknown",
        "unknown_user", "user_not_found", "unknown_recipient", "unknown_address", "mailbox_unavailable",
        "mailbox_not_found", "not_exist", "invalid_recipient", "invalid_mailbox", "recipient_rejected",
        "address_rejected", "disabled", "inactive", "doesn't_",
    ),
    "size": ("too_large", "too_big", "message_size", "size_limit"),
    "domain": ("domain_not_found", "no_such_domain", "null_mx", "host_not_found"),
    "sender": ("sender_rejected", "sender_address", "sender_denied", "sender_verify", "bad_sender"),
    "policy": (
        "relay", "spf", "dkim", "dmarc", "policy", "denied", "not_allowed", "not_permitted", "not_authori", "refused",
        "blocked", "banned", "authenticat", "prohibited", "forbidden",
    ),
    "network": ("timeout", "timed_out", "connection", "unreachable", "dns", "resolv", "network", "no_route"),
    "system": (
        "local_error", "local_problem", "temporar", "try_later", "try_again", "system", "disk", "overload",
        "unavailable", "not_available", "busy", "service", "internal", "resources", "configuration", "memory", "load",
    ),
    "protocol": ("syntax", "command", "protocol", "unrecogni", "bad_sequence", "not_implemented"),
    "content": ("header", "8bit", "8-bit", "content", "line_too_long", "attachment"),
}  # fmt: skip


_SURE_CLASS = {detail: name for name, details in _SURE.items() for detail in details}


def is_listed(reason: str) -> bool:
    """Return whether a reason names a list of addresses that send spam."""
    reason = reason.lower()
    return any(name in reason for name in _LISTS)


def delivery_class(code: str, folded: str, listed: bool) -> str:
    """Return the class of a failure or deferral with this RFC 3463 code ('' for none) and template; listed: is_listed.

    A code that is sure of itself comes first, then words that name rates, spam, encryption or a quota, then the code's
    subject, then other words. All but the names of spam lists are looked for in the template, where a host that is
    called antispam.example is none.
    """
    _, _, detail = code.partition(".")
    subject = detail.partition(".")[0]
    if detail in _SURE_CLASS:
        return _SURE_CLASS[detail]
    if listed:
        return "spam"
    words = folded.lower()
    for name, texts in _WORDS.items():
        if any(text in words for text in texts):
            return name
    if subject in _SUBJECTS:
        return _SUBJECTS[subject]
    for name, texts in _LAST_WORDS.items():
        if any(text in words for text in texts):
            return name
    # 2.0 and 2.4: something about the mailbox. 0.0 and no code: nothing is known.
    return "mailbox" if subject == "2" else "other"


class Said(NamedTuple):
    """What a reason says."""

    template: str | None
    code: str
    kind: str


# Of a success, and of what was lost: nobody's trouble. Of a mangled report: our own programs', as qmailanalog has it.
NOTHING = Said(None, "", "")
MANGLED = Said("report_mangled", "", "local")


@lru_cache(1 << 15)
def describe(reason: bytes) -> Said:
    """Return what a reason (UTF-8) of a failure or a deferral says."""
    text = reason.decode()
    return _describe(abridge(text), is_listed(text))


@lru_cache(1 << 15)
def _describe(reason: str, listed: bool) -> Said:
    folded, code = template(reason), enhanced_code(reason)
    return Said(folded, code, delivery_class(code, folded, listed))
