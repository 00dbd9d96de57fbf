"""queue-report, the reader of logs: one subcommand a module; here are only the group and the exit codes.

Exit 0 done, 100 usage or permanent trouble, 111 temporary trouble; errors are one line on stderr.
"""

import io
import os
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import click

from queue_base.errors import PERMANENT, TEMPORARY, Failure, complain, reason

PROGRAM = "queue-report"
COMMANDS = ("build_command", "show_command", "page_command", "demo_command")


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        try:
            print(f"{PROGRAM} {version('queue-suite')}")
        except PackageNotFoundError:
            print(f"{PROGRAM}, not installed")
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show it.")
def group() -> None:
    """Read the logs of mail queues into tables, and print reports of them.

    \b
    Examples:
      queue-report build /var/log/queue --lake /srv/lake
      queue-report show overall --lake /srv/lake
      queue-report page --lake /srv/lake --out report.html
    """


for _name in COMMANDS:
    if find_spec(f"spark.{_name}"):
        group.add_command(import_module(f"spark.{_name}").command)


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
        complain(PROGRAM, "fatal: interrupted; the lake is as it was, run it again")
        return TEMPORARY
    except BrokenPipeError:
        # Whoever read our output has enough, as `| head` does; the flush at exit must not fail on it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        complain(PROGRAM, f"fatal: unable to use {error.filename or 'the lake'}: {reason(error)}")
        return TEMPORARY
