"""queuectl, the administrator's command: one subcommand a module; here are only the group and the exit codes.

Exit 0 done, 100 usage or permanent trouble, 111 temporary trouble; errors are one line on stderr.
"""

import io
import os
import sys
from importlib.metadata import PackageNotFoundError, version

import click

from queue_admin import (
    adopt_command,
    change_commands,
    destinations_command,
    init_command,
    list_command,
    route_command,
    show_command,
    stat_command,
    users_command,
)
from queue_base.errors import PERMANENT, TEMPORARY, Failure, complain, reason

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
)


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        try:
            print(f"{PROGRAM} {version('queue-suite')}")
        except PackageNotFoundError:
            print(f"{PROGRAM}, not installed")
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--home", metavar="HOME", help="The home to work on; default QUEUE_HOME, else /var/queue.")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show it.")
@click.pass_context
def group(context: click.Context, home: str | None) -> None:
    """Make, take over, look at and change a mail queue.

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
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        # Not group.main, which has exit codes of its own.
        with group.make_context(PROGRAM, argv[1:]) as context:
            group.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except Failure as failure:
        complain(PROGRAM, f"fatal: {failure}")
        return failure.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return PERMANENT
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else PROGRAM
        complain(PROGRAM, f"usage: {error.format_message()} ({where} --help tells more)")
        return PERMANENT
    except (click.Abort, KeyboardInterrupt):
        complain(PROGRAM, "fatal: interrupted; run it again to finish")
        return TEMPORARY
    except BrokenPipeError:
        # Whoever read our output has enough, as `| head` does; the flush at exit must not fail on it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        complain(PROGRAM, f"fatal: unable to use {error.filename or 'the queue'}: {reason(error)}")
        return TEMPORARY
