"""The page's sections about mail that came in by SMTP (clients, what they were refused, who guesses passwords), and
about mail that is stored until its domain fetches it."""

from queue_report.page.data import PageData
from queue_report.page.markup import (
    Column,
    log_text,
    name_text,
    nothing,
    queue_text,
    reply_text,
    section,
    table,
    time_text,
)
from queue_report.page.scales import duration, size
from queue_wire.html import Child, Markup


def smtp(data: PageData) -> Markup:
    title, about = "SMTP server", "Sessions of queue-smtpd that have ended, and what it has refused."
    if not data.clients and not data.refusals:
        text = "There is no log of queue-smtpd; queue-report build --smtpd-log names it."
        return section("smtp", title, about, nothing(text))
    return section("smtp", title, about, _refusals(data), _clients(data), _failures(data), _handed_in(data))


def _refusals(data: PageData) -> Markup | None:
    columns = (Column("command", False), Column("refusals"), Column("clients"), Column("addresses"),
               Column("last", False), Column("why", False))  # fmt: skip
    body: list[tuple[Child, ...]] = [
        (name_text(row.verb), row.refusals, row.clients, row.addresses, time_text(row.last), reply_text(row.example))
        for row in data.refusals
    ]
    return table("The most frequent refusals", columns, body, "wide words") if body else None


def _clients(data: PageData) -> Markup | None:
    columns = (Column("client", False), Column("name", False), Column("sessions"), Column("under TLS"),
               Column("messages"), Column("bytes"), Column("refused"), Column("last", False))  # fmt: skip
    body: list[tuple[Child, ...]] = [
        (
            log_text(row.client, 60), log_text(row.name, 60), row.sessions, row.tls, row.messages, size(row.bytes),
            row.refused, time_text(row.last),
        )
        for row in data.clients
    ]  # fmt: skip
    return table("Clients with the most messages", columns, body, "wide") if body else None


def _failures(data: PageData) -> Markup | None:
    columns = (Column("user", False), Column("client", False), Column("failures"),
               Column("successes", meaning="sessions in which this client did authenticate as this user"),
               Column("last", False))  # fmt: skip
    body: list[tuple[Child, ...]] = [
        (log_text(row.auth_user, 60), log_text(row.client, 60), row.failures, row.successes, time_text(row.last))
        for row in data.guesses
    ]
    return table("AUTH failures by user and client", columns, body, "wide") if body else None


def _handed_in(data: PageData) -> Markup | None:
    columns = (Column("host/log", False), Column("messages accepted"),
               Column("not in the log", meaning="messages that the log of no queue of the host has"))  # fmt: skip
    body: list[tuple[Child, ...]] = [
        (queue_text(row.host, row.queue), row.accepted, row.not_in_log) for row in data.handed_in
    ]
    return table("Accepted messages, and the logs of the queues", columns, body, "wide") if body else None


def on_demand(data: PageData) -> Markup:
    title, about = "Mail on demand", "Recipients that are stored until their domain asks for its mail."
    if not data.on_demand:
        return section("ondemand", title, about, nothing("No mail was stored."))
    columns = (Column("domain", False), Column("stored"), Column("delivered"), Column("failed"), Column("expired"),
               Column("waiting"), Column("median wait", meaning="from the storing to the delivery"),
               Column("runs"), Column("last run", False))  # fmt: skip
    body: list[tuple[Child, ...]] = [
        (
            name_text(row.domain), row.stored, row.delivered, row.failed, row.expired, row.waiting,
            None if row.p50 is None else duration(row.p50), row.runs, time_text(row.last_run),
        )
        for row in data.on_demand
    ]  # fmt: skip
    return section("ondemand", title, about, table("Domains with the most stored recipients", columns, body, "wide"))
