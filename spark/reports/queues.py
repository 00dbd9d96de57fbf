"""The reports that qmailanalog does not have, in their order, after those of traffic.py."""

from spark.reports.report import Report

QUEUES: tuple[Report, ...] = ()
