"""The rules of dot-qmail(5), qmail-local(8) and qmail-command(8), one row each: files in a home, and what they do.

The user is joe. `extension` is the part after `joe-`, None for joe@ alone. `files` are in his home; `did` is the
report; `mail` is how many messages each maildir and mbox has then; a file named there without a `.` is another
trace, with its bytes. `forward` is the sender and the recipients of the copy. The maildirs Maildir/ and
Default/ are there.
"""

from collections.abc import Mapping
from typing import NamedTuple

SENDER = b"from@far.example"
DEFAULT = b"./Default/\n"
Files = Mapping[str, bytes | tuple[bytes, int]]
BLANK = b"ZUh-oh: first line of .qmail file is blank. (#4.2.1)\n"
NONE = b"DSorry, no mailbox here by that name. (#5.1.1)\n"
XFILE = b"ZUh-oh: .qmail has file delivery but has x bit set. (#4.7.0)\n"
WRITABLE = b"ZUh-oh: .qmail file is writable. (#4.7.0)\n"
XPROG = b"ZUh-oh: .qmail has prog delivery but has x bit set. (#4.7.0)\n"
CODE = b"Program ended with exit code %d. (#%d.3.0)\n"


class Rule(NamedTuple):
    """A row; `rule` names it, in the words of the manual where that is possible."""

    rule: str
    files: Files
    did: bytes
    mail: Mapping[str, int | bytes] = {}
    forward: tuple[bytes, list[bytes]] | None = None
    extension: bytes | None = None
    sender: bytes = SENDER
    default: bytes = DEFAULT
    mode: int = 0o755


def one(lines: bytes, mode: int = 0o644) -> Files:
    """Return a home whose .qmail has these lines."""
    return {".qmail": (lines, mode)}


KINDS = [
    Rule("a comment is ignored", one(b"# x\n#|touch ran\n"), b"Kdid 0+0+0\n", {"ran": 0}),
    Rule("a program is what follows the bar", one(b"|echo $((1+1)) >ran\n"), b"Kdid 0+0+1\n", {"ran": b"2\n"}),
    Rule("a program reads the message alone", one(b"|cat >ran\n"), b"Kdid 0+0+1\n", {"ran": b"Subject: x\n\nbody\n"}),
    Rule(
        "each program reads it from its start",
        one(b"|read a; echo $a >ran\n|read b; echo $b >>ran\n"),
        b"Kdid 0+0+2\n",
        {"ran": b"Subject: x\nSubject: x\n"},
    ),
    Rule("a forward follows an ampersand", one(b"&a@b.c\n"), b"Kdid 0+1+0\n", {}, (SENDER, [b"a@b.c"])),
    Rule("its ampersand may be left out", one(b"a@b.c\n1@b.c\n"), b"Kdid 0+2+0\n", {}, (SENDER, [b"a@b.c", b"1@b.c"])),
    Rule("an mbox begins with a dot", one(b"./box\n./box\n"), b"Kdid 2+0+0\n", {"./box": 2}),
    Rule("an mbox's name is the whole line", one(b"./a box\n"), b"Kdid 1+0+0\n", {"./a box": 1}),
    Rule("an mbox begins with a slash", one(b"/dev/null\n"), b"Kdid 1+0+0\n"),
    Rule("a maildir ends with a slash", one(b"./Maildir/\n"), b"Kdid 1+0+0\n", {"./Maildir/": 1}),
    Rule(
        "instructions are followed in turn",
        one(b"./Maildir/\n|ls Maildir/new | wc -l >ran; ls box >>ran 2>&-; true\n./box\n"),
        b"Kdid 2+0+1\n",
        {"ran": b"1\n", "./box": 1, "./Maildir/": 1},
    ),
    Rule("a missing maildir defers", one(b"./No/\n"), b"ZUnable to chdir to maildir. (#4.2.1)\n"),
    Rule("a directory is no mbox", one(b"./Maildir\n"), b"ZUnable to open ./Maildir: is a directory. (#4.2.1)\n"),
]

LINES = [
    Rule(
        "spaces and tabs may end a line",
        one(b"./box \t \n&a@b.c\t\n"),
        b"Kdid 1+1+0\n",
        {"./box": 1},
        (SENDER, [b"a@b.c"]),
    ),
    Rule("the last line needs no newline", one(b"./box"), b"Kdid 1+0+0\n", {"./box": 1}),
    Rule("blank lines are allowed", one(b"./box\n\n \n./box\n"), b"Kdid 2+0+0\n", {"./box": 2}),
    Rule("but not as the first", one(b"\n./box\n"), BLANK, {"./box": 0}),
    Rule("nor of spaces", one(b" \t\n./box\n"), BLANK, {"./box": 0}),
    Rule("an unknown plus line is ignored", one(b"+x\n./box\n"), b"Kdid 1+0+0\n", {"./box": 1}),
    Rule("+list allows forwards", one(b"+list\n&a@b.c\n"), b"Kdid 0+1+0\n", {}, (SENDER, [b"a@b.c"])),
    Rule("+list allows no file after it", one(b"./box\n+list\n./box\n"), XFILE, {"./box": 0}),
    Rule("+list allows no program after it", one(b"+list\n|touch ran\n"), XPROG, {"ran": 0}),
]

