"""The manual pages, each made of one source: a program's own --help, the registry of control files, and docs/."""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import click

from manual_pages.markdown import section
from manual_pages.mdoc import escape, literal, markdown, paragraph, words
from queue_admin.main import group as queuectl
from queue_report.main import group as queue_report
from queue_wire.control.control_file import HUP, ControlFile
from queue_wire.control.registry import FILES

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"
# Of the last change that readers should know of.
DATE = "November 23, 2026"

Page = tuple[str, int]  # Name and section.


class Part(NamedTuple):
    """A section of a page of docs/ and its title here; without a title it belongs to the description."""

    file: str
    heading: str
    title: str = ""


class Program(NamedTuple):
    """A program: what is behind its name, the parts of docs/ that tell more, pages to see, further exit codes."""

    section: int
    what: str
    parts: tuple[Part, ...] = ()
    see: tuple[Page, ...] = ()
    codes: Part | None = None


_QUEUECTL, _START, _SEND = ("queuectl", 8), ("queue-start", 8), ("queue-send", 8)
_CONTROL, _LOG, _LAYOUT = ("queue-control", 5), ("queue-log", 5), ("queue-layout", 5)
_ENQUEUE, _INJECT, _SENDMAIL = ("queue-enqueue", 8), ("queue-inject", 1), ("sendmail", 1)
_LOCAL, _REMOTE, _MAILDIRMAKE = ("queue-local", 8), ("queue-remote", 8), ("maildirmake", 1)
_SUITE = ("queue-suite", 7)
_IN_QMAIL = Part("local-delivery.md", "Programs", "PROGRAMS IN .QMAIL FILES")
_COUNTS = Part("monitoring.md", "Counts for a monitoring account", "COUNTS FOR A MONITORING ACCOUNT")
_FILTER = Part("sending.md", "A filter for all mail", "A FILTER FOR ALL MAIL")
_SIGNALS = Part("operating.md", "Signals", "SIGNALS")

