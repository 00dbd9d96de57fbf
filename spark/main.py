"""queue-report, the reader of logs: one subcommand a module; here are only the group and the exit codes.

Exit 0 done, 100 usage or permanent trouble, 111 temporary trouble; errors are one line on stderr.
"""

import logging

import click

from queue_base.click_group import SETTINGS, run_group, version_option
from spark.commands import build as build_command
from spark.commands import demo as demo_command
from spark.commands import page as page_command
from spark.commands import show as show_command

PROGRAM = "queue-report"
COMMANDS = (build_command, show_command, page_command, demo_command)


@click.group(context_settings=SETTINGS)
@version_option
def group() -> None:
    """Read the logs of mail queues into tables, and print reports of them.

    \b
    Examples:
      queue-report build /var/log/queue --lake /srv/lake
      queue-report show overall --lake /srv/lake
      queue-report page --lake /srv/lake --out report.html
    """


for _module in COMMANDS:
    group.add_command(_module.command)


def main(argv: list[str]) -> int:
    """Run one command and return its exit code."""
    # py4j logs what it raises, with its stack, and Python shows that where nobody else takes it; we tell it ourselves.
    logging.getLogger().addHandler(logging.NullHandler())
    return run_group(PROGRAM, group, argv, "the lake", "the lake is as it was, run it again")