FILES = [
    Rule("no .qmail is the default delivery", {}, b"Kdid 1+0+0\n", {"./Default/": 1}),
    Rule("an empty .qmail is the default delivery", one(b""), b"Kdid 1+0+0\n", {"./Default/": 1}),
    Rule("even if it is executable", one(b"", 0o755), b"Kdid 1+0+0\n", {"./Default/": 1}),
    Rule("a .qmail of comments is no delivery", one(b"#\n"), b"Kdid 0+0+0\n", {"./Default/": 0}),
    Rule(
        "the default may have any lines",
        {},
        b"Kdid 1+1+1\n",
        {"./box": 1, "ran": b""},
        (SENDER, [b"a@b.c"]),
        default=b"#\n./box\n|touch ran\n&a@b.c\n",
    ),
    Rule("the default may not begin blank", {}, BLANK, default=b"\n./box\n"),
    Rule("the x bit allows forwards", one(b"&a@b.c\n", 0o744), b"Kdid 0+1+0\n", {}, (SENDER, [b"a@b.c"])),
    Rule("the x bit allows no maildir", one(b"./Maildir/\n", 0o744), XFILE, {"./Maildir/": 0}),
    Rule("the x bit allows no mbox", one(b"&a@b.c\n./box\n", 0o744), XFILE, {"./box": 0}),
    Rule("the x bit allows no program", one(b"|touch ran\n", 0o744), XPROG, {"ran": 0}),
    Rule("only the owner's x bit counts", one(b"./box\n", 0o611), b"Kdid 1+0+0\n", {"./box": 1}),
    Rule("a .qmail that others may write defers", one(b"./box\n", 0o646), WRITABLE),
    Rule("and one that the group may", one(b"./box\n", 0o664), WRITABLE),
    Rule("a home that the group may write defers", {}, b"ZUh-oh: home directory is writable. (#4.7.0)\n", mode=0o775),
    Rule(
        "a sticky home defers",
        {},
        b"ZHome directory is sticky: user is editing his .qmail file. (#4.2.1)\n",
        mode=0o1755,
    ),
]

EXTENSIONS = [
    Rule(".qmail-ext is for its address", {".qmail-x": b"./box\n"}, b"Kdid 1+0+0\n", {"./box": 1}, extension=b"x"),
    Rule("and no other", {".qmail-x": b"./box\n", ".qmail": b"./box\n"}, NONE, {"./box": 0}, extension=b"y"),
    Rule("nor for the user", {".qmail-default": b"./box\n"}, b"Kdid 1+0+0\n", {"./box": 0, "./Default/": 1}),
    Rule("an empty one is the default delivery", {".qmail-x": b""}, b"Kdid 1+0+0\n", {"./Default/": 1}, extension=b"x"),
    Rule("upper case is lowered", {".qmail-x": b"./box\n"}, b"Kdid 1+0+0\n", {"./box": 1}, extension=b"X"),
    Rule("a dot is a colon", {".qmail-a:b": b"./box\n"}, b"Kdid 1+0+0\n", {"./box": 1}, extension=b"a.b"),
    Rule(
        "foo-bar is tried first",
        {".qmail-foo-bar": b"./box\n", ".qmail-foo-default": b"#\n", ".qmail-default": b"#\n"},
        b"Kdid 1+0+0\n",
        extension=b"foo-bar",
    ),
    Rule(
        "then foo-default",
        {".qmail-foo": b"#\n", ".qmail-foo-default": b"./box\n", ".qmail-default": b"#\n"},
        b"Kdid 1+0+0\n",
        extension=b"foo-bar",
    ),
    Rule("and finally default", {".qmail-default": b"./box\n"}, b"Kdid 1+0+0\n", extension=b"foo-bar"),
    Rule("the dash alone is an extension", {".qmail-": b"./box\n"}, b"Kdid 1+0+0\n", extension=b""),
]

