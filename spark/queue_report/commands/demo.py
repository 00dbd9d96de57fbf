"""queue-report demo: a month of logs of three hosts, read into a lake, and its page; all in one directory."""

import tempfile
from pathlib import Path

import click

from queue_base.errors import Temporary, Usage, reason

# What is in a directory of the demo.
LOGS, LAKE, PAGE = "logs", "lake", "report.html"


@click.command("demo")
@click.option("--out", metavar="DIR", help="Where; default a new directory in $TMPDIR or /tmp.")
@click.option("--days", type=click.IntRange(1, 31), default=31, metavar="N", help="So many days; default 31.")
def command(out: str | None, days: int) -> None:
    """Make a month of logs of three hosts, read them, and write the page of their reports.

    The logs are simulated, and the same each time: 30 MB, with bounces, destinations that die and come back, restarts
    and a power cut. Nothing is sent anywhere. It takes a minute or two.

    \b
    Examples:
      queue-report demo
      queue-report demo --out /tmp/month
    """
    from queue_report.lake.build import Order, build
    place = _make_place(out)
    from queue_report.commands.summary import print_build
    from queue_report.demo.world import write_logs
    from queue_report.page.write import write_page
    from queue_report.reports.choice import open_engine
    from queue_report.reports.report import View
    from queue_report.runtime.progress import make_progress
    from queue_report.runtime.session import Sessions

    with make_progress() as progress:
        progress.phase("writing logs")
        try:
            write_logs(place / LOGS, days=days)
        except OSError as error:
            raise Temporary(f"unable to write {place / LOGS}: {reason(error)}; run it again") from error
        with Sessions() as sessions:
            summary = build(Order(str(place / LOGS), str(place / LAKE)), sessions, progress)
            engine = open_engine(str(place / LAKE), sessions=sessions)
            try:
                write_page(engine, place / PAGE, View(), progress)
            finally:
                engine.close()
            progress.phase("ending")
    print_build(summary)
    print(f"logs: {place / LOGS}\nlake: {place / LAKE}, for `queue-report show REPORT --lake {place / LAKE}`")
    print(f"the page is {place / PAGE}: open it in a browser")


def _make_place(out: str | None) -> Path:
    """Return the demo's directory. Raises Usage for one that holds anything else: what is in it would be mixed up."""
    try:
        if out is None:
            return Path(tempfile.mkdtemp(prefix="queue-report-demo-"))
        place = Path(out).absolute()
        place.mkdir(parents=True, exist_ok=True)
        if any(path.name not in (LOGS, LAKE, PAGE) for path in place.iterdir()):
            raise Usage(f"unable to use {out}: it holds something else; name a new directory")
        return place
    except OSError as error:
        raise Usage(f"unable to make {out or 'a directory'}: {reason(error)}") from error
