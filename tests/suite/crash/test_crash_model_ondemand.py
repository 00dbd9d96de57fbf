"""The store of on-demand domains under the crash model: append, done marks, compaction, removal.

What is said to be stored is there after every power cut, with its message, until its delivery has begun; what was
settled never comes back; and no record is without its message.
"""

import os
import sys
from pathlib import Path

from queue_wire.files.cluster import link_name
from support.faults.crash.crash_checks import Message, check_queue, waiting_records
from support.faults.crash.crash_model import Crash
from support.faults.crash.crash_place import BODY, Place
from support.faults.traced import run_traced

SCRIPT = """
import os, sys
from queue_ondemand.domain_store import DomainStore, StoreRequest
from queue_wire.files.cluster import StoredRecipient

queue, *numbers = sys.argv[1:]
store = DomainStore(queue)

def request(number, domain, *names):
    path = f"mess/{int(number) % 3}/{number}"
    recipients = [StoredRecipient(int(number), 1, 9, b"a@b", name.encode()) for name in names]
    return StoreRequest(domain, path, recipients)

def append(*requests):
    assert store.append(requests) == [None] * len(requests)
    say("stored", *[each.recipient.decode() for one in requests for each in one.recipients])

def say(word, *names):
    os.write(1, b"".join([f"{word} {name}\\n".encode() for name in names]))

def finish(domain, number, *names):
    say("begun", *names)
    records = [each for each in store.read(domain, number).records if each.stored.recipient.decode() in names]
    store.mark(domain, number, [each.offset for each in records])
    store.settle(domain, number)
    say("settled", *names)
"""


def kept(crash: Crash, found: dict[int, Message]) -> list[str]:
    """The check of this file's docstring."""
    said: dict[str, set[str]] = {"stored": set(), "begun": set(), "settled": set()}
    for line in crash.said.decode().splitlines():
        word, name = line.split()
        said[word].add(name)
    wrong, there = [], set()
    for domain, number, record in waiting_records(crash):
        name = record.stored.recipient.decode()
        there.add(name)
        link = crash.files.get(f"ondemand/{domain}/mess/{link_name(number, record.stored.long_id)}")
        if link is None or link.content != BODY:
            wrong.append(f"{name} has no message")
        if name in said["settled"]:
            wrong.append(f"{name} is settled and came back")
    return wrong + [f"{name} is lost" for name in said["stored"] - said["begun"] - there]


def run(path: Path, steps: str, messages: int) -> Place:
    place = Place(path)
    numbers = place.classified(messages)
    command = [sys.executable, "-c", SCRIPT + steps, place.home.queue, *map(str, numbers)]
    assert run_traced(place.model, place.trace, command) == 0
    return place


def test_what_is_stored_survives_every_power_cut_with_its_message(tmp_path: Path) -> None:
    steps = """
append(request(numbers[0], b"example.net", "a", "b"), request(numbers[1], b"example.net", "c"))
append(request(numbers[1], b"example.org", "d"), request(numbers[0], b"example.net", "e"))
"""
    place = run(tmp_path, steps, 2)

    assert check_queue(place.model, place.layout, kept, most=128) > 100


def test_what_is_done_goes_and_the_rest_stays_after_every_power_cut(tmp_path: Path) -> None:
    steps = """
append(request(numbers[0], b"example.net", "a", "b"), request(numbers[1], b"example.net", "c"))
finish(b"example.net", 1, "a")
finish(b"example.net", 1, "b", "c")
append(request(numbers[1], b"example.net", "d"))
"""
    place = run(tmp_path, steps, 2)

    assert check_queue(place.model, place.layout, kept, most=128) > 100
    assert not os.path.exists(f"{place.home.queue}/ondemand/example.net/mess/1.{numbers_of(place)[0]}-1")


def test_a_compaction_leaves_the_old_cluster_or_the_new_one_after_every_power_cut(tmp_path: Path) -> None:
    steps = """
append(*[request(number, b"example.net", f"r{place}") for place, number in enumerate(numbers)])
store = DomainStore(queue)
finish(b"example.net", 1, "r0", "r1", "r2")
append(request(numbers[0], b"example.net", "again"))
finish(b"example.net", 1, "r3")
"""
    place = run(tmp_path, steps, 4)

    assert check_queue(place.model, place.layout, kept, most=128) > 100


def numbers_of(place: Place) -> list[int]:
    return sorted(place.numbers())
