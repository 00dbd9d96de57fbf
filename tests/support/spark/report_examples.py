"""What each report prints of a small queue: the examples of docs/reports.md."""

import io
from collections.abc import Iterator
from typing import Any, NamedTuple

from queue_report.commands.forms import print_result
from queue_report.reports import REPORTS
from queue_report.reports.report import View
from queue_smtp.server_replies import BAD_CREDENTIALS, MESSAGE_REFUSED, RELAYING_DENIED, UNKNOWN_RECIPIENT
from queue_smtpd.sessions import session_log as log
from queue_wire import logline
from queue_wire.ids import pack_long_id
from support.spark.lake_rows import LakeRows

# 2026-11-20 09:00:00 UTC.
T = 1_795_165_200


class Said(NamedTuple):
    """A reason, and what the table says of it; {0} is what differs."""

    reason: str
    template: str
    code: str
    kind: str

    def of(self, text: str) -> dict[str, Any]:
        """Return the arguments of LakeRows.delivery."""
        return {**self._asdict(), "reason": self.reason.format(text)}


GREY = Said(
    "192.0.2.25_does_not_like_recipient./Remote_host_said:_450_4.7.1_<{0}>:_Greylisted,_try_again_in_300_seconds/",
    "IP_does_not_like_recipient./Remote_host_said:_450_4.7.1_ADDRESS:_Greylisted,_try_again_in_N_seconds/",
    "4.7.1",
    "rate",
)
UNKNOWN = Said(
    "198.51.100.3_does_not_like_recipient./Remote_host_said:_550_5.1.1_<{0}>:_User_unknown/Giving_up_on_198.51.100.3./",
    "IP_does_not_like_recipient./Remote_host_said:_550_5.1.1_ADDRESS:_User_unknown/Giving_up_on_IP./",
    "5.1.1",
    "mailbox",
)
DEAD = Said(
    "Sorry,_I_wasn't_able_to_establish_an_SMTP_connection._(#4.4.1)/",
    "Sorry,_I_wasn't_able_to_establish_an_SMTP_connection._(#4.4.1)/",
    "4.4.1",
    "network",
)
TAKEN = "192.0.2.25_accepted_message./Remote_host_said:_250_2.0.0_Ok:_queued_as_4Gk2Xn3T4M{0}/"


def example_rows() -> LakeRows:
    """Return half an hour of mx1: eight messages, of which two wait."""
    rows = LakeRows()
    for number in range(4):
        key, start = f"{457 + number}.1", T + 60 * number
        rows.message(key, start, start + 3 + number, sender="ann@here.example", size=2048 + number, counts=(1, 0, 0),
                     recipients=1, host="mx1")  # fmt: skip
        rows.rows["messages"][-1].update(uid=1000, qp=4711 + number)
        rows.delivery(key, f"u{number}@there.example", start + 1, start + 3 + number, reason=TAKEN.format(number),
                      host="mx1")  # fmt: skip
    rows.message("470.1", T + 300, T + 902, sender="bob@here.example", size=10240, counts=(1, 1, 2), recipients=2,
                 outcome="partly", host="mx1")  # fmt: skip
    rows.rows["messages"][-1].update(uid=1001, qp=4720, bounce_qp=4721)
    for start in (301, 600):
        rows.delivery("470.1", "carl@there.example", T + start, T + start + 2, "deferral", host="mx1",
                      **GREY.of("carl@there.example"))  # fmt: skip
    rows.delivery("470.1", "dora@far.example", T + 301, T + 302, "failure", host="mx1",
                  **UNKNOWN.of("dora@far.example"))  # fmt: skip
    rows.delivery("470.1", "carl@there.example", T + 900, T + 902, reason=TAKEN.format("x"), host="mx1")
    rows.message("480.1", T + 903, T + 904, sender="", size=3100, counts=(1, 0, 0), recipients=1, host="mx1")
    rows.rows["messages"][-1].update(uid=1002, qp=4721, bounce_of="470.1")
    rows.delivery("480.1", "bob", T + 903, T + 904, reason="did_1+0+0/", channel="local", host="mx1")
    for number, key in enumerate(("490.1", "491.1")):
        start = T + 1000 + 200 * number
        rows.message(key, start, None, sender="ann@here.example", size=900, counts=(0, 0, 2 - number), recipients=1,
                     host="mx1")  # fmt: skip
        rows.rows["pending"][-1].update(uid=1000, qp=4730 + number)
        for again in range(2 - number):
            begun = start + 400 * again
            rows.delivery(key, "eve@dead.example", begun, begun + 60, "deferral", host="mx1", **DEAD.of(""))
    for number in range(3):
        text = f"unable to open info/8/49{number}00: input/output error; will try again later"
        template = "unable_to_open_info/8/N:_input/output_error;_will_try_again_later"
        rows.alert(T + 900 + 123 * number, "warning", text, template, host="mx1")
    full = "queue-todo: unable to take mail: {} bytes free on /var/queue, control/queueminfree wants {}"
    rows.alert(T + 1500, "alert", full.format(81_920, 1_048_576), full.format("N", "N").replace(" ", "_"), host="mx1")
    rows.server_log(_server_log(), host="mx1")
    rows.queue_log(_on_demand_log(), host="mx2")
    rows.sample(T, T + 300, (0, 10), (1, 20), "mx1")
    rows.sample(T + 300, T + 302, (0, 10), (20, 20), "mx1")
    rows.sample(T + 302, T + 1460, (1, 10), (1, 20), "mx1")
    return rows


