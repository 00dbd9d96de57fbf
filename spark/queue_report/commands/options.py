"""Options that several subcommands have."""

from typing import Any

import click

from queue_report.commands.times import parse_time
from queue_report.reports.choice import ENGINES


class _Time(click.ParamType[int]):
    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_time(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


TIME = _Time()


def stream_name(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Return the name of a host or queue. Refuse what cannot name a directory, such as the empty text."""
    if value is not None and (value in ("", ".", "..") or "/" in value):
        raise click.BadParameter(f"{value or 'nothing'} is no name", context, option)
    return value


def place_name(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Return the name of a directory. Refuse the empty text (an unset variable): it would mean the current one."""
    if value is not None and not value:
        raise click.BadParameter("nothing is no directory", context, option)
    return value


def logs_and_lake(command: Any) -> Any:
    """Add LOGS, --lake and --smtpd-log, of a command that builds."""
    command = click.option(
        "--smtpd-log",
        callback=place_name,
        metavar="DIR",
        help="The log of queue-smtpd on this host, if it is not in LOGS.",
    )(command)
    command = click.option(
        "--lake", required=True, callback=place_name, metavar="LAKE",
        help="The directory of the tables; made where it is missing.",
    )(command)  # fmt: skip
    return click.argument("logs", callback=place_name)(command)


def stream_options(command: Any) -> Any:
    """Add --host and --queue."""
    for name, default in (("queue", "queue"), ("host", "localhost")):
        about = f"The {name} of logs not in a directory of one; default {default}."
        command = click.option(f"--{name}", callback=stream_name, help=about)(command)
    return command


def engine_option(command: Any) -> Any:
    """Add --engine."""
    return click.option(
        "--engine", type=click.Choice(ENGINES), default="auto",
        help="What reads the tables; auto is DuckDB for a directory of this machine if it is installed, else Spark.",
    )(command)  # fmt: skip


def as_of_option(command: Any) -> Any:
    """Add --as-of."""
    return click.option(
        "--as-of", type=click.IntRange(min=0), metavar="VERSION",
        help="The lake as it was then, of the last day; `queue-report history` shows which there are.",
    )(command)  # fmt: skip


def spark_options(command: Any) -> Any:
    """Add --master and --conf; who gives one of them wants Spark."""
    command = click.option(
        "--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark's, as spark-submit takes it."
    )(command)
    return click.option(
        "--master", "--remote", "master", metavar="URL",
        help="Spark's master, or sc://HOST:PORT of a Connect server; default local[*], or what spark-submit was told.",
    )(command)  # fmt: skip
