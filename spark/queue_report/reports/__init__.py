"""The reports by name, in the order in which they are listed."""

from queue_report.reports.on_demand import ON_DEMAND_REPORTS
from queue_report.reports.qmailanalog import QMAILANALOG
from queue_report.reports.queues import QUEUES
from queue_report.reports.report import Report, View
from queue_report.reports.smtp import SMTP
from queue_report.reports.traffic import TRAFFIC

_ALL = (*QMAILANALOG, *TRAFFIC, *QUEUES, *ON_DEMAND_REPORTS, *SMTP)
REPORTS: dict[str, Report] = {report.name: report for report in _ALL}

__all__ = ["REPORTS", "Report", "View"]
