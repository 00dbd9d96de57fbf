"""The frame of a command with subcommands (queuectl, queue-report): --version, completion, errors and exit codes.

Exit code 0 is success, 1 that nothing was found, 100 a usage error or permanent failure, 111 a temporary failure. An
error is one line on stderr.
Only the administrator's commands import this module, because importing click takes 24 ms.
"""

import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from queue_base.errors import PERMANENT, TEMPORARY, Failure, complain, reason
from queue_base.shell_completion import answer_shell
from queue_base.suite_version import suite_version

_OUTPUT = "standard output"
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        print(f"{context.info_name} {suite_version()}")
        context.exit()


version_option = click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show it."
)


class RenamedOption(click.Option):
    """An option that is taken by former names, too, which no help shows: scripts may have them."""

    def __init__(self, *names: Any, former: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*names, **settings)
        self._former = former

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Have the parser take all names."""
        shown = self.opts
        self.opts = [*shown, *self._former]
        super().add_to_parser(parser, ctx)
        self.opts = shown


def run_group(program: str, group: click.Group, argv: list[str], thing: str, interrupted: str) -> int:
    """Run one command of the group and return its exit code.

    `thing` names the object of an OSError that has no file name. `interrupted` says what state an interrupt leaves.
    """
    _open_standard()
    code = _run(program, group, argv, thing, interrupted)
    return code if _flush(program) else TEMPORARY


def _flush(program: str) -> bool:
    """Write what is left for standard output; if that fails, say so and return False.

    A reader that has closed the pipe, as `| head` does, is no failure.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # The flush at exit must not fail again.
        if isinstance(error, BrokenPipeError):
            return True
        complain(program, f"fatal: unable to write standard output: {reason(error)}")
        return False
    return True


class _StandardOutput(io.BufferedWriter):
    """Standard output; its errors have its name.

    It is not the raw file, whose bytes would be written again if a signal interrupted it after its write(2).
    """

    def write(self, data: Any) -> int:
        """Write bytes, later perhaps. Raises OSError."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _OUTPUT
            raise

    def flush(self) -> None:
        """Write what is left. Raises OSError."""
        try:
            super().flush()
        except OSError as error:
            error.filename = _OUTPUT
            raise


def _nameless(thing: str) -> str:
    """Return what an error without a file name is about."""
    try:
        os.getcwd()
    except OSError:
        return "the working directory"
    return thing


def _open_standard() -> None:
    """Open /dev/null in the place of a closed descriptor 0, 1 or 2; otherwise a file of the queue would get it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    elif isinstance(sys.stdout, io.TextIOWrapper) and isinstance(getattr(sys.stdout.buffer, "raw", None), io.FileIO):
        old = sys.stdout
        buffer = _StandardOutput(io.FileIO(old.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(buffer, old.encoding, old.errors, line_buffering=old.line_buffering)


def _advise_place(program: str, group: click.Group, option: str) -> str:
    """Return what is said of an option of the whole program behind a command; empty if it is none."""
    if option in ("--version", "--help") or not any(option in each.opts for each in group.params):
        return ""
    return f"; it goes before the command: {program} {option} …"


def _run(program: str, group: click.Group, argv: list[str], thing: str, interrupted: str) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        answered = answer_shell(program, group)
        if answered is not None:
            sys.stdout.flush()
            return answered
        # Not group.main, which has exit codes of its own.
        with group.make_context(program, argv[1:]) as context:
            group.invoke(context)
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
        told = " ".join(error.format_message().split())
        if isinstance(error, click.NoSuchOption) and error.ctx is not None and error.ctx.command is not group:
            told = told.rstrip(".") + _advise_place(program, group, error.option_name)
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else program
        # Its message may have several lines.
        complain(program, f"fatal: {told} ({where} --help tells more)")
        return PERMANENT
    except (click.Abort, KeyboardInterrupt):
        complain(program, f"fatal: interrupted; {interrupted}")
        return TEMPORARY
    except BrokenPipeError:
        # The reader closed the pipe, as `| head` does. The flush at exit must not fail because of that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        if error.filename != _OUTPUT:
            complain(program, f"fatal: unable to use {error.filename or _nameless(thing)}: {reason(error)}")
        elif _flush(program):  # What could not be written is not always still to be.
            complain(program, f"fatal: unable to write {_OUTPUT}: {reason(error)}")
        return TEMPORARY
