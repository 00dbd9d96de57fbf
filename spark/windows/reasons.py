"""What a delivery's reason says: its template, the RFC 3463 code in it, and the class of the trouble.

All are Spark's own expressions. They cost 30 us of CPU a reason, so `describe`, which stands in the path of every line,
looks at failures and deferrals only; what a success said is nobody's trouble.

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
| local | our own programs |
| other | none of these |
"""

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

# The three digits of a reply stand at the beginning, after a slash (a line's end) or after `said:`.
_REPLY = r"(?<=^|/|said:_|said:_\()[245]\d\d(?![A-Za-z0-9.])"
_CODE = r"[245]\.\d{1,3}+\.\d{1,3}+(?!\.?[0-9])"
_HEX = r"[0-9A-Fa-f]{1,4}+"

# What is folded, and into what, in this order, each in what the ones before left. For speed each pattern begins with
# the character that a match begins with, looks around only then, and tries nothing twice (++).
_FOLDED = (
    # An address without <> begins after a `_`, which may be a space.
    (r"<[^<>@]*+@[^<>]*+>|[^_/<>()\[\]{},;:=\"'@]++@[A-Za-z0-9.-]*[A-Za-z0-9]", "ADDRESS"),
    # Version 6 with :: or with all eight groups, so that 12:34:56 is none.
    (
        r"[0-9A-Fa-f](?<![A-Za-z0-9.].)(?:(?<=\d)\d{0,2}+(?:\.\d{1,3}+){3}(?!\.?[0-9])"
        rf"|[0-9A-Fa-f]{{0,3}}+:(?:(?:{_HEX}:){{0,6}}+:[0-9A-Fa-f:]*+(?:\.\d{{1,3}}+)*+|(?:{_HEX}:){{6}}{_HEX}))",
        "IP",
    ),
    (r"[A-Za-z0-9](?<![A-Za-z0-9.-].)[A-Za-z0-9-]*+(?:\.[A-Za-z0-9-]++)*\.[A-Za-z]{2,}+(?![A-Za-z0-9-])", "HOST"),
    # Eight characters or more, with a digit and a letter, but not a reply's code and a word, as in 550-Requested.
    (
        r"[A-Za-z0-9](?<![A-Za-z0-9.-].)(?=[A-Za-z0-9.-]{7})(?:(?<=\d)(?=[0-9.-]*+[A-Za-z])"
        r"|(?<=[A-Za-z])(?=[A-Za-z.-]*+[0-9]))(?<!(?=[245]\d\d-|8BITMIME|SMTPUTF8).)"
        r"[A-Za-z0-9]*+(?:[.-]++[A-Za-z0-9]++)*+",
        "ID",
    ),
    (r"queued_as_[A-Za-z0-9]++", "queued_as_ID"),
    (
        rf"\d(?<![A-Za-z0-9.]\d)(?<!(?={_REPLY}|{_CODE}).)\d*+(?:\.\d++)*+(?:[kKMG]?B|[smhdkKMG]|ms)?+(?![A-Za-z0-9])",
        "N",
    ),
)


def template(reason: Column) -> Column:
    """Return the reason without what differs each time: ADDRESS, IP, HOST, ID and N stand for that. Null for null."""
    for pattern, name in _FOLDED:
        reason = F.regexp_replace(reason, pattern, name)
    return reason


# What nearly every success differs in, where it stands by itself: the last id, or one that anybody would take for one.
_LONE_ID = (
    r"_(?:(?<=[_/(:]queued_as_)(?<!queued_as_queued_as_)|(?!8BITMIME|SMTPUTF8)(?=[A-Za-z0-9]{8})(?=[0-9]*+[A-Za-z])(?=[A-Za-z]*+[0-9]))[A-Za-z0-9]++"
    r"(?<!queued(?=_as_))(?=[_/]|$)"
)


def abridge(reason: Column) -> Column:
    """Return the reason with some ids folded: less than its template, which is the same of both, for a fifth of the
    price. What is many is grouped by this first."""
    return F.regexp_replace(reason, _LONE_ID, "_ID")


def enhanced_code(reason: Column) -> Column:
    """Return the first RFC 3463 code in the text, such as 4.4.1; '' for none. qmail writes it as (#4.4.1)."""
    return F.regexp_extract(reason, rf"(?:^|[^A-Za-z0-9.])({_CODE})", 1)


# The last two numbers of a code that is sure of itself; hosts give the others to nearly everything.
_SURE = {
    "mailbox": ("1.1", "1.3", "1.6", "2.1"),
    "full": ("2.2",),
    "size": ("2.3", "3.4"),
    "domain": ("1.2", "1.10", "4.4"),
    "sender": ("1.7", "1.8", "1.9"),
    "network": ("4.0", "4.1", "4.2", "4.3", "4.5", "4.6", "4.7"),
    "content": ("6.0", "6.1", "6.2", "6.3", "6.4", "6.5", "6.6", "6.7"),
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


def delivery_class(code: Column, folded: Column, reason: Column) -> Column:
    """Return the class of a failure or deferral with this RFC 3463 code ('' for none), template and reason.

    A code that is sure of itself comes first, then words that name rates, spam, encryption or a quota, then the code's
    subject, then other words. All but the names of spam lists are looked for in the template, where a host that is
    called antispam.example is none. Null for null.
    """
    words = F.lower(folded)
    detail, subject = F.substring_index(code, ".", -2), F.substring_index(F.substring_index(code, ".", 2), ".", -1)
    found = F.when(folded.isNull(), F.lit(None).cast("string"))
    for name, details in _SURE.items():
        found = found.when(detail.isin(*details), name)
    found = found.when(_any(F.lower(reason), _LISTS), "spam")
    for name, texts in _WORDS.items():
        found = found.when(_any(words, texts), name)
    for number, name in _SUBJECTS.items():
        found = found.when(subject == number, name)
    for name, texts in _LAST_WORDS.items():
        found = found.when(_any(words, texts), name)
    # 2.0 and 2.4: something about the mailbox. 0.0 and no code: nothing is known.
    return found.when(subject == "2", "mailbox").otherwise("other")


def _any(text: Column, words: tuple[str, ...]) -> Column:
    return reduce(or_, (text.contains(word) for word in words))


def describe(deliveries: DataFrame) -> DataFrame:
    """Add template, code and class (strings) to deliveries with result and reason.

    A success has the template null, the code '' and the class ''; so has a lost delivery. A mangled report has the
    template that qmailanalog gives it, and is our own programs' trouble.
    """
    result, reason = F.col("result"), F.col("reason")
    trouble = result.isin("failure", "deferral")
    mangled = result == "mangled"
    return deliveries.withColumns(
        {
            "template": F.when(trouble, template(reason)).when(mangled, "report_mangled"),
            "code": F.when(trouble, F.coalesce(enhanced_code(reason), F.lit(""))).otherwise(""),
        }
    ).withColumn(
        "class",
        F.when(trouble, F.coalesce(delivery_class(F.col("code"), F.col("template"), reason), F.lit("other")))
        .when(mangled, "local")
        .otherwise(""),
    )
