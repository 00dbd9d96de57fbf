"""The frame of a command with subcommands (queuectl, queue-report): --version, errors and exit codes.

Exit code 0 is success, 100 a usage error or permanent failure, 111 a temporary failure. An error is one line on stderr.
Only the administrator's commands import this module, because importing click takes 24 ms.
"""

import io
import os
import sys
from importlib.metadata import PackageNotFoundError, version

import click

from queue_base.errors import PERMANENT, TEMPORARY, Failure, complain, reason

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        program = context.info_name
        try:
            print(f"{program} {version('queue-suite')}")
        except PackageNotFoundError:
            print(f"{program}, not installed")
        context.exit()


version_option = click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show it."
)


def run_group(program: str, group: click.Group, argv: list[str], thing: str, interrupted: str) -> int:
    """Run one command of the group and return its exit code.

    `thing` names the object of an OSError that has no file name. `interrupted` says what state an interrupt leaves.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        # Not group.main, which has exit codes of its own.
        with group.make_context(program, argv[1:]) as context:
            group.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except Failure as failure:
        complain(program, f"fatal: {failure}")
        return failure.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return PERMANENT
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else program
        complain(program, f"usage: {error.format_message()} ({where} --help tells more)")
        return PERMANENT
    except (click.Abort, KeyboardInterrupt):
        complain(program, f"fatal: interrupted; {interrupted}")
        return TEMPORARY
    except BrokenPipeError:
        # The reader closed the pipe, as `| head` does. The flush at exit must not fail because of that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        complain(program, f"fatal: unable to use {error.filename or thing}: {reason(error)}")
        return TEMPORARY