PROGRAMS: dict[str, Program] = {
    "queue-inject": Program(
        1,
        "put a message with a header in the mail queue",
        (
            Part("sending.md", "queue-inject"),
            Part("sending.md", "Many messages at once", "MANY MESSAGES AT ONCE"),
            Part("design/injection.md", "Batches", "FORMATS OF BATCHES"),
            _FILTER,
        ),
        (_ENQUEUE, _SENDMAIL, _CONTROL),
    ),
    "queue-enqueue": Program(
        8,
        "put a message with a ready envelope in the mail queue",
        (Part("sending.md", "queue-enqueue"), _FILTER),
        (_INJECT, _LAYOUT),
        Part("design/injection.md", "Exit codes of queue-enqueue"),
    ),
    "sendmail": Program(
        1, "send mail, with the options of other sendmails", (Part("sending.md", "sendmail"),), (_INJECT, _QUEUECTL)
    ),
    "queue-pickup": Program(
        8, "take mail from maildrop", (Part("design/injection.md", "Maildrop", "MAILDROP"),), (_START, _LAYOUT)
    ),
    "queue-intake": Program(
        8,
        "take mail by QMTP and QMQP",
        (Part("receiving.md", "QMTP and QMQP"), Part("design/injection.md", "QMTP and QMQP", "PROTOCOLS AND LIMITS")),
        (_START, _CONTROL, _LAYOUT),
    ),
    "queue-smtpd": Program(
        8,
        "serve SMTP",
        (
            Part("smtp-server.md", ""),
            Part("smtp-server.md", "Run it", "START AND STOP"),
            Part("smtp-server.md", "Run it under tcpserver", "UNDER TCPSERVER"),
            Part("smtp-server.md", "sendmail -bs", "SENDMAIL -BS"),
            Part("smtp-server.md", "Who may send what to whom", "WHO MAY SEND WHAT TO WHOM"),
            Part("smtp-server.md", "What it accepts", "WHAT IT ACCEPTS"),
            Part("smtp-server.md", "Its log", "LOG"),
        ),
        (("queue-intake", 8), _CONTROL),
    ),
    "queue-todo": Program(
        8, "classify new mail", (Part("design/processes.md", "queue-todo"),), (_START, _CONTROL, _SEND)
    ),
    "queue-send": Program(
        8,
        "schedule deliveries",
        (_SIGNALS, Part("operating.md", "Start and stop", "START AND STOP"), Part("design/processes.md", "queue-send")),
        (_START, _CONTROL, _LOG, _QUEUECTL),
    ),
    "queue-remote": Program(
        8,
        "deliver mail by SMTP",
        (
            Part("design/smtp.md", ""),
            Part("design/smtp.md", "The daemon", "THE DAEMON"),
            Part("design/smtp.md", "Alone", "ALONE"),
        ),
        (_START, _CONTROL, ("queuectl-route", 8)),
    ),
    "queue-local": Program(
        8,
        "deliver mail on this host",
        (
            Part("local-delivery.md", ".qmail files", ".QMAIL FILES"),
            Part("local-delivery.md", "Aliases and catch-all addresses", "ALIASES AND CATCH-ALL ADDRESSES"),
            Part("local-delivery.md", "Virtual domains", "VIRTUAL DOMAINS"),
            Part("local-delivery.md", "Who has an address", "WHO HAS AN ADDRESS"),
            _IN_QMAIL,
            Part("local-delivery.md", "Limits", "LIMITS"),
        ),
        (_START, _CONTROL, ("preline", 1), ("forward", 1), _MAILDIRMAKE, ("queuectl-users", 8)),
    ),
    "queue-ondemand": Program(
        8,
        "keep mail for hosts that ask for it",
        (
            Part("on-demand.md", ""),
            Part("on-demand.md", "Set it up", "SETUP"),
            Part("on-demand.md", "What happens to the mail", "WHAT HAPPENS TO THE MAIL"),
            Part("on-demand.md", "How it is delivered", "HOW IT IS DELIVERED"),
            Part("on-demand.md", "Look at it, and change it", "ORDERS"),
            Part("on-demand.md", "ETRN", "ETRN"),
            Part("on-demand.md", "ATRN", "ATRN"),
            Part("design/on-demand.md", "Files", "WHAT IS STORED WHERE"),
        ),
        (_START, _CONTROL, _REMOTE, ("queuectl-flush", 8)),
    ),
    "queue-clean": Program(
        8, "remove finished messages", (Part("design/queue-on-disk.md", "Leftovers", "LEFTOVERS"),), (_START, _LAYOUT)
    ),
    "queue-start": Program(
        8,
        "start the daemons of the mail queue",
        (
            Part("operating.md", "Start and stop", "START AND STOP"),
            _SIGNALS,
            Part("install.md", "Start it under a supervisor", "SUPERVISORS"),
            Part("several-queues.md", "Set up", "SEVERAL QUEUES"),
            Part("design/processes.md", "Accounts", "ACCOUNTS"),
        ),
        (_SEND, _QUEUECTL, _CONTROL, _LOG),
    ),
    "qmail-qread": Program(8, "print the mail queue in the form of qmail's program", (_COUNTS,), (_QUEUECTL,)),
    "qmail-qstat": Program(8, "count the mail queue in the form of qmail's program", (_COUNTS,), (_QUEUECTL,)),
    "preline": Program(1, "put lines before a message for a program", (_IN_QMAIL,), (_LOCAL, ("condredirect", 1))),
    "forward": Program(1, "forward a message to addresses", (_IN_QMAIL,), (_LOCAL, ("condredirect", 1))),
    "condredirect": Program(
        1, "forward a message where a program says so", (_IN_QMAIL,), (_LOCAL, ("except", 1), ("forward", 1))
    ),
    "bouncesaying": Program(1, "bounce a message with a text", (_IN_QMAIL,), (_LOCAL, ("except", 1))),
    "except": Program(1, "turn the exit code of a program around", (_IN_QMAIL,), (_LOCAL, ("condredirect", 1))),
    "maildirmake": Program(
        1, "make a maildir", (Part("local-delivery.md", ".qmail files", ".QMAIL FILES"),), (_LOCAL,)
    ),
}
# Those with subcommands: each of these has a page of its own.
GROUPS: dict[str, tuple[int, str, click.Group, tuple[Page, ...]]] = {
    "queuectl": (8, "the administrator's command of the mail queue", queuectl, (_SEND, _CONTROL, _LOG, _LAYOUT)),
    "queue-report": (1, "read logs of mail queues into tables, and report on them", queue_report, (_LOG, _QUEUECTL)),
}
# What docs/ tell of single subcommands.
_CHANGE = Part("operating.md", "Change messages", "CHANGING MESSAGES")
COMMAND_PARTS: dict[str, tuple[Part, ...]] = {
    "queuectl-init": (
        Part("install.md", "Make a home", "THE HOME"),
        Part("install.md", "Start it under a supervisor", "SUPERVISORS"),
    ),
    "queuectl-config": (Part("configure.md", "", "CONTROL FILES"),),
    "queuectl-list": (Part("operating.md", "Look at the queue", "LOOKING AT THE QUEUE"), _CHANGE),
    **{f"queuectl-{name}": (_CHANGE,) for name in ("hold", "release", "flush", "delete", "bounce", "requeue")},
    "queuectl-maildrop": (Part("operating.md", "Hold what comes", "HOLDING WHAT COMES"),),
    "queuectl-stored": (Part("on-demand.md", "Look at it, and change it", "STORED MAIL"),),
    "queuectl-log": (Part("operating.md", "What became of a message?", "WHAT BECAME OF A MESSAGE"),),
    "queuectl-show": (Part("operating.md", "Why does a message wait?", "WHY DOES A MESSAGE WAIT"),),
    "queuectl-destinations": (Part("operating.md", "Why does a message wait?", "WHY DOES A MESSAGE WAIT"),),
    "queuectl-stat": (Part("operating.md", "Watch the queue", "WATCHING THE QUEUE"),),
    "queuectl-route": (
        Part("routing-and-tls.md", "Where does mail for an address go?", "WHERE DOES MAIL FOR AN ADDRESS GO"),
    ),
    "queuectl-users": (Part("local-delivery.md", "Who has an address", "WHO HAS AN ADDRESS"),),
    "queuectl-shape": (Part("monitoring.md", "The shape of the queue", "THE SHAPE OF THE QUEUE"),),
    "queuectl-top": (Part("monitoring.md", "What has the most messages", "WHAT HAS THE MOST MESSAGES"),),
    "queuectl-metrics": (Part("monitoring.md", "Metrics", "METRICS"),),
    "queuectl-web": (Part("monitoring.md", "The status page", "THE STATUS PAGE"),),
    "queuectl-check": (Part("backup.md", "Check", "FINDINGS"),),
    "queuectl-repair": (Part("backup.md", "Repair", "WHAT IT DOES"), Part("backup.md", "Restore", "AFTER A RESTORE")),
    "queuectl-copy": (
        Part("backup.md", "Back up", "BACKUPS"),
        Part("backup.md", "Move to another machine or disk", "MOVES"),
    ),
    "queuectl-adopt": (Part("from-qmail.md", "Take the home over", "TAKING A HOME OVER"),),
    "queuectl-completion": (Part("install.md", "Completion in the shell", "COMPLETION IN THE SHELL"),),
    "queue-report-watch": (Part("watch.md", "", "TABLES THAT ARE FRESH"),),
}  # fmt: skip
_SHAPES = {
    "number": "A number.",
    "size": "A size in bytes, with or without K, M, G or T behind it.",
    "line": "The first line counts.",
    "list": "An entry a line.",
    "map": "A key, a colon and a value a line.",
    "table": "Lines of a form of its own.",
    "text": "The text counts as a whole.",
}
_READ = {
    HUP: "on HUP to queue-send",
    "second": "within a second",
    "message": "for each message that is injected",
    "delivery": "for each local delivery",
    "forward": "for each message that is forwarded",
    "TERM": "when queue-send gets TERM",
    "smtpd": "on HUP to queue-smtpd",
    "smtpd start": "when queue-smtpd starts",
    "AUTH": "when the next client of queue-smtpd authenticates",
    "start": "when queue-start starts the suite",
}
_CONTROL_PARTS = (
    Part("configure.md", "Errors in control files", "ERRORS IN CONTROL FILES"),
    Part("configure.md", "Names of this host", "NAMES OF THIS HOST"),
    Part("routing-and-tls.md", "Relays", "RELAYS"),
    Part("routing-and-tls.md", "Addresses, names and times", "ADDRESSES, NAMES AND TIMES"),
    Part("routing-and-tls.md", "A relay with a password", "A RELAY WITH A PASSWORD"),
    Part("routing-and-tls.md", "DKIM", "DKIM"),
    Part("routing-and-tls.md", "ARC", "ARC"),
    Part("routing-and-tls.md", "TLS", "TLS"),
    Part("routing-and-tls.md", "A program in the place of SMTP delivery", "A PROGRAM IN THE PLACE OF SMTP DELIVERY"),
    Part("operating.md", "Retries and lifetime", "RETRIES AND LIFETIME"),
    Part("operating.md", "Bounces and delay notices", "BOUNCES AND DELAY NOTICES"),
    Part("operating.md", "Concurrency", "CONCURRENCY"),
    Part("operating.md", "Delivery before classification", "DELIVERY BEFORE CLASSIFICATION"),
    Part("operating.md", "Destinations", "DESTINATIONS"),
    Part("operating.md", "Limits for one destination", "LIMITS FOR ONE DESTINATION"),
    Part("operating.md", "In-flow control", "IN-FLOW CONTROL"),
    Part("local-delivery.md", "Limits", "LIMITS OF LOCAL DELIVERIES"),
)


