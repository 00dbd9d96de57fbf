"""qmailanalog's reports, in its order."""

from spark.reports.report import Report

NUMBERS: tuple[Report, ...] = ()
