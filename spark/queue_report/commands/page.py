"""queue-report page: writes how the queues of a lake are and were as one HTML page."""

from pathlib import Path

import click

from queue_base.errors import Usage
from queue_report.commands.options import TIME, as_of_option, engine_option, spark_options
from queue_report.commands.settings import split_setting


@click.command("page")
@click.option("--lake", required=True, metavar="LAKE", help="The directory of the tables.")
@click.option("--out", required=True, metavar="FILE.html", help="The page; one that is there is replaced.")
@click.option("--since", type=TIME, metavar="TIME", help="Only what ended then or later.")
@click.option("--until", type=TIME, metavar="TIME", help="Only what ended before.")
@click.option("--host", help="Only this host's queues.")
@click.option("--domain", help="Only mail to this domain.")
@as_of_option
@engine_option
@spark_options
def command(
    lake: str,
    out: str,
    since: int | None,
    until: int | None,
    host: str | None,
    domain: str | None,
    as_of: int | None,
    engine: str,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Write how the queues of LAKE are, and were, as one HTML page.

    It says first what is wrong now; then the queue, destinations, senders, volume, delays and limits, with plots. It
    needs no network, no other file and no script: it can be mailed, or put on any web server. A TIME is a date, a date
    and time (UTC where it names no zone), or a stamp of the log.

    \b
    Examples:
      queue-report page --lake /srv/lake --out /var/www/mail/index.html
      queue-report page --lake /srv/lake --out week.html --since 2026-11-13 --until 2026-11-20 --host mx1
    """
    settings = dict(map(split_setting, conf))
    if since is not None and until is not None and until <= since:
        raise Usage("--until must be later than --since")
    target = Path(out)
    if why := unfit(target):
        raise Usage(f"unable to write {out}: {why}")
    # What is heavy is only loaded now: --help needs neither DuckDB nor Spark.
    from queue_report.page.write import write_page
    from queue_report.reports.choice import open_engine
    from queue_report.reports.report import View
    from queue_report.runtime.progress import make_progress
    from queue_report.runtime.session import Sessions

    if engine == "auto" and (master is not None or settings):
        engine = "spark"
    with make_progress() as progress, Sessions(master, settings) as sessions:
        opened = open_engine(lake, engine, sessions, version=as_of, settings=settings)
        try:
            write_page(opened, target, View(since, until, None, host, domain and domain.lower()), progress)
        finally:
            opened.close()
            progress.phase("ending")
    print(f"the page is {target}")


def unfit(target: Path) -> str | None:
    """Return why a page cannot be written there, None if it can. It replaces a file of that name."""
    if target.is_dir():
        return "it is a directory"
    if target.exists() and not target.is_file():
        return "it is no file; name one"
    return None if target.parent.is_dir() else "its directory does not exist"
