"""Which messages the selectors choose, for list and for the commands that change messages; ids on stdin; -0; --sort."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_admin.messages import choosing
from queue_admin.messages.choosing import select
from queue_admin.messages.detail import Detail, read_done_marks
from queue_admin.messages.divided import BATCH, divide_in_order
from queue_admin.messages.outside_sort import sort_outside
from queue_admin.messages.selector_options import make_selectors
from queue_admin.messages.selectors import Selectors, read_subject, unpack_size
from queue_admin.messages.sieve import Bucket
from queue_admin.messages.survey import Snapshot, survey
from queue_base.errors import Temporary, Usage
from queue_wire.files.envelope import pack_info
from queue_wire.files.hold_mark import HoldOrder, order_mark, pack_mark
from queue_wire.files.last_result import pack_header, pack_result
from queue_wire.ids import pack_long_id
from support.inject.qmail_queue import snapshot
from support.queues.listed_queue import BIRTH, Queue, lines

PLAIN = b"Received: (qmail 7 invoked by uid 1007); date\nSubject: Cheap pills\n\nx\n"
CODED = b"From: a@b\nSUBJECT: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\n =?iso-8859-1?q?_aus_K=F6ln?=\n\n" + b"x" * 6000


@pytest.fixture
def mails(queue: Queue) -> dict[str, int]:
    """A spammer's message, a long one, one that is queued, one on hold, one that is deleted."""
    found = {}
    found["spam"] = queue.classified(b"Spam@Bad.example", remote=b"Tr@s.example\0Tu@t.example\0")
    queue.put(queue.layout.mess(found["spam"]), PLAIN)
    found["long"] = queue.classified(b"b@good.example", remote=b"Tr@s.example\0")
    queue.put(queue.layout.mess(found["long"]), CODED)
    found["queued"] = queue.queued(b"c@good.example", (b"x@y.example", b"z@y.example"))
    found["held"] = queue.classified(b"d@good.example", local=b"Tj@me\0")
    queue.put(queue.layout.hashed("hold", found["held"]), b"Ask Jo\n")
    found["deleted"] = queue.classified(b"spam@bad.example", remote=b"Tr@s.example\0")
    queue.put(queue.layout.hashed("hold", found["deleted"]), pack_mark(order_mark(HoldOrder.DELETE)))
    return found


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["--sender", "SPAM@bad.example"], ["spam"]),
        (["--sender-domain", "GOOD.example"], ["long", "queued", "held"]),
        (["--sender-domain", "example"], []),
        (["--recipient", "U@t.example"], ["spam"]),
        (["--domain", "s.example"], ["spam", "long"]),
        (["--domain", "y.example"], ["queued"]),
        (["--uid", "1007"], ["spam"]),
        (["--uid", "1"], ["queued"]),
        (["--size", "+5k"], ["long"]),
        (["--size", "-1k", "--sender-domain", "good.example"], ["queued", "held"]),
        (["--subject", "PILLS"], ["spam"]),
        (["--subject", "grüße aus köln"], ["long"]),
        (["--reason", "ask jo"], ["held"]),
        (["--state", "held"], ["held"]),
        (["--state", "queued"], ["queued"]),
        (["--state", "deleted"], ["deleted"]),
        (["--older-than", "1h", "--sender-domain", "bad.example"], ["spam"]),
        ([], ["spam", "long", "queued", "held"]),
    ],
)
def test_list_and_the_commands_choose_the_same_messages(
    queue: Queue, mails: dict[str, int], capsys: pytest.CaptureFixture[str], words: list[str], chosen: list[str]
) -> None:
    wanted = sorted(pack_long_id(mails[name], BIRTH) for name in chosen)
    assert queue.run("list", "-0", *words) == (0 if chosen else 1)
    assert sorted(capsys.readouterr().out.split("\0")[:-1]) == wanted
    assert queue.run("list", "--format", "json", *words) == (0 if chosen else 1)
    assert sorted(json.loads(line)["id"] for line in lines(capsys)) == wanted
    before = snapshot(Path(queue.home.path))
    assert queue.run("delete", "--dry-run", *(words or ["--all"])) == (0 if chosen else 1)
    shown = capsys.readouterr()
    assert sorted(shown.out.split()) == wanted
    assert shown.err.startswith(f"would have deleted {len(chosen)} message")
    assert snapshot(Path(queue.home.path)) == before


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("shares", [1, 3])
@pytest.mark.parametrize("few", [0, 1 << 30])
def test_what_is_sifted_is_what_matches_however_many_processes_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flat: bool, shares: int, few: int
) -> None:
    queue = mixed_queue(tmp_path, flat)
    monkeypatch.setattr(choosing, "count_shares", lambda layout: shares)
    monkeypatch.setattr(choosing, "FEW", few)
    now, marks = time.time(), read_done_marks(queue.layout)
    everything = [
        (found, Detail(queue.layout, found, marks)) for found in survey(queue.layout) if isinstance(found, Snapshot)
    ]
    for selectors in SELECTORS:
        wanted = [found.message for found, detail in everything if selectors.match(queue.layout, found, detail, now)]
        chosen = [found.message for found, _ in select(queue.layout, selectors, now, every_state=True)]
        assert sorted(chosen) == sorted(wanted), selectors
        assert wanted, selectors


