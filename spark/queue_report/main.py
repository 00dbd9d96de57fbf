"""queue-report, the reader of logs: one subcommand a module; here are only the group and the exit codes.

Exit 0 done, 100 usage or permanent trouble, 111 temporary trouble; errors are one line on stderr.
"""

import logging
import sys
from typing import Any

import click

from queue_base.click_group import SETTINGS, run_group, version_option
from queue_base.errors import PERMANENT, Permanent
from queue_base.shell_completion import completion_command
from queue_report.commands import build as build_command
from queue_report.commands import demo as demo_command
from queue_report.commands import history as history_command
from queue_report.commands import page as page_command
from queue_report.commands import show as show_command
from queue_report.commands import sql as sql_command
from queue_report.commands import watch as watch_command

PROGRAM = "queue-report"
COMMANDS = (
    build_command, watch_command, show_command, sql_command, page_command, history_command, demo_command,
)  # fmt: skip
INTERRUPTED = "the lake is whole, with all that was new or nothing of it; run it again"
# What is said where no command is given.
NEXT = """\
queue-report reads the logs of mail queues into tables, and makes reports of them. What to do next:

  queue-report build /var/log/queue --lake /srv/lake    read the logs; again later for what is new
  queue-report watch /var/log/queue --lake /srv/lake    the same every minute, by a process that stays
  queue-report show overall --lake /srv/lake            print a report; `show` alone lists them
  queue-report sql 'select …' --lake /srv/lake          ask the tables a question of your own
  queue-report page --lake /srv/lake --out mail.html    write one page of them, with plots
  queue-report demo                                     try it all on a month of simulated logs

queue-report --help, or COMMAND --help, tells more.
"""


class _ReportGroup(click.Group):
    """The commands; each imports what it needs of the extras when it runs."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run one command. Raises Permanent for a package that an extra brings, and is not installed."""
        try:
            return super().invoke(ctx)
        except ImportError as error:
            name = (error.name or str(error).rpartition("'")[0].rpartition("'")[2]).partition(".")[0]
            if name.startswith("queue_"):
                raise
            raise Permanent(
                f"unable to load {name}: {error}; install it with bin/setup-suite DIRECTORY "
                f"{'report' if name == 'duckdb' else 'spark'}, then run this again"
            ) from error


@click.group(cls=_ReportGroup, context_settings=SETTINGS, invoke_without_command=True)
@version_option
@click.pass_context
def group(context: click.Context) -> None:
    """Read the logs of mail queues into tables, and make reports of them.

    \b
    Examples:
      queue-report build /var/log/queue --lake /srv/lake
      queue-report watch /var/log/queue --lake /srv/lake --page /var/www/mail.html
      queue-report show overall --lake /srv/lake
      queue-report page --lake /srv/lake --out report.html
    """
    if context.invoked_subcommand is None:
        sys.stderr.write(NEXT)
        context.exit(PERMANENT)


for _module in COMMANDS:
    group.add_command(_module.command)
group.add_command(completion_command(PROGRAM))


def main(argv: list[str]) -> int:
    """Run one command and return its exit code."""
    # py4j logs what it raises, with its stack, and Python shows that where nobody else takes it; we tell it ourselves.
    logging.getLogger().addHandler(logging.NullHandler())
    return run_group(PROGRAM, group, argv, "the lake", INTERRUPTED)
