"""A finding as `queuectl check` and `queuectl repair --dry-run` print it: as a line for people, or as an object."""

import json
import os

from queue_admin.checks.findings import Finding
from queue_admin.printable import visible
from queue_base.queue.hold_marks import birth_of
from queue_base.queue.layout import Layout
from queue_wire.ids import pack_long_id, pack_queue_id


def show_finding(layout: Layout, finding: Finding, form: str, queue: str = "") -> str:
    """Return the line for a finding; `queue` is the name of the queue, if there are several."""
    path = visible(os.fsencode(finding.path)) or "queue/"
    what = visible(finding.what.encode("utf-8", "surrogateescape"))
    if form == "text":
        return f"{path} {what}: {finding.means}; repair {finding.repair}"
    message = None
    if finding.message:
        try:
            birth = birth_of(layout, finding.message)
        except OSError:
            birth = None
        message = str(finding.message) if birth is None else pack_long_id(finding.message, birth)
        message = pack_queue_id(queue, message)
    facts = {"finding": finding.code, "path": path, "message": message, "what": what}
    facts = {"queue": queue, **facts} if queue else facts
    return json.dumps(facts | {"means": finding.means, "repair": finding.repair})
