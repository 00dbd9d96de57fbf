"""queue-report show: prints a report of a lake's tables."""

import shutil
import sys
import tempfile
from typing import TextIO

import click

from queue_base.errors import Permanent, Temporary, Usage
from spark.commands.settings import split_setting
from spark.commands.times import parse_time


class _Time(click.ParamType[int]):
    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_time(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


TIME = _Time()


@click.command("show")
@click.argument("report", required=False)
@click.option("--lake", metavar="LAKE", help="The directory of the tables.")
@click.option("--at", type=TIME, metavar="TIME", help="The moment that qshape looks at.")
@click.option("--since", type=TIME, metavar="TIME", help="Only what ended then or later.")
@click.option("--until", type=TIME, metavar="TIME", help="Only what ended before.")
@click.option("--host", help="Only this host's queues.")
@click.option("--domain", help="Only mail to this domain.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N rows.")
@click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", help="How; default table."
)
@click.option("--master", metavar="URL", help="Spark's master; default local[*], or what spark-submit was told.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark's, as spark-submit takes it.")
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
    """
    settings = dict(map(split_setting, conf))
    # Spark's own modules are only loaded now: --help, and a wrong option, need neither pyspark nor Java.
    try:
        from spark.reports import REPORTS
        from spark.reports.report import View, run
    except ImportError as error:
        raise Permanent(
            f"unable to load pyspark: {error}; install it with pip install 'queue-suite[spark]', then run this again"
        ) from error
    if report is None:
        width = max(map(len, REPORTS))
        print("\n".join(f"{name:<{width}}  {each.title}" for name, each in REPORTS.items()))
        return
    if report not in REPORTS:
        raise Usage(f"unable to show {report}: there is no such report; known are {' '.join(REPORTS)}")
    if lake is None:
        raise Usage("show needs --lake LAKE, the directory that `queue-report build` made")
    if at is not None and not REPORTS[report].momentary:
        momentary = " and ".join(name for name, each in REPORTS.items() if each.momentary)
        raise Usage(f"--at is for {momentary}; {report} takes --since and --until")
    if since is not None and until is not None and until <= since:
        raise Usage("--until must be later than --since")
    from spark.lake.store import open_tables
    from spark.reports.show import print_report
    from spark.runtime.progress import make_progress
    from spark.runtime.session import start_session
    from spark.runtime.trouble import JAVA_ERRORS, java_reason
    from spark.runtime.work import is_small_lake

    view = View(since, until, at, host, None if domain is None else domain.lower(), limit)
    with tempfile.TemporaryFile("w+") as kept:
        # On a terminal the rows wait until the bar, which is on the same one, is gone.
        out: TextIO = kept if sys.stdout.isatty() else sys.stdout
        with make_progress() as progress:
            session = start_session(master, settings, is_small_lake(lake))
            try:
                progress.watch(session)
                progress.phase(report)
                print_report(REPORTS[report], run(REPORTS[report], open_tables(session, lake), view), form, out)
            except JAVA_ERRORS as error:
                raise Temporary(f"unable to show {report}: {java_reason(error)}; run it again") from error
            finally:
                progress.phase("ending")
                session.stop()
        if out is kept:
            kept.seek(0)
            shutil.copyfileobj(kept, sys.stdout)
