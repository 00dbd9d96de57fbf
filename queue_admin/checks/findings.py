"""What `queuectl check` finds: each kind of finding, what it means, and what `queuectl repair` does about it. Pure."""

import stat
from collections.abc import Mapping
from typing import NamedTuple

from queue_admin.home.modes import OURS
from queue_base.queue.layout import FILE_MODE, HELD_BIT, MESS_MODE, PRIORITY

OLD = 129600  # Seconds after which queue-clean removes what dead injectors have left: 36 hours.
FUTURE = 86400  # Seconds by which a birth may be ahead of the clock.

# code: (what it means, what repair does)
MEANINGS: dict[str, tuple[str, str]] = {
    "number": (
        "the queue was copied or restored; a message must be named by the inode number of its file",
        "gives the message its right number",
    ),
    "bucket": ("no program finds the file there", "moves it to its directory"),
    "no-text": ("it cannot be delivered; a new message with this number removes it", "moves it to corrupt/unplaced/"),
    "no-envelope": ("an injector died, or the message has ended", "leaves it; queue-clean removes it"),
    "state": ("no crash of the suite leaves these files together", "parks the message, or moves the file aside"),
    "unreadable": ("the message cannot be delivered as it is", "parks it; the file stays for a person"),
    "kind": ("something else is in the place of a file", "moves it to corrupt/unplaced/"),
    "owner": ("the daemons may not be able to read or change it", "gives it to the queue's owner"),
    "mode": ("others could read it, or the daemons cannot", "sets the mode"),
    "time": ("the message expires late, and its next attempt may be far", "leaves it; queuectl requeue sets it anew"),
    "mark": ("the next message with this number would be held or parked", "removes the mark"),
    "stray": ("it belongs to no message; no program uses it", "leaves it"),
    "directory": ("the programs need it", "makes it"),
    "split": ("the number of directories must be prime, and the same for all kinds", "makes and removes directories"),
    "file-system": ("locks, syncs and inode numbers may fail on it", "leaves it; move the queue to a local disk"),
    "lock": ("the programs cannot lock the queue or wake queue-todo", "makes it anew"),
    "marks": ("queue-send cannot use it", "removes it; queue-send makes a new one"),
    "stored": (
        "of mail for an on-demand domain something is lost or left over, as by a damaged disk or a power cut",
        "keeps all records that can be read, and moves what it cannot place to corrupt/unplaced/",
    ),
    "pid": ("an injector died", "leaves it; queue-clean removes it"),
    "stamp": ("the queue was copied or restored", "gives it a new stamp"),
    "copy": ("queuectl copy made it; it does not start", "leaves it; repair --take-over lets it run"),
    "repair": ("the queue must not be used before it is finished", "finishes it"),
    "unplaced": ("an earlier repair could not place it", "leaves it; a person looks at it and removes it"),
}


class Finding(NamedTuple):
    """One thing that is wrong: its code, the path below queue/, what is wrong, and the message's number, 0 for none."""

    code: str
    path: str
    what: str
    message: int = 0

    @property
    def means(self) -> str:
        """What it means."""
        return MEANINGS[self.code][0]

    @property
    def repair(self) -> str:
        """What repair does about it."""
        return MEANINGS[self.code][1]


class FileFacts(NamedTuple):
    """The fields of one file from lstat; `trouble` says why its content cannot be used, "" if it can."""

    inode: int
    mode: int
    uid: int
    gid: int
    mtime: float
    ctime: float
    trouble: str = ""


class Verdict(NamedTuple):
    """A finding about one file of a message: the code, the kind of the file, and what is wrong with it."""

    code: str
    kind: str
    what: str


def judge_message(message: int, files: Mapping[str, FileFacts], owner: tuple[int, int], now: float) -> list[Verdict]:
    """Return what is wrong with a message that has these files, by kind. `owner` is the uid and gid of queue/."""
    found = [
        Verdict("kind", kind, "is not a regular file") for kind, file in files.items() if not stat.S_ISREG(file.mode)
    ]
    whole = {kind: file for kind, file in files.items() if stat.S_ISREG(file.mode)}
    for kind, file in whole.items():
        if kind in ("todo", "intd", "info"):
            # In info/ it says that the file has a class.
            file = file._replace(mode=file.mode & ~HELD_BIT)
        found += judge_owner(kind, file, owner, MESS_MODE if kind == "mess" else FILE_MODE)
    if "mess" not in files:
        return found + _judge_textless(files)
    if "mess" not in whole:
        return found
    if files["mess"].inode != message:
        found.append(Verdict("number", "mess", f"has inode number {files['mess'].inode}"))
    birth = whole.get("info") if "todo" not in files else None
    if (birth or files["mess"]).mtime > now + FUTURE:
        found.append(Verdict("time", "info" if birth else "mess", "is from the future"))
    if "corrupt" in files:
        return found  # The message is parked: what follows is known.
    found += _judge_state(files, now)
    used = ("todo",) if "todo" in files else ("info", "local", "remote")
    readable = {kind: whole[kind] for kind in used if kind in whole}
    found += [Verdict("unreadable", kind, file.trouble) for kind, file in readable.items() if file.trouble]
    return found


def _judge_textless(files: Mapping[str, FileFacts]) -> list[Verdict]:
    rest = [kind for kind in files if kind not in ("hold", "corrupt", "last")]
    if rest:
        also = f"; also: {', '.join(rest[1:])}" if rest[1:] else ""
        return [Verdict("no-text", rest[0], f"is there, but mess/ has no such message{also}")]
    return [Verdict("mark", kind, "is the mark of no message") for kind in files if kind != "last"]


def _judge_state(files: Mapping[str, FileFacts], now: float) -> list[Verdict]:
    if "todo" in files:
        return [Verdict("state", "bounce", "has failures of a message in todo/")] if "bounce" in files else []
    if "info" in files:
        return [Verdict("state", "intd", "belongs to a message that is classified")] if "intd" in files else []
    rest = [kind for kind in ("local", "remote", "bounce") if kind in files]
    if rest:
        return [Verdict("state", rest[0], "belongs to a message without a sender: todo/ and info/ are missing")]
    mess = files["mess"]
    if max(mess.mtime, mess.ctime) < now - OLD:
        return [Verdict("no-envelope", "mess", "has had no envelope for 36 hours")]
    return []


def judge_owner(kind: str, file: FileFacts, owner: tuple[int, int], mode: int) -> list[Verdict]:
    """Return what is wrong with a file's owner and mode."""
    found = []
    if (file.uid, file.gid) != owner:
        text = f"belongs to uid {file.uid} gid {file.gid}, not to uid {owner[0]} gid {owner[1]}"
        found.append(Verdict("owner", kind, text))
    if stat.S_IMODE(file.mode) != mode:
        found.append(Verdict("mode", kind, f"has mode {stat.S_IMODE(file.mode):04o}, not {mode:04o}"))
    return found


def directory_mode(kind: str) -> int:
    """Return the mode of a directory of queue/."""
    return OURS["todo" if kind.startswith(f"{PRIORITY}/") else kind][0]
