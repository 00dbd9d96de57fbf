"""Options that several subcommands have."""

from typing import Any

import click

from spark.commands.times import parse_time
from spark.reports.choice import ENGINES


class _Time(click.ParamType[int]):
    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_time(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


TIME = _Time()


def engine_option(command: Any) -> Any:
    """Add --engine."""
    return click.option(
        "--engine", type=click.Choice(ENGINES), default="auto",
        help="What reads the tables; auto is DuckDB for a directory of this machine if it is installed, else Spark.",
    )(command)  # fmt: skip


def spark_options(command: Any) -> Any:
    """Add --master and --conf; who gives one of them wants Spark."""
    command = click.option(
        "--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark's, as spark-submit takes it."
    )(command)
    return click.option(
        "--master", metavar="URL", help="Spark's master; default local[*], or what spark-submit was told."
    )(command)
