"""The reports by name, in the order in which they are listed."""

from spark.reports.on_demand import ON_DEMAND_REPORTS
from spark.reports.qmailanalog import QMAILANALOG
from spark.reports.queues import QUEUES
from spark.reports.report import Report, View
from spark.reports.smtp import SMTP
from spark.reports.traffic import TRAFFIC

_ALL = (*QMAILANALOG, *TRAFFIC, *QUEUES, *ON_DEMAND_REPORTS, *SMTP)
REPORTS: dict[str, Report] = {report.name: report for report in _ALL}

__all__ = ["REPORTS", "Report", "View"]
