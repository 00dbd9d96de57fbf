"""qmailanalog's reports, in its order."""

from spark.reports import ddist, outcomes, overall, recipients, senders, sendmail
from spark.reports.report import Report

NUMBERS: tuple[Report, ...] = (
    overall.REPORT,
    senders.SENDERS,
    senders.SUIDS,
    recipients.RECIPIENTS,
    recipients.RHOSTS,
    ddist.REPORT,
    outcomes.DEFERRALS,
    outcomes.FAILURES,
    outcomes.SUCCESSES,
    recipients.RXDELAY,
    sendmail.REPORT,
)