SELECTORS = [
    Selectors(sender=b"a@b.example"),
    Selectors(sender=b""),
    Selectors(sender=b"a@b.example", older=3600),
    Selectors(sender=b"a@b.example", state="queued"),
    Selectors(sender_domain=b"b.example"),
    Selectors(recipient=b"joe-x@virtual.example", prepends={b"virtual.example": b"joe"}),
    Selectors(recipient=b"x@virtual.example", prepends={b"virtual.example": b"joe"}),
    Selectors(domain=b"virtual.example", size=(10, 100)),
    Selectors(recipient=b"r3@many.example"),
    Selectors(older=3600),
    Selectors(uid=1),
    Selectors(uid=1007),
    Selectors(size=(0, 100)),
    Selectors(subject="pills"),
    Selectors(reason="ask jo"),
    Selectors(reason="greylisted"),
    *(Selectors(state=state) for state in ("queued", "classified", "incoming", "unknown")),
]


def mixed_queue(path: Path, flat: bool) -> Queue:
    """Make a queue with messages in all states and of many kinds, some of them damaged."""
    queue = Queue(path / "home", flat)
    layout, put = queue.layout, queue.put
    for number in range(40):
        sender = (b"a@b.example", b"A@B.example", b"", b"c@d.example", b"x-a@b.example")[number % 5]
        queue.classified(sender, remote=b"Tr%d@many.example\0Dx@done.example\0" % number)
        queue.queued(sender, (b"r%d@Many.example" % number, b"y@z.example"))
    queue.classified(b"c@d.example", local=b"Tjoe-x@Virtual.example\0")
    queue.classified(b"c@d.example", local=b"Djoe-x@virtual.example\0", remote=b"Ty@z.example\0")
    queue.classified(b"c@d.example", remote=b"Tx@y.example\0" * 10_000 + b"Tr3@many.example\0")
    put(layout.mess(queue.classified(b"c@d.example", local=b"Ty@z.example\0")), PLAIN)
    put(layout.mess(queue.queued(b"c@d.example")), PLAIN)
    put(layout.hashed("hold", queue.classified(b"a@b.example", local=b"Ty@z.example\0")), b"Ask Jo\n")
    deferred = queue.classified(b"c@d.example", remote=b"Ty@z.example\0")
    put(layout.hashed("last", deferred), pack_header(BIRTH) + pack_result("remote", 0, 9, b"z", b"Greylisted"))
    young = queue.classified(b"a@b.example", remote=b"Ty@z.example\0")
    os.utime(layout.hashed("info", young))
    queue.mess(PLAIN)
    # Damage: no text, no sender, no record, a FIFO, a bounce alone, names that are no messages.
    for damaged in (queue.classified(b"a@b.example", local=b"Ty@z.example\0"), queue.queued(b"a@b.example")):
        # Not removed: the next message would have its number.
        os.rename(layout.mess(damaged), path / str(damaged))
    os.unlink(layout.hashed("info", queue.classified(b"a@b.example", local=b"Ty@z.example\0")))
    put(layout.hashed("info", queue.classified(b"a@b.example", local=b"Ty@z.example\0")), b"")
    fifo = queue.classified(b"a@b.example", local=b"Ty@z.example\0")
    os.unlink(layout.hashed("info", fifo))
    os.mkfifo(layout.hashed("info", fifo))
    put(layout.bounce(10**9), b"x")
    put(f"{queue.home.queue}/info/1/stray", b"Fa@b.example\0")
    put(f"{queue.home.queue}/info/1/{23 * 10**6}", b"Fa@b.example\0")
    return queue