def all_pages() -> dict[str, str]:
    """Return the pages by their paths, such as man8/queuectl.8."""
    pages = {}
    for name, program_ in PROGRAMS.items():
        pages[_path((name, program_.section))] = _program_page(name, program_)
    for name, (number, what, group, see) in GROUPS.items():
        pages[_path((name, number))] = _group_page(name, number, what, group, see)
        for command in _commands(group):
            pages[_path((f"{name}-{command.name}", number))] = _command_page(name, number, command)
    pages[_path(_CONTROL)] = _control_page()
    pages[_path(_LOG)] = _document(
        _LOG,
        "log lines of the mail queue",
        [*_parts((Part("logs.md", ""), Part("logs.md", "Alerts and warnings", "ALERTS AND WARNINGS"),
                  Part("logs.md", "A parked message", "A PARKED MESSAGE"),
                  Part("logs.md", "Start and stop", "START AND STOP")))],
        (_SEND, ("queuectl-log", 8), ("queue-report", 1)),
    )  # fmt: skip
    pages[_path(_LAYOUT)] = _document(
        _LAYOUT,
        "the mail queue on disk",
        [*_parts((Part("design/queue-on-disk.md", ""), Part("design/queue-on-disk.md", "The home", "THE HOME"),
                  Part("design/queue-on-disk.md", "States", "STATES"),
                  Part("design/queue-on-disk.md", "Last results", "LAST RESULTS"),
                  Part("design/queue-on-disk.md", "Leftovers", "LEFTOVERS")))],
        (_QUEUECTL, ("queuectl-check", 8), ("queue-clean", 8)),
    )  # fmt: skip
    pages[_path(_SUITE)] = _document(
        _SUITE,
        "a mail queue of small cooperating processes",
        _parts((Part("../README.md", ""),)),
        (_INJECT, _MAILDIRMAKE, ("queue-report", 1), _SENDMAIL, _CONTROL, _LAYOUT, _LOG, _LOCAL, _REMOTE, _SEND,
         _START, _QUEUECTL),
    )  # fmt: skip
    return pages


