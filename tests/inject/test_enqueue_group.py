"""A group of messages shares its syncs, and an injector that is killed leaves only states that a crash may leave."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from queue_base.errors import TODO_TROUBLE, QueueTrouble
from queue_base.home import Home
from queue_base.queue.writer import QueueDraft, QueueWriter
from queue_inject.writers import open_writer
from queue_wire.format_error import AddressTooLong
from queue_wire.ids import unpack_long_id
from support.faults.nameless import without_nameless
from support.inject.injectors import is_empty, queued, states, wrong_inodes
from support.processes.suite import program
from support.queues.home import make_home

GROUP = 40
ROOT = Path(__file__).parents[2]


def begun(home: Home, count: int) -> tuple[QueueWriter, list[QueueDraft]]:
    writer = open_writer(home)
    assert isinstance(writer, QueueWriter)
    drafts = [writer.begin() for _ in range(count)]
    for number, draft in enumerate(drafts):
        draft.write(b"message %d\n" % number)
        draft.finish(b"a@b", [b"%d@example.net" % number])
    return writer, drafts


@pytest.fixture(params=[True, False], ids=["nameless", "named"])
def nameless(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the file system has files without names (O_TMPFILE), or files get a temporary name."""
    if not request.param:
        without_nameless(monkeypatch)
    return bool(request.param)


@pytest.mark.parametrize("flat", [False, True], ids=["hashed", "flat"])
def test_forty_messages_wait_for_the_disk_twice_or_three_times(tmp_path: Path, flat: bool, nameless: bool) -> None:
    home = make_home(tmp_path / "home", flat=flat)
    writer, drafts = begun(home, GROUP)
    writer.commit(drafts)

    assert all(draft.queued for draft in drafts) and writer.syncs == (2 if nameless else 3)
    assert sorted(each.message for each in queued(home)) == sorted(b"message %d\n" % each for each in range(GROUP))


def test_one_message_costs_four_fsyncs_and_no_more(
    tmp_path: Path, nameless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    writer, drafts = begun(make_home(tmp_path / "home"), 1)
    writer.commit(drafts)

    assert len(synced) == 4


def test_a_writer_commits_one_group_after_another(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    for _ in range(3):
        writer, drafts = begun(home, 5)
        writer.commit(drafts)
        writer.commit([])

    assert states(home) == {4: 15}


def test_a_group_that_fails_half_way_keeps_what_is_queued_and_removes_the_rest(tmp_path: Path, nameless: bool) -> None:
    home = make_home(tmp_path / "home")
    writer, drafts = begun(home, GROUP)
    Path(drafts[20].todo).write_bytes(b"in the way")

    with pytest.raises(QueueTrouble) as caught:
        writer.commit(drafts)
    assert caught.value.code == TODO_TROUBLE
    Path(drafts[20].todo).unlink()
    assert [draft.queued for draft in drafts] == [True] * 20 + [False] * 20
    assert states(home) == {4: 20}

    writer, again = begun(home, 1)
    writer.commit(again)
    assert states(home) == {4: 21}


# Run in a process of its own: what is short is judged by descriptors' numbers, and pytest may have many files open.
SHORT = """
import os, resource, sys
from queue_base.home import Home
from queue_inject.writers import open_writer

most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 70, most))
writer = open_writer(Home(sys.argv[1]))
drafts = []
for _ in range(200):
    drafts.append(writer.begin())
    drafts[-1].write(b"x")
    drafts[-1].finish(b"a@b", [b"c@d"])
writer.commit(drafts)
"""


def test_a_group_for_which_descriptors_are_short_goes_through_intd(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    subprocess.run([sys.executable, "-c", SHORT, home.path], cwd=ROOT, check=True, timeout=60)

    assert states(home) == {4: 200}
    assert {each.message for each in queued(home)} == {b"x"}


def test_a_long_id_is_of_the_number_and_the_birth(tmp_path: Path, nameless: bool) -> None:
    home = make_home(tmp_path / "home")
    writer, drafts = begun(home, 3)
    writer.commit(drafts)

    for draft in drafts:
        birth = os.stat(draft.path).st_mtime_ns // 1000
        assert unpack_long_id(draft.long_id) == (draft.message, birth)


def test_a_draft_that_is_discarded_leaves_nothing(tmp_path: Path, nameless: bool) -> None:
    home = make_home(tmp_path / "home")
    writer, drafts = begun(home, 2)
    with pytest.raises(AddressTooLong):
        drafts[0].finish(b"a@b", [b"x" * 1003])
    for draft in drafts:
        draft.discard()

    assert is_empty(home)
    assert writer.syncs == 0


def test_sigkill_at_any_moment_leaves_only_s1_to_s4(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    envelope = tmp_path / "envelope"
    envelope.write_bytes(b"Fa@b\0" + b"Tb@example.net\0" * 100 + b"\0")
    message = tmp_path / "message"
    message.write_bytes(b"one line of the message\n" * 20_000)
    accepted = 0
    for _ in range(40):
        with envelope.open("rb") as addresses, message.open("rb") as text:
            process = subprocess.Popen([*program("queue-enqueue"), "--home", home.path], stdin=text, stdout=addresses)
        try:
            accepted += process.wait(random.uniform(0.01, 0.08)) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)

    found = states(home)
    assert set(found) <= {2, 3, 4} and wrong_inodes(home) == []
    assert found[4] >= accepted
    for each in queued(home):
        assert each.message == message.read_bytes() and len(each.envelope.recipients) == 100
    assert all(name.count(".") == 2 for name in os.listdir(home.queue + "/pid"))