_LIST = {".qmail-l": b"&a@b.c\n", ".qmail-l-owner": b"#\n"}
_VERP = {**_LIST, ".qmail-l-owner-default": b"#\n"}
_FORWARD = b"&a@b.c\n"
_OWNER, _VERPED = b"joe-l-owner@host.example", b"joe-l-owner-@host.example-@[]"
OWNERS = [
    Rule("without an owner the sender stays", {".qmail-l": _FORWARD}, b"Kdid 0+1+0\n", {}, (SENDER, [b"a@b.c"]), b"l"),
    Rule("-owner is the sender of forwards", _LIST, b"Kdid 0+1+0\n", {}, (_OWNER, [b"a@b.c"]), b"l"),
    Rule("with -owner-default it is a VERP", _VERP, b"Kdid 0+1+0\n", {}, (_VERPED, [b"a@b.c"]), b"l"),
    Rule(
        "-owner-default alone is nothing",
        {".qmail-l": b"&a@b.c\n", ".qmail-l-owner-default": b""},
        b"Kdid 0+1+0\n",
        {},
        (SENDER, [b"a@b.c"]),
        b"l",
    ),
    Rule("a bounce keeps its sender", _VERP, b"Kdid 0+1+0\n", {}, (b"", [b"a@b.c"]), b"l", b""),
    Rule("and a double bounce", _VERP, b"Kdid 0+1+0\n", {}, (b"#@[]", [b"a@b.c"]), b"l", b"#@[]"),
    Rule(
        "a default file has the address's owner",
        {".qmail-default": b"&a@b.c\n", ".qmail-l-owner": b""},
        b"Kdid 0+1+0\n",
        {},
        (_OWNER, [b"a@b.c"]),
        b"l",
    ),
    Rule(
        "the user may have an owner",
        {".qmail": b"&a@b.c\n", ".qmail-owner": b""},
        b"Kdid 0+1+0\n",
        {},
        (b"joe-owner@host.example", [b"a@b.c"]),
    ),
    Rule(
        "NEWSENDER says it",
        {**_VERP, ".qmail-l": b"|echo $NEWSENDER >ran\n"},
        b"Kdid 0+0+1\n",
        {"ran": _VERPED + b"\n"},
        None,
        b"l",
    ),
    Rule("the owner's mail has its own file", _LIST, b"Kdid 0+0+0\n", {}, None, b"l-owner"),
    Rule("the case of the address stays", _LIST, b"Kdid 0+1+0\n", {}, (b"joe-L-owner@host.example", [b"a@b.c"]), b"L"),
]

ERRORS = [
    Rule(
        "what fails ends it at once",
        one(b"./box\n./No/\n./after\n"),
        b"ZUnable to chdir to maildir. (#4.2.1)\n",
        {"./box": 1, "./after": 0},
    ),
    Rule("and all forwards", one(b"&a@b.c\n|exit 111\n"), b"Z" + CODE % (111, 4)),
    Rule(
        "99 ends the lines, not the forwards before",
        one(b"&a@b.c\n|exit 99\n./box\n&d@b.c\n"),
        b"Kdid 0+1+1\n",
        {"./box": 0},
        (SENDER, [b"a@b.c"]),
    ),
    Rule(
        "forwards come last, as one copy",
        one(b"&a@b.c\n./box\n&d@b.c\n"),
        b"Kdid 1+2+0\n",
        {"./box": 1},
        (SENDER, [b"a@b.c", b"d@b.c"]),
    ),
    Rule("output is in the report", one(b"|echo one; echo two >&2\n|echo three\n"), b"Kone\ntwo\nthree\ndid 0+0+2\n"),
    Rule("also where it failed", one(b"|echo no such thing; exit 100\n"), b"Dno such thing\n"),
    Rule("and where something else did", one(b"|echo one\n./No/\n"), b"Zone\nUnable to chdir to maildir. (#4.2.1)\n"),
    Rule(
        "a missing program is sh's word",
        one(b"|exec no-such-program 2>&1 | sed 's/.*: //'; exit 127\n"),
        b"Znot found\n",
    ),
    Rule(
        "a program that a signal ends defers",
        one(b"|kill -9 $$\n"),
        b"ZAack, child crashed: signal 9 killed kill -9 $$. (#4.3.0)\n",
    ),
    *(
        Rule(f"{code} is permanent", one(b"|exit %d\n" % code), b"D" + CODE % (code, 5))
        for code in (100, 64, 65, 70, 76, 77, 78, 112)
    ),
    *(
        Rule(f"{code} is temporary", one(b"|exit %d\n" % code), b"Z" + CODE % (code, 4))
        for code in (111, 1, 2, 63, 66, 67, 68, 69, 71, 73, 74, 75, 98, 101, 126, 127, 255)
    ),
]

RULES = [*KINDS, *LINES, *FILES, *EXTENSIONS, *OWNERS, *ERRORS]
