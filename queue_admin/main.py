"""queuectl, the administrator's command. Each subcommand is a module in queue_admin.commands.

Exit 0 if done, 1 if nothing matched, 100 for wrong usage and permanent errors, 111 for temporary errors. An error is
one line on stderr.
"""

import click

from queue_admin.commands.home import adopt as adopt_command
from queue_admin.commands.home import check as check_command
from queue_admin.commands.home import config as config_command
from queue_admin.commands.home import copy as copy_command
from queue_admin.commands.home import import_aliases as import_aliases_command
from queue_admin.commands.home import init as init_command
from queue_admin.commands.home import passwd as passwd_command
from queue_admin.commands.home import repair as repair_command
from queue_admin.commands.home import users as users_command
from queue_admin.commands.messages import change as change_commands
from queue_admin.commands.messages import list as list_command
from queue_admin.commands.messages import log as log_command
from queue_admin.commands.messages import maildrop as maildrop_command
from queue_admin.commands.messages import mailq as mailq_command
from queue_admin.commands.messages import postman as postman_command
from queue_admin.commands.messages import resubmit as resubmit_command
from queue_admin.commands.messages import show as show_command
from queue_admin.commands.messages import stored as stored_command
from queue_admin.commands.state import destinations as destinations_command
from queue_admin.commands.state import metrics as metrics_command
from queue_admin.commands.state import route as route_command
from queue_admin.commands.state import shape as shape_command
from queue_admin.commands.state import smtpd as smtpd_command
from queue_admin.commands.state import stat as stat_command
from queue_admin.commands.state import top as top_command
from queue_admin.commands.state import version as version_command
from queue_admin.commands.state import web as web_command
from queue_admin.home.chosen import Choice
from queue_base.click_group import SETTINGS, run_group, version_option
from queue_base.daemon.signals import keep_children
from queue_base.shell_completion import complete_directory, completion_command

PROGRAM = "queuectl"
COMMANDS = (
    init_command,
    adopt_command,
    config_command,
    list_command,
    stat_command,
    shape_command,
    top_command,
    web_command,
    metrics_command,
    show_command,
    maildrop_command,
    stored_command,
    postman_command,
    mailq_command,
    log_command,
    destinations_command,
    smtpd_command,
    route_command,
    users_command,
    passwd_command,
    import_aliases_command,
    check_command,
    repair_command,
    resubmit_command,
    copy_command,
    version_command,
)


@click.group(context_settings=SETTINGS)
@click.option(
    "--home", metavar="HOME", shell_complete=complete_directory, help="The home; default QUEUE_HOME, else /var/queue."
)
@click.option("--queue", metavar="NAME", help="One of the queues of control/queues; default all.")
@version_option
@click.pass_context
def group(context: click.Context, home: str | None, queue: str | None) -> None:
    """Make, take over, inspect and change a mail queue.

    \b
    Examples:
      queuectl init /var/queue --me mail.example.org
      queuectl list --state classified
      queuectl --home /srv/queue show 457-h5x3k2j1z9
      queuectl flush --domain example.net
    """
    context.obj = Choice(home, queue)


for _module in COMMANDS:
    group.add_command(_module.command)
for _command in change_commands.commands:
    group.add_command(_command)
group.add_command(completion_command(PROGRAM))


def main(argv: list[str]) -> int:
    """Run one command and return its exit code."""
    keep_children()
    return run_group(PROGRAM, group, argv, "the queue", "run it again to finish")
