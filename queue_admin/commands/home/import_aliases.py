"""queuectl import-aliases: makes .qmail files in alias/ from sendmail's or Postfix's alias file."""

import difflib
import os

import click

from queue_admin.aliases.alias_directory import (
    addresses_of_nobody,
    change_aliases,
    divide_by_account,
    locked_aliases,
    read_aliases,
    read_includes,
)
from queue_admin.aliases.alias_file import Fault, parse_aliases
from queue_admin.aliases.qmail_plan import AliasChanges, compare, plan_files
from queue_admin.home.chosen import home_of
from queue_admin.home.tree import unable_to
from queue_admin.printable import visible
from queue_admin.progress import Progress
from queue_base.control_files import read_rules
from queue_base.errors import complain
from queue_base.home import Home
from queue_base.safe_open import read_given
from queue_base.shell_completion import complete_file
from queue_wire.control.rewrite import LOCAL, rewrite

INCOMPLETE = 1
PROGRAM = "queuectl"


@click.command("import-aliases")
@click.argument("file", metavar="FILE", shell_complete=complete_file)
@click.option("--dry-run", is_flag=True, help="Show what would change, as a diff; change nothing.")
@click.pass_context
def command(context: click.Context, file: str, dry_run: bool) -> None:
    """Make .qmail files in alias/ from an alias file of sendmail or Postfix, aliases(5).

    Run it again after each change of FILE, or of a file that it includes: it replaces and removes the files that it has
    made from FILE, and no others. A file that a person has written is never changed, and no longer one from which a
    person has removed the first line.

    What cannot be expressed is named with its line, and the other entries are done.

    Exit 0: alias/ is as FILE says. 1: something was left out, and is named on stderr. 111: try again.

    \b
    Examples:
      queuectl import-aliases --dry-run /etc/aliases
      queuectl import-aliases /etc/aliases
    """
    home = home_of(context)
    source = os.path.abspath(file)
    name = os.fsencode(source)
    with unable_to("read", source):
        parsed = parse_aliases(read_given(source))
    aliases, taken = divide_by_account(home, parsed.aliases)
    plan = plan_files(aliases, read_includes(aliases), name)
    faults = sorted([*parsed.faults, *taken, *plan.faults])
    with locked_aliases(home) as tree:
        found = read_aliases(tree, plan.files, name)
        changes = compare(plan, found, name, faults)
        if dry_run:
            for line in diff(changes, found):
                print(line)
        else:
            with Progress(len(changes.write), "files", "written") as progress:
                change_aliases(tree, changes, progress.step)
    would = "would be " if dry_run else ""
    counts = f"{len(changes.write)} files {would}written, {len(changes.remove)} removed, {changes.unchanged} unchanged"
    print(f"{visible(name)}: {counts}")
    report(home, name, faults, changes)
    for wanted in addresses_of_nobody(home, plan.files):
        complain(PROGRAM, f"warning: nobody gets mail for {visible(wanted)}; give it an alias")
    warn_of_names(home)
    context.exit(INCOMPLETE if faults or changes.conflicts else 0)


def diff(changes: AliasChanges, found: dict[bytes, bytes | None]) -> list[str]:
    """Return the changes as a unified diff."""
    lines: list[str] = []
    for name in sorted([*changes.write, *changes.remove]):
        shown = visible(b"alias/" + name)
        old, new = _shown_lines(found.get(name)), _shown_lines(changes.write.get(name))
        before, after = (shown if name in found else "/dev/null"), (shown if name in changes.write else "/dev/null")
        lines += difflib.unified_diff(old, new, before, after, lineterm="")
    return lines


def _shown_lines(data: bytes | None) -> list[str]:
    return [] if data is None else [visible(line) for line in data.removesuffix(b"\n").split(b"\n")]


def report(home: Home, source: bytes, faults: list[Fault], changes: AliasChanges) -> None:
    """Name on stderr what was left out."""
    for fault in faults:
        name = f"{visible(fault.name)}: " if fault.name else ""
        complain(PROGRAM, f"{visible(source)} line {fault.line}: {name}{fault.why}; left out")
    for conflict in changes.conflicts:
        path = visible(os.fsencode(home.alias) + b"/" + conflict)
        complain(PROGRAM, f"{path} was not made by import-aliases from {visible(source)}; left as it is")


def warn_of_names(home: Home) -> None:
    """Warn if an address without a domain is not local, since most targets of aliases are such."""
    if rewrite(b"postmaster", read_rules(home))[0] is not LOCAL:
        complain(PROGRAM, "warning: addresses without a domain are not local: control/envnoathost is not in locals")
