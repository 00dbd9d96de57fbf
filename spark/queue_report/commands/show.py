"""queue-report show: prints a report of a lake's tables."""

import click

from queue_base.errors import Usage
from queue_report.commands.answer import print_answer
from queue_report.commands.forms import FORMATS
from queue_report.commands.options import TIME, as_of_option, engine_option, spark_options
from queue_report.commands.settings import split_setting


@click.command("show")
@click.argument("report", required=False)
@click.option("--lake", metavar="LAKE", help="The directory of the tables.")
@click.option("--at", type=TIME, metavar="TIME", help="The moment that qshape looks at.")
@click.option("--since", type=TIME, metavar="TIME", help="Only what ended then or later.")
@click.option("--until", type=TIME, metavar="TIME", help="Only what ended before.")
@click.option("--host", help="Only this host's queues.")
@click.option("--domain", help="Only mail to this domain.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N rows.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", help="How; default table.")
@click.option("--wide", is_flag=True, help="All columns of a table, also if they do not fit the terminal.")
@click.option("--sql", is_flag=True, help="Print the report's SQL instead, to be changed and given to a shell.")
@as_of_option
@engine_option
@spark_options
def command(
    report: str | None,
    lake: str | None,
    at: int | None,
    since: int | None,
    until: int | None,
    host: str | None,
    domain: str | None,
    limit: int | None,
    form: str,
    wide: bool,
    sql: bool,
    as_of: int | None,
    engine: str,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Print REPORT; without one, print which reports there are.

    A TIME is a date, a date and time (UTC where it names no zone), or a stamp of the log.

    \b
    Examples:
      queue-report show overall --lake /srv/lake --since 2026-11-01
      queue-report show failures --lake /srv/lake --host mx1 --limit 20
      queue-report show qshape --lake /srv/lake --at 2026-11-20T13:05 --format csv
      queue-report show senders --lake /srv/lake --sql | duckdb
    """
    settings = dict(map(split_setting, conf))
    from queue_report.reports import REPORTS
    from queue_report.reports.choice import choose_engine
    from queue_report.reports.report import View

    if report is None:
        width = max(map(len, REPORTS))
        print("\n".join(f"{name:<{width}}  {each.title}" for name, each in REPORTS.items()))
        return
    if report not in REPORTS:
        raise Usage(f"unable to show {report}: there is no such report; known are {' '.join(REPORTS)}")
    if lake is None and not sql:
        raise Usage("show needs --lake LAKE, the directory that `queue-report build` made")
    chosen = REPORTS[report]
    if at is not None and not chosen.momentary:
        momentary = " and ".join(name for name, each in REPORTS.items() if each.momentary)
        raise Usage(f"--at is for {momentary}; {report} takes --since and --until")
    if since is not None and until is not None and until <= since:
        raise Usage("--until must be later than --since")
    view = View(since, until, at, host, None if domain is None else domain.lower(), limit)
    if engine == "auto" and (master is not None or settings):
        engine = "spark"
    if sql:
        from queue_report.reports.script import write_script

        print(write_script(chosen, view, choose_engine(lake or ".", engine), lake), end="")
        return
    assert lake is not None
    print_answer(
        lake,
        engine,
        (master, settings),
        report,
        lambda asked: asked.report(chosen, view),
        form,
        wide=wide,
        as_of=as_of,
        single=chosen.single,
        spaced=chosen.spaced,
    )
