"""queue-report sql: prints the answer to a question of one's own to a lake's tables."""

import click

from queue_report.commands.answer import print_answer
from queue_report.commands.forms import FORMATS
from queue_report.commands.options import as_of_option, engine_option, spark_options
from queue_report.commands.settings import split_setting


@click.command("sql")
@click.argument("statement")
@click.option("--lake", required=True, metavar="LAKE", help="The directory of the tables.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", help="How; default table.")
@click.option("--wide", is_flag=True, help="All columns of a table, also if they do not fit the terminal.")
@as_of_option
@engine_option
@spark_options
def command(
    statement: str,
    lake: str,
    form: str,
    wide: bool,
    as_of: int | None,
    engine: str,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Ask the tables of LAKE a question in SQL: one SELECT.

    Tables are messages, deliveries, intervals, alerts, sessions, accepted, refusals, filters, stored, runs, pending
    and quarantine.
    seconds(ns) and quotient(a, b) give exact decimals. What the reports are made of can be named too, such as lives,
    attempts and ended_deliveries.

    \b
    Examples:
      queue-report sql 'select domain, count(*) from deliveries group by domain' --lake /srv/lake
      queue-report sql "select * from messages where sender = 'ann@here.example'" --lake /srv/lake --format json
    """
    settings = dict(map(split_setting, conf))
    if engine == "auto" and (master is not None or settings):
        engine = "spark"
    print_answer(
        lake, engine, (master, settings), "sql", lambda asked: asked.query(statement), form, wide=wide, as_of=as_of
    )
