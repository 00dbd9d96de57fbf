"""A name that is nobody's, in every directory of a queue: it is reported and passed by, and stops nothing."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_admin.printable import visible
from queue_wire.files.stored_order import HOLD_DIRECTORY, ORDER_DIRECTORY
from support.processes.suite import Suite, enqueue, inject, program, wait_until
from support.queues.queued import store_on_demand
from support.servers.smtp.sink import Sink
from support.site import Site

DOMAIN = b"customer.example"
ODD = b"\xff\n 07 "
# Where users leave what they want, what is set aside, and what is being made.
NOT_REPORTED = ("maildrop", "corrupt/maildrop", "pid")
Maker = Callable[[Path], object]


def make_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere/at/all")


def make_directory(path: Path) -> None:
    path.mkdir()
    (path / "notes").write_text("x")


STRAYS: dict[str, tuple[str, Maker]] = {
    "a file": ("notes", lambda path: path.write_text("x")),
    "a directory": ("notes", make_directory),
    "a FIFO": ("notes", lambda path: os.mkfifo(path)),
    "a dangling link": ("notes", make_dangling_link),
    "a name with odd bytes": (os.fsdecode(ODD), lambda path: path.write_text("x")),
}


def queuectl(site: Site, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*program("queuectl"), "--home", site.home.path, *words], capture_output=True, timeout=120)


def put_strays(site: Site, name: str, make: Maker) -> list[str]:
    """Put a stray into every directory of the queue; return the directories, as paths below it."""
    queue = Path(site.home.queue)
    places = [queue, *(path for path in queue.rglob("*") if path.is_dir())]
    for place in places:
        make(place / name)
    return [str(place.relative_to(queue)) for place in places]


def inject_bulk(site: Site, recipient: str) -> None:
    done = subprocess.run(
        [*program("queue-inject"), "--home", site.home.path, "--priority", "bulk", "-f", "a@me.example.org", recipient],
        input=b"Subject: bulk\n\nx\n", capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def taken(sink: Sink) -> set[bytes]:
    """Return the recipients of what was delivered."""
    return {each for mail in list(sink.taken) for each in mail.recipients}


@pytest.mark.parametrize("kind", STRAYS)
def test_a_stray_in_every_directory_of_a_queue_stops_nothing(site: Site, kind: str) -> None:
    site.control("ondemand", f"{DOMAIN.decode()}:etrn probe never\n")
    with Sink() as sink:
        site.route(sink.port)
        # So that what is made on demand is there: the tree of a class, that of a domain, marks and copies.
        inject_bulk(site, "first@c.example")
        store_on_demand(site.home, DOMAIN, [[b"joe@customer.example"]])
        for name in (HOLD_DIRECTORY, ORDER_DIRECTORY):
            Path(site.home.queue, "ondemand", DOMAIN.decode(), name).mkdir(0o2750)
        Path(site.home.queue, "hold", "maildrop").mkdir(0o2700)
        places = put_strays(site, *STRAYS[kind])

        def mail_passes(number: int) -> None:
            inject_bulk(site, f"bulk{number}@c.example")
            text = b"Subject: x\n\nx\n"
            assert inject(site.home, "a@me.example.org", [f"u{number}@me.example.org"], text).returncode == 0
            assert enqueue(site.home, b"a@me.example.org", [b"u%d@c.example" % number], text).returncode == 0
            with Suite(site.home) as suite:
                wanted = {b"bulk%d@c.example" % number, b"u%d@c.example" % number}
                wait_until(lambda: wanted <= taken(sink), why="remote mail")
                wait_until(lambda: len(site.delivered()) == number, why="local mail")

                assert suite.stop() == 0

        mail_passes(1)
        inject_bulk(site, "kept@c.example")
        checked = queuectl(site, "check")
        assert checked.returncode == 1, checked
        name = STRAYS[kind][0]
        unsaid = [
            place for place in places if place not in NOT_REPORTED
            and visible(os.fsencode(f"{place}/{name}".removeprefix("./"))) not in checked.stdout.decode()
        ]  # fmt: skip
        assert unsaid == []
        copy = Path(site.home.path).with_name("copy")
        copied = queuectl(site, "copy", str(copy))
        assert copied.returncode in (0, 1) and b"copied 1 messages" in copied.stdout, copied
        shutil.rmtree(copy)
        for _ in range(2):
            repaired = queuectl(site, "repair")
            assert repaired.returncode == 0, repaired
            assert not Path(site.home.queue, "repair").exists()
        mail_passes(2)
        assert b"kept@c.example" in taken(sink)
        stored = queuectl(site, "list", "--stored")
        assert stored.stdout.count(b" for customer.example") == 1, stored
