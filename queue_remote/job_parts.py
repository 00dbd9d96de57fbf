"""Splits a job into parts that are delivered alike, and joins their outcomes into the report. Pure.

queue-send groups recipients by smtproutes, as it read them at its start or at the last HUP, and names the first
recipient's domain in the job. The other recipients may be of other domains. queue-remote reads its control files within
a second after a change, and they have lines by domain that queue-send does not know: tlspolicy, smtpauth, helohost,
outgoingip, remoteprogram. So the recipients of one job may need different relays or options; then each set of options
is one part.

The nexthop of a job for local recipients, whom control/localroutes routes, is an address: that of the first one.

A server may take fewer recipients a message than a part has: one, or five, or those of one domain. Then the others
follow at once, in smaller groups (`SmallerGroups`).
"""

from collections import deque
from typing import NamedTuple

from queue_remote.options import DeliveryOptions
from queue_remote.report_text import Verdict
from queue_remote.setup import Setup
from queue_remote.smtp.transaction import Transaction
from queue_wire.address import domain_of
from queue_wire.pipes.job import Job
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE, SUCCESS, Report

# Groups that may bring the message to nobody. A recipient that the server defers for another reason (a greylist) is in
# one of them, and not tried once more.
IN_VAIN_MAX = 3


class JobPart(NamedTuple):
    """Recipients of a job that are delivered together; `numbers` are their places in the job."""

    nexthop: bytes
    options: DeliveryOptions
    recipients: list[bytes]
    numbers: list[int]


class PartOutcome(NamedTuple):
    """The scope of a report, and the verdict on each recipient in order."""

    scope: bytes
    verdicts: list[Verdict]


def choose_options(setup: Setup, sender: bytes, domain: bytes) -> DeliveryOptions:
    """Return the options for mail from a sender to a domain, or to a local recipient."""
    return setup.options.find(sender, domain).options


def split_job(setup: Setup, job: Job) -> list[JobPart]:
    """Return the parts of a job; almost every job has one."""
    if len(job.recipients) > 1:
        domains = job.recipients if b"@" in job.nexthop else [domain_of(recipient) for recipient in job.recipients]
        names = set(domains)
        if len(names) > 1:
            options = {domain: choose_options(setup, job.sender, domain) for domain in names}
            groups: dict[DeliveryOptions, list[int]] = {}
            for number, domain in enumerate(domains):
                groups.setdefault(options[domain], []).append(number)
            if len(groups) > 1:
                return [
                    JobPart(domains[numbers[0]], shared, [job.recipients[number] for number in numbers], numbers)
                    for shared, numbers in groups.items()
                ]
    everyone = list(range(len(job.recipients)))
    return [JobPart(job.nexthop, choose_options(setup, job.sender, job.nexthop), job.recipients, everyone)]


def join_outcomes(job: Job, outcomes: list[tuple[JobPart, PartOutcome]]) -> Report:
    """Return the report on a job. Its scope is the nexthop's only if that of every part is."""
    verdicts: list[Verdict] = [(b"", b"")] * len(job.recipients)
    for part, outcome in outcomes:
        for number, verdict in zip(part.numbers, outcome.verdicts, strict=True):
            verdicts[number] = verdict
    if any(outcome.scope != HOST_SCOPE for _, outcome in outcomes):
        return Report(job.number, MESSAGE_SCOPE, verdicts)
    routes = dict.fromkeys(part.options.name for part, _ in outcomes)
    return Report(job.number, HOST_SCOPE, verdicts, b" ".join(routes))


class SmallerGroups:
    """What follows a transaction in which a server took the message, but not for all because of their number.

    `verdicts` are those on all recipients so far; the recipients are known by their places among these.
    """

    def __init__(self, transaction: Transaction) -> None:
        self.verdicts = transaction.verdicts()
        self._waiting = deque(transaction.too_many)
        self._most = max(1, _count_taken(self.verdicts))
        self._in_vain = 0

    def next(self) -> list[int]:
        """Return the places of the recipients of the next group, none if there is none."""
        if self._in_vain >= IN_VAIN_MAX:
            return []
        return [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]

    def take(self, group: list[int], transaction: Transaction) -> None:
        """Take the result of a group's transaction."""
        verdicts = transaction.verdicts()
        for place, verdict in zip(group, verdicts, strict=True):
            self.verdicts[place] = verdict
        taken, left = _count_taken(verdicts), transaction.too_many
        self._in_vain += not taken
        if left:
            self._most = taken
            self._waiting.extendleft(group[number] for number in reversed(left))


def _count_taken(verdicts: list[Verdict]) -> int:
    return sum([letter == SUCCESS for letter, _ in verdicts])
