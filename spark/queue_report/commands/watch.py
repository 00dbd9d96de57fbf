"""queue-report watch: builds again and again, in one process that stays."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from queue_base.daemon.processes import program_path
from queue_base.errors import Usage
from queue_report.commands.options import logs_and_lake, spark_options, stream_options
from queue_report.commands.page import unfit
from queue_report.commands.settings import split_setting


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from queue_report.watch.memory import parse_size

        try:
            size = parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if size < MEMORY_MIN:
            self.fail(f"{value} is too little; it needs 512m", param, ctx)
        return size


class _Seconds(click.ParamType[float]):
    """Seconds, from 1 to a year. nan is refused, too; click's own range takes it."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = click.FLOAT.convert(value, param, ctx)
        if not 1 <= seconds <= LONGEST:
            self.fail(f"{value} is not in the range 1<=x<={LONGEST}.", param, ctx)
        return seconds


MEMORY_MIN = 512 << 20
LONGEST = 366 * 86_400


@click.command("watch")
@logs_and_lake
@click.option("--every", type=_Seconds(), default=60.0, metavar="SECONDS", help="Default 60.")
@click.option("--page", metavar="FILE.html", help="Also write the page, when the tables have changed.")
@click.option("--expire", type=click.IntRange(min=0), metavar="DAYS", help="Drop dates that are older.")
@click.option("--memory", type=_Size(), default="2g", metavar="SIZE", help="What all of it may take; default 2g.")
@click.option("--service", metavar="DIR", help="Only write a service directory that runs this.")
@click.option("--force", is_flag=True, help="Replace scripts in the service directory that differ.")
@stream_options
@spark_options
def command(
    logs: str,
    lake: str,
    smtpd_log: str | None,
    every: float,
    page: str | None,
    expire: int | None,
    memory: int,
    service: str | None,
    force: bool,
    host: str | None,
    queue: str | None,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Read what is new in LOGS into the tables of LAKE, again and again.

    It does what build does, every minute, and prints a line about each batch. Small files are put together, and old
    dates dropped, when the log is quiet, at least once a day. A disk that is full, or a lake that another build has,
    is a warning and a pause.

    TERM and INT end it after the batch, a second one at once; HUP makes a batch now. It may be killed at any time:
    nothing is lost or counted twice.

    \b
    Examples:
      queue-report watch /var/log/queue --lake /srv/lake --page /var/www/mail.html --expire 400
      queue-report watch /var/log/queue --lake /srv/lake --service /etc/sv/queue-report
    """
    settings = dict(map(split_setting, conf))
    if page is not None and (why := unfit(Path(page))):
        raise Usage(f"unable to write {page}: {why}")
    if service is not None:
        from queue_report.watch.service import write_service

        for path in write_service(service, _own_command(), force):
            print(f"wrote {path}")
        return
    from queue_report.watch.memory import use_system_memory

    use_system_memory()
    from queue_report.lake.build import Order
    if page is not None:
        from queue_report.reports.choice import check_engine

        check_engine(lake)
    from queue_report.watch.clock import SystemClock
    from queue_report.watch.lake_work import LakeWork
    from queue_report.watch.watch import Watch

    clock = SystemClock()
    order = Order(logs, lake, host, queue, expire, settings=settings, smtpd_log=smtpd_log)
    work = LakeWork(order, Path(page) if page else None, memory, master)
    print(f"status: watching {logs} for lake {lake}, every {every:g} s", flush=True)
    if Watch(work, clock, every, sys.stdout).run():
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _own_command() -> list[str]:
    """Return the command line that this one is without --service, for a script that runs in another directory."""
    context = click.get_current_context()
    words = [program_path("queue-report"), "watch"]
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if parameter.name in ("service", "force") or value in (None, ()) or not _is_given(context, parameter):
            continue
        values = value if isinstance(value, tuple) else [value]
        for each in values:
            text = _anywhere(str(each)) if parameter.name in ("logs", "lake", "page", "smtpd_log") else str(each)
            if isinstance(parameter, click.Argument):
                words.insert(2, text)
            else:
                words += [parameter.opts[0], f"{each:g}" if isinstance(each, float) else text]
    return words


def _is_given(context: click.Context, parameter: click.Parameter) -> bool:
    return context.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE


def _anywhere(path: str) -> str:
    """Return what names a file or directory from any directory; URIs stay."""
    return path if "://" in path or path.startswith("file:") else os.path.abspath(path)
