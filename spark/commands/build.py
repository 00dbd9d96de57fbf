"""queue-report build: reads what is new in the logs into the lake."""

import click

from spark.commands.settings import missing, split_setting


def stream_name(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Return the name of a host or queue. Refuse what cannot name a directory, such as the empty text."""
    if value is not None and (value in ("", ".", "..") or "/" in value):
        raise click.BadParameter(f"{value or 'nothing'} is no name", context, option)
    return value


def place_name(context: click.Context, option: click.Parameter, value: str) -> str:
    """Return the name of a directory. Refuse the empty text (an unset variable): it would mean the current one."""
    if not value:
        raise click.BadParameter("nothing is no directory", context, option)
    return value


@click.command("build")
@click.argument("logs", callback=place_name)
@click.option(
    "--lake",
    required=True,
    callback=place_name,
    metavar="LAKE",
    help="The directory of the tables; made where it is missing.",
)
@click.option("--host", callback=stream_name, help="The host of logs not in a directory of one; default localhost.")
@click.option("--queue", callback=stream_name, help="The queue of logs not in a directory of one; default queue.")
@click.option("--compact", is_flag=True, help="Then put together what many builds left in many small files.")
@click.option(
    "--expire", type=click.IntRange(min=0), metavar="DAYS", help="Then drop dates that are more than DAYS days ago."
)
@click.option("--master", metavar="URL", help="Spark's master; default local[*], or what spark-submit was told.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark's, as spark-submit takes it.")
def command(
    logs: str,
    lake: str,
    host: str | None,
    queue: str | None,
    compact: bool,
    expire: int | None,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Read what is new in LOGS into the tables of LAKE.

    LOGS is a directory of multilog or svlogd, or one of many: LOGS/HOST/QUEUE/. LOGS and LAKE may be of any file
    system that Spark knows. What was read before is not read again; a build that dies has changed nothing.

    \b
    Examples:
      queue-report build /var/log/queue --lake /srv/lake
      queue-report build hdfs:///logs --lake hdfs:///lake --master yarn --compact --expire 400
    """
    settings = dict(map(split_setting, conf))
    try:
        from spark.lake.build import Order, build
    except ImportError as error:
        raise missing(error) from error
    from spark.runtime.progress import make_progress
    from spark.runtime.session import Sessions

    with make_progress() as progress, Sessions(master, settings) as sessions:
        asked = settings if master is None else {**settings, "spark.master": master}
        summary = build(Order(logs, lake, host, queue, expire, compact, asked), sessions, progress)
        progress.phase("ending")
    from spark.commands.summary import print_build

    print_build(summary)