def help_of(name: str) -> str:
    """Return what a program of bin/ prints at --help."""
    words = [sys.executable, "-I", str(TOP / "bin" / name), "--help"]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def _path(page: Page) -> str:
    name, number = page
    return f"man{number}/{name}.{number}"


def _document(page: Page, what: str, body: Iterable[str], see: tuple[Page, ...]) -> str:
    """Return a page. The body is what follows its name; text before its first section is the description."""
    name, number = page
    lines = [
        '.\\" Written by man/generate; edit its sources instead.',
        f".Dd {DATE}",
        f".Dt {name.upper()} {number}",
        ".Os",
        ".Sh NAME",
        f".Nm {name}",
        f".Nd {what}",
        *body,
        ".Sh SEE ALSO",
    ]
    pages = sorted({*see, _SUITE} - {page}, key=lambda other: (other[1], other[0]))
    lines += [f".Xr {other} {number}{' ,' if other != pages[-1][0] else ''}" for other, number in pages]
    # No paragraph begins before a list, a block or a section, nor behind a heading.
    around = zip(["", *lines], lines, [*lines[1:], ".Sh"], strict=False)
    kept = [
        line
        for before, line, after in around
        if line != ".Pp" or not (_ENDS_PARAGRAPH.match(after) or before.startswith(".S"))
    ]
    return "\n".join(kept) + "\n"


_ENDS_PARAGRAPH = re.compile(r"\.(Bd|Bl|Sh|Ss|El|Pp|It)")


def _parts(parts: Iterable[Part], described: bool = False) -> list[str]:
    """Return the parts of docs/; those without a title continue the description, whose heading may be there."""
    body = [] if described else [".Sh DESCRIPTION"]
    named = []
    for part in parts:
        text = markdown(section(_read(part.file), part.heading))
        if part.title:
            named += [f".Sh {escape(part.title)}", *text]
        else:
            body += [".Pp", *text]
    return body + named


def _read(file: str) -> str:
    return (DOCS / file).read_text(encoding="utf-8")


