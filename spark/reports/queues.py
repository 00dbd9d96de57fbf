"""The reports that qmailanalog does not have, in their order."""

from spark.reports import (
    backlog,
    classify,
    concurrency,
    conservation,
    delays,
    destinations,
    domains,
    qshape,
    volume,
)
from spark.reports.report import Report

QUEUES: tuple[Report, ...] = (
    volume.HOURS,
    volume.DAYS,
    volume.DAYTIME,
    domains.REPORT,
    domains.SENDERS,
    qshape.REPORT,
    qshape.SENDERS,
    backlog.REPORT,
    delays.REPORT,
    delays.DOMAINS,
    delays.HOURS,
    conservation.REPORT,
    conservation.PROBLEMS,
    destinations.REPORT,
    classify.REPORT,
    classify.HOURS,
    concurrency.REPORT,
    concurrency.LEVELS,
    concurrency.HOURS,
)
