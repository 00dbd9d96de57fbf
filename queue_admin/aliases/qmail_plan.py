"""The .qmail files in alias/ that an alias file means, and what has to change there. Pure.

`NAME: targets` becomes `.qmail-NAME`. `owner-LIST`, where there is a LIST, becomes `.qmail-LIST-owner` too, whose
existence makes `LIST-owner` the sender of what the list forwards. Each file begins with a line that says whose it is;
files without it are never changed.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from queue_admin.aliases.alias_file import INCLUDE, PATH, PROGRAM, Alias, AliasTarget, Fault, parse_include
from queue_admin.printable import visible
from queue_wire.dotqmail import safe_extension

PREFIX = b".qmail-"
_FILE_MAX = 1 << 20  # queue-local reads no more of a .qmail file.
_NAME_MAX = 255
_OWNER = b"owner-"
_CATCH_ALL = b"default"
_MARK = b"# queuectl import-aliases "
_MARK_END = b": a later run replaces this file; without this line it is yours\n"
# A command of a program and plain words; anything else needs a shell of its own.
_PLAIN = re.compile(rb"/[\w.+/-]+(?: +[\w.,:@%+/-]+)*")


class QmailPlan(NamedTuple):
    """{file name: contents} of what is to be in alias/, and the entries that cannot be expressed."""

    files: dict[bytes, bytes]
    faults: list[Fault]


class AliasChanges(NamedTuple):
    """Files to write, {name: contents}; names to remove; names that a person has written; the number of right ones."""

    write: dict[bytes, bytes]
    remove: list[bytes]
    conflicts: list[bytes]
    unchanged: int


def mark(source: bytes) -> bytes:
    """Return the first line of each file that is made from the alias file `source`, a path."""
    return _MARK + visible(source).encode() + _MARK_END


def is_ours(data: bytes, source: bytes) -> bool:
    """Return whether a file was made from this source, and not taken over by a person since."""
    return data.startswith(mark(source))


def includes(aliases: Iterable[Alias]) -> list[bytes]:
    """Return the paths of all included files, each once."""
    found = [target.argument for alias in aliases for target in alias.targets if target.kind == INCLUDE]
    return list(dict.fromkeys(found))


def plan_files(aliases: list[Alias], included: Mapping[bytes, bytes | str], source: bytes) -> QmailPlan:
    """Return the files for the entries of one alias file.

    `included` has for each path of `includes` its contents, or why it cannot be read. An entry with a target that
    cannot be expressed makes no file: a part of the mail of an alias must not be lost.
    """
    plan = QmailPlan({}, [])
    made_by: dict[bytes, Alias] = {}
    for alias in aliases:
        file = file_name(alias.name)
        why = _why_no_name(alias, file)
        if not why and file in made_by:
            why = f"{visible(made_by[file].name)} in line {made_by[file].line} has the same file, {visible(file)}"
        lines: list[bytes] = []
        if not why:
            lines, why = _lines(alias, included)
        data = mark(source) + b"".join(line + b"\n" for line in lines)
        if not why and len(data) > _FILE_MAX:
            why = f"its file would have over {_FILE_MAX} bytes, more than queue-local reads"
        if why:
            plan.faults.append(Fault(alias.line, alias.name, why))
            continue
        made_by[file] = alias
        plan.files[file] = data
    _add_owners(aliases, plan)
    return plan


def file_name(name: bytes) -> bytes:
    """Return the name of the .qmail file in alias/ for a local part."""
    return PREFIX + safe_extension(name)


def own_files(name: bytes) -> list[bytes]:
    """Return the names of all files that an alias may have."""
    names = [file_name(name)]
    if name.startswith(_OWNER):
        names.append(file_name(name[len(_OWNER) :] + b"-owner"))
    return names


def _add_owners(aliases: list[Alias], plan: QmailPlan) -> None:
    for alias in aliases:
        made = own_files(alias.name)
        if len(made) > 1 and made[0] in plan.files and file_name(alias.name[len(_OWNER) :]) in plan.files:
            plan.files.setdefault(made[1], plan.files[made[0]])


def _why_no_name(alias: Alias, file: bytes) -> str:
    """Return why an alias can have no file, empty if it can."""
    if len(file) > _NAME_MAX:
        return f"the name of its file would have over {_NAME_MAX} bytes"
    if alias.name == _CATCH_ALL or alias.name.endswith(b"-" + _CATCH_ALL):
        return f"{visible(file)} would take mail for all addresses that begin so; write it by hand if that is meant"
    return ""


def _lines(alias: Alias, included: Mapping[bytes, bytes | str]) -> tuple[list[bytes], str]:
    """Return the lines of a .qmail file, and why it cannot be made, empty if it can."""
    lines: list[bytes] = []
    for target in alias.targets:
        if target.kind != INCLUDE:
            lines.append(_line(target))
            continue
        path = visible(target.argument)
        found = included[target.argument]
        if isinstance(found, str):
            return [], f"unable to read {path}: {found}"
        members, wrong = parse_include(found)
        if wrong:
            return [], f"{path} line {wrong[0][0]}: {wrong[0][1]}"
        lines += [_line(member) for member in members]
    lines = list(dict.fromkeys(lines))
    # An address on this alias would come back to the same file.
    if b"&" + alias.name in [line.lower() for line in lines]:
        return [], "it forwards to itself, and there is no account of that name"
    if any(line.endswith((b" ", b"\t")) for line in lines):
        return [], "a path that ends with white space, which a .qmail file cannot have"
    return lines or [b"# No member."], ""


def _line(target: AliasTarget) -> bytes:
    """Return the line of a .qmail file for a target that is no INCLUDE."""
    if target.kind == PATH:
        return target.argument
    if target.kind == PROGRAM:
        return b"|preline " + _shell_words(target.argument)
    return b"&" + target.argument


def _shell_words(command: bytes) -> bytes:
    """Return a command as words for preline, which gives the program a From_ line as sendmail does, but is no shell."""
    if _PLAIN.fullmatch(command):
        return command
    return b"/bin/sh -c " + shlex.quote(command.decode("latin-1")).encode("latin-1")


def compare(
    plan: QmailPlan, found: Mapping[bytes, bytes | None], source: bytes, faults: Iterable[Fault]
) -> AliasChanges:
    """Return what to change in alias/.

    `found` has {name: contents} of its .qmail files: all that the plan names, and all that are ours; the contents are
    None if it is no regular file. `faults` are all entries that cannot be used: the files that they may have are not
    removed, and no file at all if the name of one is not known.
    """
    faults = list(faults)
    left = {name for fault in faults for name in own_files(fault.name)}
    keep_all = any(not fault.name for fault in faults)
    changes = AliasChanges({}, [], [], 0)
    unchanged = 0
    for name, data in plan.files.items():
        old = found.get(name)
        if name in found and (old is None or not is_ours(old, source)):
            changes.conflicts.append(name)
        elif old == data:
            unchanged += 1
        else:
            changes.write[name] = data
    if not keep_all:
        changes.remove.extend(
            name
            for name, data in sorted(found.items())
            if data is not None and is_ours(data, source) and name not in plan.files and name not in left
        )
    return changes._replace(unchanged=unchanged)
