"""queue-report build: reads what is new in the logs into the lake."""

import click

from queue_report.commands.options import logs_and_lake, spark_options, stream_options
from queue_report.commands.settings import split_setting


@click.command("build")
@logs_and_lake
@stream_options
@click.option("--compact", is_flag=True, help="Then put together what many builds left in many small files.")
@click.option(
    "--expire", type=click.IntRange(min=0), metavar="DAYS", help="Then drop dates that are more than DAYS days ago."
)
@spark_options
def command(
    logs: str,
    lake: str,
    smtpd_log: str | None,
    host: str | None,
    queue: str | None,
    compact: bool,
    expire: int | None,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Read what is new in LOGS into the tables of LAKE.

    LOGS is a directory of multilog or svlogd, or one of many: LOGS/HOST/QUEUE/. LOGS and LAKE may be
    in a store (s3:, abfss:, gs:, hdfs:). What was read before is not read again; a build that dies has changed nothing.

    \b
    Examples:
      queue-report build /var/log/queue --lake /srv/lake
      queue-report build /var/log/queue --smtpd-log /var/log/queue-smtpd --lake /srv/lake
      queue-report build hdfs:///logs --lake hdfs:///lake --master yarn --compact --expire 400
    """
    settings = dict(map(split_setting, conf))
    from queue_report.lake.build import Order, build
    from queue_report.runtime.progress import make_progress
    from queue_report.runtime.session import Sessions

    with make_progress() as progress, Sessions(master, settings) as sessions:
        summary = build(Order(logs, lake, host, queue, expire, compact, settings, smtpd_log), sessions, progress)
        progress.phase("ending")
    from queue_report.commands.summary import print_build

    print_build(summary)
