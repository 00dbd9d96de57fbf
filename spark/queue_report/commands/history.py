"""queue-report history: prints the versions of a lake that can be read."""

import sys

import click

from queue_report.commands.forms import FORMATS, print_result
from queue_report.commands.options import spark_options
from queue_report.commands.settings import split_setting
from queue_report.reports.engine import Result


@click.command("history")
@click.option("--lake", required=True, metavar="LAKE", help="The directory of the tables.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", help="How; default table.")
@spark_options
def command(lake: str, form: str, master: str | None, conf: tuple[str, ...]) -> None:
    """Print the versions of LAKE: each build that found something new has made one.

    Those of the last day can be read by show, sql and page with --as-of VERSION.

    \b
    Examples:
      queue-report history --lake /srv/lake
      queue-report show overall --lake /srv/lake --as-of 41
    """
    from queue_report.lake.lake import open_lake
    from queue_report.runtime.files import store_settings

    versions = open_lake(lake, store_settings(dict(map(split_setting, conf)))).history()
    print_result(Result(("version", "made", "done"), ("bigint", "text", "text"), iter(versions)), form, sys.stdout)
