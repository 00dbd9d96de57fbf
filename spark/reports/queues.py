"""The reports that qmailanalog does not have, in their order."""

from spark.reports.report import Report

QUEUES: tuple[Report, ...] = ()
