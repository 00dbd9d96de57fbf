"""The reports by name, in the order in which they are listed."""

from spark.reports.qmailanalog import QMAILANALOG
from spark.reports.queues import QUEUES
from spark.reports.report import Report, View
from spark.reports.smtp import SMTP
from spark.reports.traffic import TRAFFIC

REPORTS: dict[str, Report] = {report.name: report for report in (*QMAILANALOG, *TRAFFIC, *QUEUES, *SMTP)}

__all__ = ["REPORTS", "Report", "View"]