@pytest.mark.parametrize("chosen", [Selectors(sender=b"a@b"), Selectors(sender_domain=b"b")])
def test_a_sender_is_found_in_mail_of_a_lower_class_too(queue: Queue, chosen: Selectors) -> None:
    message = queue.classified(b"A@b", remote=b"Tx@y.example\0")
    queue.put(queue.layout.hashed("info", message), pack_info(b"A@b", "bulk"))
    queue.layout.lower = ("bulk",)
    assert [found.message for found, _ in select(queue.layout, chosen, time.time())] == [message]


# One domain: A-labels, U-labels, letters of full width, another dot, and a final one.
FORMS = ["xn--bcher-kva.example", "XN--BCHER-KVA.example.", "b\u00fccher.example", "B\u00dcCHER\u3002example",
         "\uff42\u00fccher.example."]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("given", FORMS)
@pytest.mark.parametrize("option", ["sender", "sender_domain", "recipient", "domain"])
def test_a_domain_is_found_in_every_form(queue: Queue, option: str, given: str, form: str) -> None:
    address = f"Joe@{form}".encode()
    wanted = [queue.classified(address, remote=b"T%s\0" % address), queue.queued(address, (address,))]
    queue.classified(b"x@other.example", remote=b"Tx@other.example\0")
    queue.queued(b"x@other.example.", (b"x@other.example.",))
    options = dict.fromkeys(("recipient", "domain", "sender", "sender_domain", "with_reason", "subject"))
    options |= {"older_than": None, "size": None, "uid": None, "state": None}
    options[option] = given if option.endswith("domain") else f"joe@{given}"
    chosen = select(queue.layout, make_selectors(options, {}), time.time())
    assert sorted(found.message for found, _ in chosen) == sorted(wanted)


def test_a_sender_with_a_final_dot_is_found_without_it(queue: Queue) -> None:
    wanted = queue.classified(b"a@b.example.", remote=b"Tx@y.example\0")
    queue.classified(b"ab@b.example", remote=b"Tx@y.example\0")
    chosen = select(queue.layout, Selectors(sender=b"a@b.example"), time.time())
    assert [found.message for found, _ in chosen] == [wanted]


def test_the_domain_of_a_sender_that_differs_by_recipient_is_that_of_its_address(queue: Queue) -> None:
    wanted = queue.classified(b"list-@b.example-@[]", remote=b"Tx@y.example\0")
    waits = queue.queued(b"list-@b.example-@[]", (b"x@y.example",))
    queue.classified(b"list-@c.example-@[]", remote=b"Tx@y.example\0")
    chosen = select(queue.layout, Selectors(sender_domain=b"b.example"), time.time())
    assert {found.message for found, _ in chosen} == {wanted, waits}


@pytest.mark.parametrize(("uid", "submitter"), [(0, b""), (10**20 - 1, b""), (1000, b"0123456789abcdef")])
def test_a_sender_is_found_whatever_info_has_behind_it(queue: Queue, uid: int, submitter: bytes) -> None:
    message = queue.classified(b"A@b", remote=b"Tx@y.example\0")
    queue.put(queue.layout.hashed("info", message), pack_info(b"A@b", "bulk", uid, submitter))
    queue.layout.lower = ("bulk",)
    assert [found.message for found, _ in select(queue.layout, Selectors(sender=b"a@b"), time.time())] == [message]


