"""One delivery: from the recipient's address to its outcome (qmail-local(8), dot-qmail(5), qmail-command(8)).

`deliver` runs in a process of its own, which it changes permanently: user, current directory, umask. It returns the
outcome of a success, and raises Temporary or Permanent with the text for the report.

The instructions of the .qmail file are carried out in order, and the first failure ends the delivery. Forwards are
only collected; one copy goes to all of them when everything else is done, so that a failure forwards nothing. A
program's exit code 99 ends the file: what was collected until then is forwarded.

Nothing is done as root, and the owner of the queue gets no file and no program.
"""

import os
import time
from collections.abc import Mapping
from typing import NamedTuple

from queue_base.accounts import Owner, become, queue_owner
from queue_base.daemon.processes import program_path
from queue_base.errors import Failure, Permanent, Temporary, reason
from queue_base.home import Home
from queue_base.users import UsersTrouble, look_up_mailbox
from queue_local.config import alert, apply_limits
from queue_local.environment import Site, make_environment
from queue_local.headers import HeaderLines, delivered_to, from_line, header_has, return_path
from queue_local.maildir import deliver_maildir
from queue_local.mbox.mbox_delivery import deliver_mbox
from queue_local.qmailfile import enter_home, new_sender, read_instructions
from queue_local.result import Forward, Outcome, cut_text
from queue_local.shell_command import run_program
from queue_local.srs.srs_address import is_ours
from queue_smtp.header_scan import HOPS_MAX, HeaderScan
from queue_wire.address import split_address, verp_sender
from queue_wire.control.locallimits import DEFAULT_LIMITS
from queue_wire.control.registry import LOCALTIMEOUT
from queue_wire.dotqmail import FORWARD, MAILDIR, MBOX, PROGRAM, Instruction
from queue_wire.mailbox import ASSIGNED, Account, Mailbox
from queue_wire.pipes.job import Job

# qmail-lspawn's.
NOT_AS_ROOT = "Not allowed to perform deliveries as root. (#4.7.0)"
LOOPING = "This message is looping: it already has my Delivered-To line. (#5.4.6)"
TOO_MANY_HOPS = f"This message is looping: it has more than {HOPS_MAX} hops. (#5.4.6)"
_STOP = 99
_HEADER_PIECE = 1 << 16
# qmail-command(8): its code for a hard error, and the permanent ones of sysexits(3).
_HARD = frozenset((100, 64, 65, 70, 76, 77, 78, 112))


class Delivery(NamedTuple):
    """What the instructions need: the message's descriptor, the lines before it, the environment of programs.

    `new_sender` and `uid` are for forwards.
    """

    message: int
    lines: HeaderLines
    environment: dict[bytes, bytes]
    new_sender: bytes
    uid: int


class _Tally:
    """What has been done so far: deliveries to files and programs, recipients of forwards, output of programs."""

    __slots__ = ("files", "programs", "recipients", "said")

    def __init__(self) -> None:
        self.files = 0
        self.programs = 0
        self.recipients: list[bytes] = []
        self.said = b""


def deliver(
    home: Home,
    job: Job,
    message: int,
    default: bytes,
    limits: Mapping[str, int | None] = DEFAULT_LIMITS,
    srs: bytes = b"",
) -> Outcome:
    """Deliver the open file `message` to the job's recipient.

    `default` is control/defaultdelivery, `limits` control/locallimits, `srs` control/srs.
    """
    recipient = job.recipients[0]
    local, at, _ = recipient.rpartition(b"@")
    if not at:
        raise Permanent("Sorry, address must include host name. (#5.1.3)")
    if not local:
        # `@host` is discarded: an empty doublebounceto discards double bounces in this way (qmail-lspawn(8)).
        return Outcome(count_text(0, 0, 0))
    owner = queue_owner(home).uid
    if is_ours(srs, recipient):
        # A bounce to a sender that we have rewritten. The forwarder knows the address that it is for.
        line = delivered_to(recipient)
        refuse_loop(message, line)
        return Outcome(count_text(0, 1, 0), Forward(owner, verp_sender(job.sender, recipient), line, [recipient]))
    mailbox = find_recipient(home, local)
    # If the user who started the suite owns the queue, mail is delivered as that user, even as root (the demo).
    everything_is_ours = owner == os.geteuid()
    # A program or a file delivery that runs as the queue's owner could write to the queue.
    forwards_only = mailbox.account.uid == owner and not everything_is_ours
    apply_limits(limits)
    sender = verp_sender(job.sender, recipient)
    return deliver_as(home, mailbox, sender, recipient, message, default, everything_is_ours, forwards_only)


def deliver_as(
    home: Home,
    mailbox: Mailbox,
    sender: bytes,
    recipient: bytes,
    message: int,
    default: bytes,
    everything_is_ours: bool = False,
    forwards_only: bool = False,
) -> Outcome:
    """Change to the mailbox's account and home, and carry out the instructions of its .qmail file."""
    local, host = split_address(recipient)
    # The programs are in the directory of this one, whose path may be relative to the current directory.
    site = Site(home.path, os.path.dirname(program_path("queue-local")))
    take_account(mailbox.account, local, everything_is_ours)
    os.umask(0o077)
    enter_home(mailbox.account.home)
    lines = HeaderLines(from_line(sender, time.time()), return_path(sender), delivered_to(recipient))
    refuse_loop(message, lines.delivered_to)
    found = read_instructions(mailbox, default)
    if forwards_only:
        refuse_all_but_forwards(mailbox.account, found.source, found.instructions)
    owner = new_sender(mailbox, sender, local, host)
    environment = make_environment(site, mailbox, sender, owner, (local, host), found.default, lines)
    delivery = Delivery(message, lines, environment, owner, mailbox.account.uid)
    return follow(found.instructions, delivery)