def _program_page(name: str, program_: Program) -> str:
    """Return a program's page: its --help, then what docs/ tell."""
    lines = help_of(name).splitlines()
    uses: list[str] = []
    options: list[tuple[str, str]] = []
    while lines and lines[0].startswith(("usage: ", "       ")):
        uses.append(lines.pop(0)[7:])
    joined = " ".join(line for line in lines if not line.startswith("  "))
    joined, _, codes = joined.partition("Exit code 0: ")
    for line in lines:
        if line.startswith("  "):
            spec, _, meaning = line.strip().partition("  ") if "  " in line.strip() else line.strip().partition(": ")
            options.append((spec, meaning.strip()))
    body = [".Sh SYNOPSIS"]
    for use in uses:
        body += [".Nm", *([f".{words(use.removeprefix(name).strip())}"] if use != name else [])]
    body += [".Sh DESCRIPTION", *paragraph(_marked(joined))]
    if options:
        body += [".Pp", "The options are as follows:", ".Bl -tag -width Ds"]
        for spec, meaning in options:
            body += [f".It {words(spec)}", *paragraph(_marked(meaning))]
        body.append(".El")
    body += _parts(program_.parts, described=True) if program_.parts else []
    if "[--home HOME]" in uses[0]:
        body += [".Sh ENVIRONMENT", *_HOME]
    body += [".Sh EXIT STATUS", *_exit_codes(name, codes, program_)]
    return _document((name, program_.section), program_.what, body, program_.see)


_HOME = [
    ".Bl -tag -width Ds",
    ".It Ev QUEUE_HOME",
    "The home of the queue, if",
    ".Fl \\-home",
    "does not name it; else it is",
    ".Pa /var/queue .",
    ".El",
]


def _marked(text: str) -> str:
    """Return the plain text of a program as Markdown: its options are code, also alone."""
    found = re.compile(r"`[^`]+`|(?<![\w-])(-{1,2}[A-Za-z][\w-]*)")
    return found.sub(lambda match: f"`{match[1]}`" if match[1] else match[0], text)


def _exit_codes(name: str, codes: str, program_: Program) -> list[str]:
    if program_.codes:
        return markdown(section(_read(program_.codes.file), program_.codes.heading))
    if codes:
        rows = re.findall(r"(\d+(?: to \d+)?|any other|others): ([^;.]+)", f"0: {codes}")
        items = [line for code, when in rows for line in (f".It {code}", f"{escape(when)}.")]
        return [".Bl -tag -width Ds -compact", *items, ".El"]
    if program_.section == 8:
        return ["0 at the end, 100 for wrong usage, 111 for trouble that may pass."]
    return paragraph(
        "0 goes on with the next line of the `.qmail` file, 99 ends the file with success, 100 fails, 111 defers."
    )


def _commands(group: click.Group) -> list[click.Command]:
    return [group.commands[name] for name in sorted(group.commands)]


def _group_page(name: str, number: int, what: str, group: click.Group, see: tuple[Page, ...]) -> str:
    body = [".Sh SYNOPSIS", ".Nm", ".Op Ar options", ".Ar command", ".Op Ar argument ...", ".Sh DESCRIPTION"]
    text, examples = _help_text(group)
    body += [*text, ".Pp", "The options are as follows:", *_options(group), ".Pp", "The commands are as follows:"]
    body += [".Bl -tag -width Ds"]
    for command in _commands(group):
        body += [f".It Xr {name}-{command.name} {number}", *paragraph(_first_sentence(command))]
    body.append(".El")
    if name == "queuectl":
        body += [".Sh ENVIRONMENT", *_HOME]
    body += [".Sh EXIT STATUS", *_GROUP_CODES, *examples]
    return _document((name, number), what, body, see)


_GROUP_CODES = [
    ".Bl -tag -width Ds -compact",
    *(".It 0", "Done."),
    *(".It 1", "Nothing matched, or there is a finding."),
    *(".It 100", "Wrong usage, or trouble that does not pass."),
    *(".It 111", "Trouble that may pass."),
    ".El",
]