def _on_demand_log() -> Iterator[tuple[int, bytes]]:
    """Yield lines of a queue with an on-demand domain: three messages that are stored, of which one stays."""
    domain = b"branch.example"
    for number in range(3):
        at, long_id, recipient = T + 10 * number, f"{510 + number}-tk3x2{number}", b"u%d@%s" % (number, domain)
        yield at, b"new msg %d" % (510 + number)
        yield at, b"info msg %d: bytes 4096 from <ann@here.example> qp %d uid 1000" % (510 + number, 4750 + number)
        yield at, b"starting delivery %d: msg %d to remote %s" % (number, 510 + number, recipient)
        yield at + 1, logline.stored_on_demand(domain, long_id, 4096, b"ann@here.example", recipient)
        yield at + 1, b"delivery %d: success: stored_for_%s/%s" % (number, domain, DEAD.reason.encode())
        yield at + 1, b"end msg %d" % (510 + number)
    yield T + 900, logline.run_started(domain, b"etrn")
    for number, letter in enumerate((b"K", b"K", b"Z")):
        long_id, recipient = f"{510 + number}-tk3x2{number}", b"u%d@%s" % (number, domain)
        yield T + 902 + number, logline.on_demand_result(domain, long_id, letter, recipient, b"192.0.2.80 says so.\n")
    yield T + 905, logline.run_ended(domain, 2, 0, 1)


def _server_log() -> Iterator[tuple[int, bytes]]:
    """Yield lines of queue-smtpd: a message that is in the queue's log, and what is refused."""
    long_id = pack_long_id(470, (T + 300) * 1_000_000 - 5000).encode()
    milter = b"inet:127.0.0.1:11332"
    yield T, log.process_started(1, 1, 811)
    yield T + 298, log.connect(1, "192.0.2.7", 40112, b"desk.here.example", "192.0.2.1", 587)
    yield T + 298, log.tls_started(1, b"TLSv1.3", b"TLS_AES_256_GCM_SHA384")
    yield T + 299, log.authenticated(1, b"bob@here.example", b"SCRAM-SHA-256")
    yield T + 299, log.sender_accepted(1, b"bob@here.example", 10_240)
    yield T + 299, log.recipient_accepted(1, b"carl@there.example")
    yield T + 299, log.recipient_accepted(1, b"dora@far.example")
    yield T + 300, log.filtered(1, milter, b"accepts message")
    yield T + 300, log.queued(1, long_id, 10_087, 2)
    yield T + 300, log.ended(1, "QUIT", 1, 0, 2)
    yield T + 400, log.connect(2, "198.51.100.77", 3120, b"", "192.0.2.1", 25)
    for at, recipient in enumerate((b"info", b"sales", b"x")):
        yield T + 401 + at, log.sender_accepted(2, b"winner@prize.example", 0)
        refusal = UNKNOWN_RECIPIENT if at else RELAYING_DENIED
        yield T + 401 + at, log.refused(2, b"RCPT <%s@here.example>" % recipient, refusal, "192.0.2.1")
        yield T + 401 + at, log.dropped(2)
    yield T + 406, log.ended(2, "connection lost", 0, 3, 6)
    yield T + 500, log.connect(3, "203.0.113.9", 51000, b"dsl-9.isp.example", "192.0.2.1", 587)
    yield T + 501, log.tls_started(3, b"TLSv1.2", b"ECDHE-RSA-AES256-GCM-SHA384")
    for at in (3, 6, 9):
        yield T + 500 + at, log.refused(3, b"AUTH bob@here.example", BAD_CREDENTIALS, "192.0.2.1")
    yield T + 509, log.ended(3, "too many AUTH failures", 0, 3, 9)
    yield T + 550, log.connect(5, "203.0.113.40", 3311, b"mx.far.example", "192.0.2.1", 25)
    for at in (1, 2):
        yield T + 550 + at, log.sender_accepted(5, b"list@far.example", 0)
        yield T + 550 + at, log.recipient_accepted(5, b"ann@here.example")
        yield T + 550 + at, log.filtered(5, b"header", b"copies message: no-date")
        yield T + 550 + at, log.filtered(5, milter, b"discards message")
        yield T + 550 + at, log.discarded(5, 2000, 1)
    yield T + 554, log.sender_accepted(5, b"list@far.example", 0)
    yield T + 554, log.filtered(5, milter, b"refuses message: 554 5.7.1 Spam message rejected")
    yield (
        T + 554,
        log.refused(
            5, b"message", MESSAGE_REFUSED._replace(status=b"5.7.1", text=b"Spam message rejected"), "192.0.2.1"
        ),
    )
    yield T + 555, log.ended(5, "QUIT", 0, 1, 5)
    yield T + 600, log.connect(4, "192.0.2.9", 40200, b"printer.here.example", "192.0.2.1", 25)
    yield T + 600, log.ended(4, "QUIT", 0, 0, 0)


def make_examples() -> dict[str, str]:
    """Return the table of each report, at most five rows."""
    rows = example_rows()
    for row in rows.rows["messages"] + rows.rows["pending"]:
        row["info_ns"] = row.get("birth_ns")
    engine = rows.engine()
    examples = {}
    for name, report in REPORTS.items():
        out = io.StringIO()
        found = engine.report(report, View(limit=5))
        print_result(found, "table", out, single=report.single, spaced=report.spaced)
        examples[name] = out.getvalue()
    return examples
