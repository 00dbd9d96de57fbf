"""Which way mail goes, as far as smtproutes and the control files by nexthop say it; and jobs of several ways.

Mail that goes the same way can share a connection: all that a smarthost relays does, whatever its domain, unless a
line of tlspolicy, smtpauth, helohost, outgoingip or remoteprogram is for one of the domains.

queue-send groups recipients by smtproutes as it read them at its start or the last HUP, and a job names the first
one's domain only. The others may belong elsewhere: such a job is several, one for each way.
"""

from typing import NamedTuple

from queue_remote.settings import Settings, Source
from queue_wire.address import split_address
from queue_wire.control.hostmap import find_key
from queue_wire.control.smtproutes import find_nexthop
from queue_wire.job import Job
from queue_wire.report import HOST_SCOPE, MESSAGE_SCOPE, Report


class Way(NamedTuple):
    """The relays' name or the domain, and which it is; the keys of lines that are the domain's; what we say and use."""

    name: bytes
    relayed: bool
    tlspolicy: bytes | None
    login: bytes | None
    helohost: bytes
    source: Source
    program: tuple[bytes, ...]


def take_way(settings: Settings, sender: bytes, domain: bytes) -> Way:
    """Return the way that mail from a sender to a domain goes."""
    name, relayed = find_nexthop(settings.routes, domain)
    tlspolicy = login = None
    if relayed:
        # Without a relay these are the same for all that has the same name.
        tlspolicy = find_key(settings.tlspolicy or {}, domain)
        login = settings.logins.key(domain)
    helohost = settings.helohost.choose(sender, domain)
    source = settings.outgoingip.choose(sender, domain)
    return Way(name, relayed, tlspolicy, login, helohost, source, settings.programs.choose(sender, domain))


def split_job(job: Job, settings: Settings) -> list[tuple[Job, list[int]]]:
    """Return the jobs to do in its place, each with the numbers of its recipients in the whole; mostly itself alone."""
    everyone = list(range(len(job.recipients)))
    if len(everyone) > 1:
        domains = [split_address(recipient)[1].lower() for recipient in job.recipients]
        names = set(domains)
        if len(names) > 1:
            ways = {domain: take_way(settings, job.sender, domain) for domain in names}
            if len(set(ways.values())) > 1:
                groups: dict[Way, list[int]] = {}
                for index, domain in enumerate(domains):
                    groups.setdefault(ways[domain], []).append(index)
                return [(_part(job, domains[numbers[0]], numbers), numbers) for numbers in groups.values()]
    return [(job, everyone)]


def join_reports(job: Job, reports: list[tuple[Report, list[int]]]) -> Report:
    """Return the report on a job from those on its parts. It is about the host only where all of them are."""
    verdicts = [(b"", b"")] * len(job.recipients)
    for report, numbers in reports:
        for index, verdict in zip(numbers, report.verdicts, strict=True):
            verdicts[index] = verdict
    only_hosts = all(report.scope == HOST_SCOPE for report, _ in reports)
    return Report(job.number, HOST_SCOPE if only_hosts else MESSAGE_SCOPE, verdicts)


def _part(job: Job, domain: bytes, numbers: list[int]) -> Job:
    return Job(job.number, job.path, job.sender, domain, [job.recipients[index] for index in numbers])