def _command_page(name: str, number: int, command: click.Command) -> str:
    """Return the page of a subcommand; its own subcommands are sections of it."""
    full = f"{name}-{command.name}"
    body = [".Sh SYNOPSIS", *_synopsis(f"{name} {command.name}", command)]
    below = _commands(command) if isinstance(command, click.Group) else []
    for sub in below:
        body += [*_synopsis(f"{name} {command.name} {sub.name}", sub)]
    text, examples = _help_text(command)
    body += [".Sh DESCRIPTION", *text, ".Pp", "The options are as follows:", *_options(command)]
    for sub in below:
        more, shown = _help_text(sub)
        body += [f".Ss {name} {command.name} {sub.name}", *more, ".Pp", "The options are as follows:", *_options(sub)]
        examples += shown[1:] if examples else shown
    parts = COMMAND_PARTS.get(full, ())
    body += _parts(parts, described=True)
    body += [".Sh EXIT STATUS", *_GROUP_CODES, *examples]
    first = _first_sentence(command).rstrip(".")
    return _document((full, number), first[0].lower() + first[1:], body, ((name, number),))


def _synopsis(name: str, command: click.Command) -> list[str]:
    pieces = command.collect_usage_pieces(_context(command))
    return [f'.Nm "{name}"', *([f".{words(' '.join(pieces))}"] if pieces else [])]


def _context(command: click.Command) -> click.Context:
    """Return what click needs to tell of a command; its first one decides how --help may be asked for."""
    return click.Context(command, help_option_names=["-h", "--help"])


def _first_sentence(command: click.Command) -> str:
    text = " ".join(_cleaned(command).partition("\n\n")[0].split())
    return re.split(r"(?<=\.) ", text)[0].rstrip(".") + "."


def _cleaned(command: click.Command) -> str:
    """Return the text of a command's --help, without its indent."""
    return inspect.cleandoc(command.help or "")


def _help_text(command: click.Command) -> tuple[list[str], list[str]]:
    """Return the description and the section of examples of a click command."""
    text: list[str] = []
    examples: list[str] = []
    for piece in re.split(r"\n\s*\n", _cleaned(command)):
        if piece.lstrip().startswith("\b"):
            lines = [line for line in piece.split("\n") if line.strip() != "\b"]
            if lines[0].startswith("Example"):
                examples += [".Sh EXAMPLES"] if not examples else []
                examples += literal(line.removeprefix("  ") for line in lines[1:])
            else:
                text += [*([".Pp"] if text else []), *literal(lines)]
        else:
            text += [*([".Pp"] if text else []), *paragraph(_marked(" ".join(piece.split())))]
    return text, examples


def _options(command: click.Command) -> list[str]:
    """Return the list of a command's options, as its --help has them."""
    context = _context(command)
    found = [".Bl -tag -width Ds"]
    for parameter in command.get_params(context):
        record = None if isinstance(parameter, click.Argument) else parameter.get_help_record(context)
        if record is None:
            continue
        spec, meaning = record
        found += [f".It {_option_words(spec)}", *paragraph(_marked(" ".join(meaning.split())))]
    return [*found, ".El"]


def _option_words(spec: str) -> str:
    """Return what click writes for an option: `-f, --format [text|json]`."""
    names, bracket, choices = spec.partition(" [")
    return words(names) + (f" Ar {escape(choices.removesuffix(']'), code=True)}" if bracket else "")


def _control_page() -> str:
    body = [".Sh DESCRIPTION", *markdown(section(_read("configure.md"), "")), ".Pp"]
    body += ["The control files are:", ".Bl -tag -width Ds"]
    for file in FILES:
        body += [f".It Pa {file.name}", *_control_file(file)]
    body.append(".El")
    body += [".Pp", *paragraph(_INJECTORS)]
    body += _parts(_CONTROL_PARTS, described=True)
    return _document(
        _CONTROL, "control files of the mail queue", body, (("queuectl-config", 8), _SEND, _LOCAL, _REMOTE, _INJECT)
    )


_INJECTORS = (
    "Injectors are `queue-inject`, `sendmail` and `queue-inject --batch`; for `queueminfree` also `queue-enqueue`. The "
    "daemons that use `queueminfree` are queue-pickup, queue-intake and queue-todo."
)


def _control_file(file: ControlFile[Any]) -> list[str]:
    """Return what the registry tells of a control file."""
    read = " and ".join(_READ[when] for when in file.read.split(", "))
    # Each sentence from the registry, and none twice.
    return [
        *paragraph(f"{file.what[0].upper()}{file.what[1:]}. {_SHAPES[file.shape]}"),
        *paragraph(f"Default: {file.default}." + (f" Range: {file.range}." if file.range else "")),
        *paragraph(f"Read by {', '.join(file.readers)}, {read}."),
    ]


def write_pages(to: str) -> None:
    """Write all pages below a directory."""
    for path, text in all_pages().items():
        file = Path(to, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
