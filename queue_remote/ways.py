"""A job whose recipients no longer go the same way is several: one for each way. Pure.

queue-send groups recipients by smtproutes as it read them at its start or the last HUP, and a job names the first
one's domain only. Where the file has changed since, the others may belong elsewhere.
"""

from queue_wire.address import split_address
from queue_wire.job import Job
from queue_wire.report import HOST_SCOPE, MESSAGE_SCOPE, Report
from queue_wire.smtproutes import Routes, find_way


def split_job(job: Job, routes: Routes) -> list[tuple[Job, list[int]]]:
    """Return the jobs to do in its place, each with the numbers of its recipients in the whole; mostly itself alone."""
    everyone = list(range(len(job.recipients)))
    if len(everyone) > 1:
        domains = [split_address(recipient)[1].lower() for recipient in job.recipients]
        ways = {domain: find_way(routes, domain) for domain in set(domains)}
        if len(set(ways.values())) > 1:
            groups: dict[tuple[bytes, bool], list[int]] = {}
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
