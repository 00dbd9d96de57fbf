"""What is stored for on-demand domains, and what became of it. What the registry says of these reports."""

from queue_report.reports.report import Report

ON_DEMAND = Report(
    name="ondemand",
    title="Mail on demand by domain",
    about="One row an on-demand domain, the one with the most stored recipients first. A recipient counts as stored by "
    "the time at which it was, as waiting if it still is at the end of the log, and else by its end; a run counts by "
    "its start. Deferrals are those of recipients that have ended in the window, or wait. pN is the smallest time from "
    "the storing to the delivery that N % do not exceed (nearest rank).",
    columns={
        "domain": "on-demand domain",
        "stored": "recipients that were stored",
        "delivered": "recipients that got their mail",
        "failed": "recipients that failed for good when they were tried",
        "expired": "recipients that waited for too long",
        "returned": "recipients that the administrator has returned to their senders",
        "deleted": "recipients that the administrator has deleted",
        "requeued": "recipients that went back into the queue",
        "waiting": "recipients that are still stored",
        "deferrals": "attempts at them that failed for now",
        "p50": "time from storing to delivery: median, seconds",
        "p99": "time from storing to delivery: 99th percentile, seconds",
        "runs": "deliveries of what was stored that were begun",
        "etrn": "of these, because its host asked with ETRN",
        "atrn": "of these, because its host asked with ATRN",
        "flush": "of these, because the administrator did",
        "probe": "of these, because the host was found reachable",
        "last_run": "start of the last one, UTC",
    },
    windowed=False,
)
ON_DEMAND_BALANCE = Report(
    name="conservation-ondemand",
    title="Conservation of mail on demand",
    about="One row a host, queue and on-demand domain: stored = delivered + failed + requeued + waiting. Recipients "
    "count by the time at which they were stored. Counts that were made apart are compared: what the deliveries of the "
    "queue say is stored with what was, and the end of each run with its lines. not_stored, unknown and runs_differ "
    "are 0 where no line is missing and nothing was killed.",
    columns={
        "host": "host",
        "queue": "queue",
        "domain": "on-demand domain",
        "told": "recipients whose delivery says that they are stored",
        "stored": "recipients that were stored",
        "delivered": "of these, recipients that got their mail",
        "failed": "of these, recipients that failed, expired, or were returned or deleted",
        "requeued": "of these, recipients that went back into the queue",
        "waiting": "the others",
        "not_stored": "told - stored; negative where a crash came between, and the recipient was stored twice",
        "unknown": "ends of recipients whose storing the log does not have: it begins later, or they ended twice",
        "runs": "runs that have ended, or were killed",
        "killed": "of these, killed",
        "runs_differ": "runs whose `ended` line has another number of successes or failures than their lines",
    },
    windowed=False,
)

ON_DEMAND_REPORTS: tuple[Report, ...] = (ON_DEMAND, ON_DEMAND_BALANCE)
