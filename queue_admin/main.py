"""queuectl, the administrator's command. Each subcommand is a module in queue_admin.commands.

Exit 0 if done, 100 for wrong usage and permanent errors, 111 for temporary errors. An error is one line on stderr.
"""

import click

from queue_admin.commands import adopt as adopt_command
from queue_admin.commands import change as change_commands
from queue_admin.commands import destinations as destinations_command
from queue_admin.commands import init as init_command
from queue_admin.commands import list as list_command
from queue_admin.commands import route as route_command
from queue_admin.commands import show as show_command
from queue_admin.commands import stat as stat_command
from queue_admin.commands import users as users_command
from queue_admin.commands import version as version_command
from queue_base.click_group import SETTINGS, run_group, version_option
from queue_base.daemon.signals import keep_children

PROGRAM = "queuectl"
COMMANDS = (
    init_command,
    adopt_command,
    list_command,
    stat_command,
    show_command,
    destinations_command,
    route_command,
    users_command,
    version_command,
)


@click.group(context_settings=SETTINGS)
@click.option("--home", metavar="HOME", help="The home; default QUEUE_HOME, else /var/queue.")
@version_option
@click.pass_context
def group(context: click.Context, home: str | None) -> None:
    """Make, take over, inspect and change a mail queue.

    \b
    Examples:
      queuectl init /var/queue --me mail.example.org
      queuectl list --state classified
      queuectl --home /srv/queue show 457-h5x3k2j1z9
      queuectl flush --domain example.net
    """
    context.obj = home


for _module in COMMANDS:
    group.add_command(_module.command)
for _command in change_commands.commands:
    group.add_command(_command)


def main(argv: list[str]) -> int:
    """Run one command and return its exit code."""
    keep_children()
    return run_group(PROGRAM, group, argv, "the queue", "run it again to finish")
