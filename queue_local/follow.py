"""Carries out the instructions of one .qmail file (dot-qmail(5), qmail-local(8), qmail-command(8)).

In order, and the first that fails ends the delivery; forwards are only gathered, for one copy when all else
is done, so that an error makes none. A program's exit code 99 ends the file: what was gathered is forwarded.
"""

import os
from typing import NamedTuple

from queue_base.errors import Permanent, Temporary
from queue_local.environment import Lines
from queue_local.maildir import deliver_maildir
from queue_local.mbox import deliver_mbox
from queue_local.program import run_program
from queue_local.result import Forward, Outcome, cut_text
from queue_local.settings import TIMEOUT_MAX
from queue_wire.dotqmail import FORWARD, MAILDIR, MBOX, PROGRAM, Instruction

_STOP = 99
# qmail-command(8): its own code for a hard error, and sysexits(3)'s for what will not get better.
_HARD = frozenset((100, 64, 65, 70, 76, 77, 78, 112))


class Delivery(NamedTuple):
    """What the instructions work on: the message's descriptor, the lines before it, programs' environment.

    `new_sender` and `uid` are for forwards.
    """

    message: int
    lines: Lines
    environment: dict[bytes, bytes]
    new_sender: bytes
    uid: int


class _Progress:
    """What has been done so far: deliveries to files and programs, recipients, and what programs said."""

    __slots__ = ("files", "programs", "recipients", "said")

    def __init__(self) -> None:
        self.files = 0
        self.programs = 0
        self.recipients: list[bytes] = []
        self.said = b""


def follow(instructions: list[Instruction], delivery: Delivery) -> Outcome:
    """Carry out the instructions. Raises Temporary or Permanent, with what programs have said before it."""
    done = _Progress()
    try:
        for instruction in instructions:
            if _carry_out(instruction, delivery, done) == _STOP:
                break
    except (Permanent, Temporary) as error:
        error.args = (_text(done.said) + str(error),)
        raise
    forward = None
    if done.recipients:
        # What the queue cannot take, such as an address that is too long, is the forwarder's to say.
        forward = Forward(delivery.uid, delivery.new_sender, delivery.lines.delivered_to, done.recipients)
    return Outcome(_text(done.said) + count_text(done.files, len(done.recipients), done.programs), forward)


def count_text(files: int, forwards: int, programs: int) -> str:
    """Return the text of a success: how many deliveries of each kind were made (qmail-local(8))."""
    return f"did {files}+{forwards}+{programs}\n"


def _carry_out(instruction: Instruction, delivery: Delivery, done: _Progress) -> int:
    """Do one line, and return its exit code: 0, or _STOP where the lines after it do not count."""
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


def _run(command: bytes, delivery: Delivery, done: _Progress) -> int:
    # The alarm of the delivery ends it before that.
    ran = run_program(command, delivery.environment, delivery.message, TIMEOUT_MAX)
    if ran.output:
        done.said = cut_text(done.said + ran.output)
    if ran.code in (0, _STOP):
        return ran.code
    hard = ran.code in _HARD
    # What it has said is for the sender; one that is silent is named by its code.
    silent = "" if ran.output.strip() else f"Program ended with exit code {ran.code}. (#{5 if hard else 4}.3.0)"
    raise (Permanent if hard else Temporary)(silent)


def _text(said: bytes) -> str:
    return said.decode("utf-8", "surrogateescape")
