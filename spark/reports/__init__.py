"""The reports by name, in the order in which they are listed."""

from spark.reports.numbers import NUMBERS
from spark.reports.queues import QUEUES
from spark.reports.report import Report, View, run, select

REPORTS: dict[str, Report] = {report.name: report for report in (*NUMBERS, *QUEUES)}

__all__ = ["REPORTS", "Report", "View", "run", "select"]
