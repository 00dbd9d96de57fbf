"""A home that was copied with cp -a: queue-start refuses it, queuectl repair mends it, and all is delivered once."""

import os
import re
import subprocess
import time
from collections import Counter

import pytest

from queue_base.queue.layout import open_layout
from support.processes.suite import Suite, enqueue, program, wait_until
from support.queues.damage import rename_message
from support.queues.queued import classified_message, queue_message
from support.site import LOCAL, Site

COUNT = 20
KILLS = (0.15, 0.2, 0.25, 0.3, 0.4)  # Seconds after which a repair is killed; it takes about as long.


def _body(name: str) -> bytes:
    return b"Subject: %s\n\nbody\n" % name.encode()


def _to(name: str) -> bytes:
    return f"{name}@{LOCAL}".encode()


def test_a_copied_home_is_refused_then_mended_and_delivers_each_message_once(site: Site) -> None:
    site.control("locals", f"{LOCAL}\n")
    with Suite(site.home):
        pass  # It has its stamp.
    names = []
    for number in range(COUNT):
        names += [f"queued{number}", f"classified{number}"]
        queue_message(site.home, [_to(names[-2])], data=_body(names[-2]))
        classified_message(site.home, local=[_to(names[-1])], data=_body(names[-1]))
    original = site.home.path + ".original"
    os.rename(site.home.path, original)
    subprocess.run(["cp", "-a", original, site.home.path], check=True)
    start = subprocess.run([*program("queue-start"), "--home", site.home.path], capture_output=True, check=False)
    assert start.returncode == 100
    assert re.search(rb"cannot start: .* it was copied or restored: .*; run queuectl repair\n", start.stderr)
    _swap(site)
    assert enqueue(site.home, b"a@example.org", [_to("new")], _body("new")).returncode == 0

    for seconds in KILLS:
        process = subprocess.Popen([*program("queuectl"), "repair", site.home.path], stdout=subprocess.DEVNULL)
        time.sleep(seconds)
        process.kill()
        process.wait()
    subprocess.run([*program("queuectl"), "repair", site.home.path], check=True, stdout=subprocess.DEVNULL)
    assert subprocess.run([*program("queuectl"), "check", site.home.path], check=False).returncode in (0, 1)

    with Suite(site.home):
        wait_until(site.is_empty, why="all mail to be delivered")
    found = Counter(text.partition(b"Subject: ")[2].partition(b"\n")[0].decode() for text in site.delivered())
    assert found == Counter([*names, "new"])


def _swap(site: Site) -> None:
    """Name each message by the number of another one, as is likely where a whole disk is restored."""
    layout = open_layout(site.home.queue)
    numbers = [int(name) for directory in layout.directories("mess") for name in os.listdir(directory)]
    files = {os.stat(layout.mess(number)).st_ino: number for number in numbers}
    for number in numbers:
        rename_message(layout, number, number + 10**9)
    inodes = sorted(files)
    # Each message gets the name that is the number of the one after it.
    for inode, following in zip(inodes, [*inodes[1:], inodes[0]], strict=True):
        rename_message(layout, files[inode] + 10**9, following)


@pytest.mark.exhaustive
def test_a_copy_of_a_live_queue_and_the_original_together_have_every_message(site: Site) -> None:
    site.control("locals", f"{LOCAL}\n")
    # As init makes it: the copy has the mode of the original.
    os.chmod(f"{site.home.queue}/maildrop", 0o3733)
    with Suite(site.home):
        for number in range(COUNT):
            assert enqueue(site.home, b"a@example.org", [_to(f"m{number}")], _body(f"m{number}")).returncode == 0
        target = site.home.path + ".copy"
        subprocess.run([*program("queuectl"), "--home", site.home.path, "copy", target], check=True)
        wait_until(site.is_empty, why="all mail to be delivered")
    check = subprocess.run([*program("queuectl"), "check", target], check=False, capture_output=True, text=True)
    assert check.stdout.splitlines()[0].startswith("stamp says that the queue is a copy: ")
    assert len(check.stdout.splitlines()) == 1
