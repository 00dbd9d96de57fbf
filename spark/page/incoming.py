"""The page's section about mail that came in by SMTP: clients, what they were refused, who guesses passwords."""

from queue_wire.html import Child, Markup
from spark.page.data import PageData
from spark.page.markup import Column, log_text, name_text, nothing, reply_text, section, table, time_text
from spark.page.scales import size


def smtp(data: PageData) -> Markup:
    title, about = "SMTP server", "Sessions of queue-smtpd that have ended, and what it has refused."
    if not data.clients and not data.refusals:
        text = "There is no log of queue-smtpd; queue-report build --smtpd-log names it."
        return section("smtp", title, about, nothing(text))
    return section("smtp", title, about, _refusals(data), _clients(data), _failures(data))


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
