"""queue-report page: writes all reports of a lake as one HTML page."""

from pathlib import Path

import click

from queue_base.errors import Temporary, Usage
from spark.commands.options import TIME
from spark.commands.settings import split_setting


@click.command("page")
@click.option("--lake", required=True, metavar="LAKE", help="The directory of the tables.")
@click.option("--out", required=True, metavar="FILE.html", help="The page; one that is there is replaced.")
@click.option("--since", type=TIME, metavar="TIME", help="Only what ended then or later.")
@click.option("--until", type=TIME, metavar="TIME", help="Only what ended before.")
@click.option("--host", help="Only this host's queues.")
@click.option("--domain", help="Only mail to this domain.")
@click.option("--master", metavar="URL", help="Spark's master; default local[*], or what spark-submit was told.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark's, as spark-submit takes it.")
def command(
    lake: str,
    out: str,
    since: int | None,
    until: int | None,
    host: str | None,
    domain: str | None,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Write the reports of LAKE, with plots, as one HTML page.

    The page needs no network and no other file, and no script: it can be mailed, or put on any web server. A TIME is
    a date, a date and time (UTC where it names no zone), or a stamp of the log.

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
    from spark.runtime.progress import make_progress
    from spark.runtime.session import start_session
    from spark.runtime.work import is_small_lake

    with make_progress() as progress:
        session = start_session(master, settings, is_small_lake(lake))
        try:
            progress.watch(session)
            from spark.page.write import write_page
            from spark.reports.report import View
            from spark.runtime.trouble import JAVA_ERRORS, java_reason

            try:
                write_page(session, lake, target, View(since, until, None, host, domain and domain.lower()), progress)
            except JAVA_ERRORS as error:
                raise Temporary(f"unable to make {out}: {java_reason(error)}; run it again") from error
        finally:
            progress.phase("ending")
            session.stop()
    print(f"the page is {target}")


def unfit(target: Path) -> str | None:
    """Return why a page cannot be put there, None where it can: it takes the place of what has the name."""
    if target.is_dir():
        return "it is a directory"
    if target.exists() and not target.is_file():
        return "it is no file; name one"
    return None if target.parent.is_dir() else "its directory does not exist"