def test_to_find_a_sender_only_records_of_that_length_are_read(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        queue.classified(b"user%d@long.example" % number, remote=b"Tx@y.example\0")
    same = queue.classified(b"b@a", remote=b"Tx@y.example\0")
    wanted = queue.classified(b"a@b", remote=b"Tx@y.example\0")
    read: set[tuple[str, int]] = set()
    head = Bucket.head

    def note(bucket: Bucket, kind: str, name: str, most: int) -> bytes:
        read.add((kind, int(name)))
        return head(bucket, kind, name, most)

    monkeypatch.setattr(Bucket, "head", note)
    (found,) = select(queue.layout, Selectors(sender=b"a@b"), time.time())
    assert found[0].message == wanted and read == {("info", same), ("info", wanted)}


@pytest.mark.parametrize("count", [0, 1, 100, 50_000])
def test_keys_are_sorted_in_a_file(count: int) -> None:
    # A birth in microseconds may have more than 64 bits: a file may be of any time.
    keys = [(random.choice((1, 2.5, float("inf"), -number, 2**70)), number) for number in range(count)]
    assert list(sort_outside(iter(keys))) == sorted(keys)
    senders = [(random.choice((b"", b"a", b"b" * 100)), number) for number in range(count)]
    assert list(sort_outside(iter(senders))) == sorted(senders)


def test_without_room_for_its_file_a_sort_is_tried_later(tmp_path: Path) -> None:
    script = """
import resource, signal
from queue_admin.messages.outside_sort import sort_outside
from queue_base.errors import Temporary
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    list(sort_outside((number % 7, number) for number in range(300_000)))
except Temporary as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("unable to sort in a temporary file: ") and done.stdout.count("\n") == 1


def test_results_of_several_processes_come_in_order_and_a_failure_fails_the_whole() -> None:
    def work(piece: int) -> Iterator[int]:
        if piece == 9:
            raise Temporary("unable to read: the disk")
        yield from [piece] * (BATCH * (piece % 3) + piece)

    for pieces in (1, 8):
        wanted = [piece for piece in range(pieces) for _ in range(BATCH * (piece % 3) + piece)]
        assert list(divide_in_order(work, pieces, 3)) == wanted
    with pytest.raises(Temporary, match="unable to read: the disk"):
        list(divide_in_order(work, 12, 3))
    # One who has seen enough ends them.
    assert next(divide_in_order(work, 8, 3)) == 1


def test_hold_names_the_reason_of_a_message_otherwise_because_its_own_reason_is_a_text(
    queue: Queue, mails: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert queue.run("hold", "--dry-run", "--reason", "spam", "--with-reason", "jo") == 0
    assert lines(capsys) == [pack_long_id(mails["held"], BIRTH)]


@pytest.mark.parametrize("between", [b"\0", b"\n", b" classified 5m\n"])
def test_ids_come_from_stdin_a_line_or_a_nul_after_each(
    queue: Queue,
    mails: dict[str, int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    between: bytes,
) -> None:
    names = [pack_long_id(mails[name], BIRTH) for name in ("spam", "long")]
    given = tmp_path / "ids"
    given.write_bytes(b"".join(name.encode() + between for name in names))
    monkeypatch.setattr("queue_admin.messages.choosing.IDS_CHUNK", 7)
    for words, wanted in (["-"], names), (["-", "--sender-domain", "bad.example"], names[:1]):
        saved, handle = os.dup(0), os.open(given, os.O_RDONLY)
        os.dup2(handle, 0)
        try:
            assert queue.run("delete", "--dry-run", *words) == 0
        finally:
            os.dup2(saved, 0)
            os.close(saved)
            os.close(handle)
        assert lines(capsys) == wanted


@pytest.mark.parametrize(
    ("sort", "wanted"),
    [("size", "long"), ("recipients", "spam"), ("sender", "long"), ("next", None), ("age", None)],
)
def test_list_is_sorted_and_limited(
    queue: Queue, mails: dict[str, int], capsys: pytest.CaptureFixture[str], sort: str, wanted: str | None
) -> None:
    words = ["list", "--state", "classified", "--sort", sort]
    assert queue.run(*words) == 0
    assert len(lines(capsys)) == 3
    assert queue.run(*words, "--limit", "1") == 0
    (line,) = lines(capsys)
    assert wanted is None or line.startswith(f"{mails[wanted]}-")


def test_a_size_is_at_least_or_at_most() -> None:
    assert unpack_size("+2k")[0] == 2048 and unpack_size("-1M") == (0, 1 << 20)
    with pytest.raises(Usage):
        unpack_size("5")


@pytest.mark.parametrize(
    ("header", "subject"),
    [
        (b"X: y\n\nSubject: of the body\n", ""),
        (b"Subject: =?x-unknown?q?=E9?=\n\n", "\xe9"),
        (b"Subject: =?utf-8?b?!!!?=\n\n", None),
        (b"Subject:\xff\xfe \x00\n\n", None),
        (b"Subject: " + b"=?utf-8?q?a?= " * 3000 + b"\n\n", None),
    ],
)
def test_no_subject_is_too_odd_to_be_read(queue: Queue, header: bytes, subject: str | None) -> None:
    message = queue.mess(header)
    begun = time.process_time()
    found = read_subject(queue.layout, message)
    assert subject is None or found == subject
    assert time.process_time() - begun < 1
