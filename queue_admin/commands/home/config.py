"""queuectl config: shows, checks and changes the control files."""

import json
import os
import sys

import click

from queue_admin.home.chosen import home_of
from queue_admin.printable import align, visible
from queue_admin.settings.control_change import change_control
from queue_admin.settings.control_faults import find_control_faults
from queue_admin.settings.control_values import Setting, ask_running, plain, read_settings
from queue_base.errors import Temporary, Usage, complain
from queue_base.home import Home
from queue_wire.control.control_file import START
from queue_wire.control.registry import BY_NAME, nearest_name

FAULTS_FOUND = 1
_HEAD = ("name", "value", "default", "range", "from", "")
form_option = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text."
)


def complete_name(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Return the control files whose names begin so, for a shell."""
    return [name for name in BY_NAME if name.startswith(begun)]


@click.group("config", invoke_without_command=True)
@click.option("-n", "--changed", "only_changed", is_flag=True, help="Only what differs from the default.")
@form_option
@click.pass_context
def command(context: click.Context, only_changed: bool, form: str) -> None:
    """Show the control files: value in force, default, range, and where the value comes from.

    What the daemons have in force is asked from them. If a file says something else, the line below has it, and whether
    HUP or the next start of the suite makes that the value in force. If a file cannot be used, its value is the last
    one that could, else what counts without it, and the line below says what is wrong. Files with several lines show
    how many.

    \b
    Examples:
      queuectl config
      queuectl config -n
      queuectl config show concurrencyremote
      queuectl config check
      queuectl config set concurrencyremote 40
      queuectl config set --unset concurrencyremote
    """
    if context.invoked_subcommand is None:
        show_settings(home_of(context), (), only_changed, form)


@command.command("show")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_name)
@form_option
@click.pass_context
def show_command(context: click.Context, names: tuple[str, ...], form: str) -> None:
    """Show some control files.

    \b
    Example:
      queuectl config show queuelifetime bouncelifetime
    """
    for name in names:
        check_name(name)
    show_settings(home_of(context), names, False, form)


@command.command("check")
@form_option
@click.pass_context
def check_command(context: click.Context, form: str) -> None:
    """Name each mistake in the control files, and each unknown file.

    Exit 0 if there is none, 1 if there is one.

    \b
    Example:
      queuectl config check
    """
    found = 0
    for fault in find_control_faults(home_of(context)):
        found += 1
        if form == "json":
            print(json.dumps({"file": fault.name, "line": fault.line, "fault": fault.why}))
        else:
            print(visible(fault.text().encode("utf-8", "surrogateescape")))
    context.exit(FAULTS_FOUND if found else 0)


@command.command("set")
@click.argument("name", shell_complete=complete_name)
@click.argument("values", metavar="[VALUE...]", nargs=-1)
@click.option("--unset", is_flag=True, help="Remove the file, so that the default counts.")
@click.pass_context
def set_command(context: click.Context, name: str, values: tuple[str, ...], unset: bool) -> None:
    """Change a control file, and wait until it is in force.

    Each VALUE is a line of the file; a single `-` takes the contents from standard input. A value that cannot be used
    is refused, and nothing is changed.

    \b
    Examples:
      queuectl config set concurrencyremote 40
      queuectl config set locals mail.example.org example.org
      queuectl config set smtproutes - <routes
      queuectl config set --unset queuelifetime
    """
    check_name(name)
    if unset == bool(values):
        raise Usage("config set needs either values or --unset")
    data = None
    if values == ("-",):
        data = sys.stdin.buffer.read()
    elif not unset:
        data = "".join(f"{value}\n" for value in values).encode("utf-8", "surrogateescape")
    when = change_control(home_of(context), name, data)
    print(f"control/{name} {'removed' if unset else 'changed'}: {when}")


def check_name(name: str) -> None:
    """Raise Usage if there is no such control file, with the nearest name."""
    if name not in BY_NAME:
        near = nearest_name(name)
        advice = f"; do you mean {near}?" if near else "; queuectl config lists them"
        raise Usage(f"there is no control file {name}{advice}")


def show_settings(home: Home, names: tuple[str, ...], only_changed: bool, form: str) -> None:
    """Print the settings, and on stderr why it is not known what is in force."""
    if not os.path.isdir(home.control):
        raise Temporary(f"unable to read {home.control}: it is not there; queuectl init makes a home")
    running, unknown = ask_running(home)

    def warn(text: str) -> None:
        complain("queuectl", f"warning: {text}")

    settings = [each for each in read_settings(home, running, names, warn) if each.differs or not only_changed]
    if form == "json":
        for each in settings:
            print(json.dumps(each.facts()))
    else:
        print_table(settings)
    if unknown:
        warn(unknown)


def print_table(settings: list[Setting]) -> None:
    """Print a table with a line for each setting, and one for a value that is not in force yet."""
    lines = align([_HEAD, *(_row(each) for each in settings)])
    for line, setting in zip(lines, [None, *settings], strict=True):
        print(line)
        if setting is not None and setting.pending is not None:
            print(f"  at the next {'start' if setting.file.read == START else 'HUP'}: {setting.pending}")
        if setting is not None and setting.trouble:
            print(f"  {visible(setting.trouble.encode('utf-8', 'surrogateescape'))}")


def _row(setting: Setting) -> tuple[str, ...]:
    file = setting.file
    return file.name, setting.value, plain(file.default), file.range or "-", setting.source, plain(file.what)