def refuse_loop(message: int, line: bytes) -> None:
    """Raise Permanent if the message has this Delivered-To line already, or too many hops, also of other hosts.

    Raises Temporary if it cannot be read.
    """
    scan = HeaderScan()
    try:
        with open(message, "rb", closefd=False) as stream:
            looping = header_has(stream, line)
            stream.seek(0)
            while scan.hops <= HOPS_MAX and not scan.over and (data := stream.read(_HEADER_PIECE)):
                scan.feed(data)
    except OSError as error:
        raise Temporary(f"Unable to read message: {reason(error)}. (#4.3.0)") from error
    if looping:
        raise Permanent(LOOPING)
    if scan.hops > HOPS_MAX:
        raise Permanent(TOO_MANY_HOPS)


def take_account(account: Account, local: bytes, everything_is_ours: bool = False) -> None:
    """Change to the account permanently. Raises Temporary if that needs root, or the account is root.

    Root is allowed only if root owns queue/ too: then the administrator has chosen it.
    """
    if not account.uid and everything_is_ours and not os.geteuid():
        return
    if not account.uid:
        raise Temporary(NOT_AS_ROOT)
    if not os.geteuid():
        try:
            become(Owner(account.uid, account.gid))
        except Failure as error:
            raise Temporary(f"{error} (#4.3.0)") from error
    if account.uid != os.geteuid() or account.uid != os.getuid():
        raise Temporary(
            f"Unable to deliver to {os.fsdecode(local)} as user {account.name} (uid {account.uid}): "
            f"queue-local runs as uid {os.geteuid()}; start it as root to deliver to other users. (#4.3.0)"
        )


def find_recipient(home: Home, local: bytes) -> Mailbox:
    """Return the mailbox of a local part. Raises Temporary, with an alert on stderr if users/cdb cannot be used."""
    try:
        mailbox = look_up_mailbox(home, local, os.geteuid())
    except UsersTrouble as error:
        alert(f"{error.what}; local mail is deferred until it is mended, or made by queuectl users build")
        raise
    if mailbox.source == ASSIGNED and not mailbox.account.uid:
        raise Temporary(NOT_AS_ROOT)
    return mailbox


def refuse_all_but_forwards(account: Account, source: str, instructions: list[Instruction]) -> None:
    """Raise Temporary for an instruction that writes a file, or runs a program, as the owner of the queue."""
    for instruction in instructions:
        if instruction.kind != FORWARD:
            raise Temporary(
                f"Not allowed to carry out a {instruction.kind} line of {source} as {account.name} "
                f"(uid {account.uid}), who owns the queue; give {account.home} to another account, "
                "such as queuea. (#4.7.0)"
            )


def follow(instructions: list[Instruction], delivery: Delivery) -> Outcome:
    """Carry out the instructions. Raises Temporary or Permanent, with the output of programs before the text."""
    done = _Tally()
    try:
        for instruction in instructions:
            if _carry_out(instruction, delivery, done) == _STOP:
                break
    except (Permanent, Temporary) as error:
        error.args = (_text(done.said) + str(error),)
        raise
    forward = None
    if done.recipients:
        # The forwarder reports what the queue cannot take, such as an address that is too long.
        forward = Forward(delivery.uid, delivery.new_sender, delivery.lines.delivered_to, done.recipients)
    return Outcome(_text(done.said) + count_text(done.files, len(done.recipients), done.programs), forward)


def count_text(files: int, forwards: int, programs: int) -> str:
    """Return the text of a success: the number of deliveries of each kind (qmail-local(8))."""
    return f"did {files}+{forwards}+{programs}\n"


def _carry_out(instruction: Instruction, delivery: Delivery, done: _Tally) -> int:
    """Carry out one instruction; return its exit code: 0, or _STOP if the following ones are to be ignored."""
    kind, argument, lines = instruction.kind, instruction.argument, delivery.lines
    if kind == FORWARD:
        done.recipients.append(argument)
    elif kind == PROGRAM:
        code = _run(argument, delivery, done)
        done.programs += 1
        return code
    else:
        path, head = os.fsdecode(argument), lines.return_path + lines.delivered_to
        if kind == MAILDIR:
            deliver_maildir(path, head, delivery.message)
        else:
            assert kind == MBOX
            deliver_mbox(path, lines.from_line + head, delivery.message)
        done.files += 1
    return 0


def _run(command: bytes, delivery: Delivery, done: _Tally) -> int:
    # The alarm of the delivery comes first.
    ran = run_program(command, delivery.environment, delivery.message, LOCALTIMEOUT.bounds[2])
    if ran.output:
        done.said = cut_text(done.said + ran.output)
    if ran.code in (0, _STOP):
        return ran.code
    hard = ran.code in _HARD
    # The sender gets its output, or its exit code if it wrote nothing.
    silent = "" if ran.output.strip() else f"Program ended with exit code {ran.code}. (#{5 if hard else 4}.3.0)"
    raise (Permanent if hard else Temporary)(silent)


def _text(said: bytes) -> str:
    return said.decode("utf-8", "surrogateescape")
