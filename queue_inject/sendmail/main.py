"""sendmail: the interface that every Unix program calls to send mail (Sendmail, Postfix's and qmail's sendmail(1)).

A message is completed as queue-inject does it and put in the queue; who may not write there leaves it in maildrop/.
Exit code 0 says that it would survive a power cut; others are those of sysexits.h, with one line on stderr.
"""

import os

from queue_base.errors import Permanent, Usage
from queue_base.home import Home, take_help, take_home
from queue_inject.header.addresses import rewrite_list
from queue_inject.header.complete import ControlNames
from queue_inject.main import inject
from queue_inject.sendmail.author import set_author
from queue_inject.sendmail.exit_codes import explain_exit
from queue_inject.sendmail.input import take_message
from queue_inject.sendmail.options import FLUSH, LIST, NOTHING, SMTP, USAGE, SendmailOptions
from queue_inject.source import Deadline, Source
from queue_wire.format_error import FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

HELP = f"""{USAGE} <message
Puts a message with a header in the queue; the options are those of other sendmails.
  -t             recipients of To, Cc and Bcc too
  -i, -oi        a line with a lone dot does not end the message
  -f, -r SENDER  envelope sender; '' or '<>' is the empty one
  -F NAME        full name, for a From field that is missing
  -B, -N, -R, -V body type and DSN wishes: checked, and not carried
  -bp, mailq     list the queue (queuectl list)
  -q             try all mail now; -qR DOMAIN, -qR RECIPIENT, -qS SENDER, -qI ID some of it (queuectl flush)
  -bi, newaliases, -v, -o..., -O..., -A, -C, -D, -d, -e, -h, -L, -m, -n, -p, -U, -G, -X, -x: taken, without effect
Exit code 0 queued, 64 wrong usage, 65 wrong message or address, 75 trouble that may pass, and others of sysexits.h.
"""
# An argument with one of these is a list in the syntax of a header field: cron has MAILTO=ann,bob, others <ann@host>.
_LIST_SIGNS = b' \t\r\n,;:<>()"\\'


def take_addresses(what: str, text: bytes, home: Home, sender: bool = False) -> list[bytes]:
    """Return the addresses in an argument; one without signs of a list is left as it is. Raises Permanent."""
    if len(text.translate(None, _LIST_SIGNS)) == len(text):
        return [text]
    try:
        return rewrite_list(text, ControlNames(home), sender=sender)[1]
    except FormatError as error:
        shown = text[:80].decode("ascii", "backslashreplace")
        raise Permanent(f"unable to use {what} {shown!r}: {error}; nothing was queued") from error


def send(home: Home, options: SendmailOptions) -> None:
    """Send the message on standard input. Raises a Failure or FormatError."""
    if options.sender is not None:
        senders = take_addresses("sender", options.sender, home, sender=True)
        if len(senders) > 1:
            raise Usage(f"-f takes one address, and {options.sender[:120]!a} has {len(senders)}")
        options.sender = senders[0] if senders else b""
    options.recipients = [each for text in options.recipients for each in take_addresses("recipient", text, home)]
    set_author(options, os.environb)
    inject(home, options, read_message(options.dot_ends))


def read_message(dot_ends: bool) -> "Iterator[bytes]":
    """Yield the message on standard input, which nobody looks at before the first piece is asked for."""
    yield from take_message(Source(0, "the message on standard input", Deadline()), dot_ends)


def run(home: Home, options: SendmailOptions) -> int:
    """Do what the options say; return the exit code. Raises a Failure or FormatError."""
    # What most callers do not need is imported where it is needed.
    if options.work == LIST:
        from queue_inject.sendmail.queue import list_queue

        return list_queue(home)
    if options.work == FLUSH:
        from queue_inject.sendmail.queue import flush_queue

        return flush_queue(home, options.flush)
    if options.work == SMTP:
        from queue_inject.sendmail.smtp import refuse_smtp

        return refuse_smtp(home)
    # There is no alias database to be made: alias/ is read at each delivery.
    if options.work != NOTHING:
        send(home, options)
    return 0


def main(argv: list[str]) -> int:
    """Return an exit code of sysexits.h."""
    os.umask(0o027)
    try:
        home, rest = take_home(argv[1:])
        if take_help(rest, HELP, short=False):
            return 0
        return run(home, SendmailOptions(os.path.basename(argv[0]), rest))
    except BaseException as error:
        return explain_exit(error)
