"""control/queues: which directories are queues, and what their names are."""

from pathlib import Path

import pytest

from queue_base.errors import Temporary, Usage
from queue_base.home import Home, take_home, take_queue
from queue_wire.control.queues import QUEUES_MAX, unpack_queues
from queue_wire.format_error import LineError
from queue_wire.ids import pack_queue_id, split_queue_id


def test_a_line_is_a_directory_and_its_last_part_is_the_name() -> None:
    data = b"# our disks\n/disk1/first\n\nmore/second \nqueue\n"
    assert unpack_queues(data, "/home") == {
        "first": "/disk1/first", "second": "/home/more/second", "queue": "/home/queue"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "line 1: it names no queue"),
        (b"# none\n", "line 1: it names no queue"),
        (b"a\n/disk/a\n", "line 2: a second queue with the name a"),
        (b"/disk/a\n/disk/a/b\n", "line 2: it is within /disk/a, or contains it"),
        (b"/disk/a/b\n/disk/a\n", "line 2: it is within /disk/a/b, or contains it"),
        (b"a.b\n", "line 1: the last part of the path is no name"),
        (b"/disk/\xff\n", "line 1: not UTF-8"),
        (b"/\n", "line 1: the last part of the path is no name"),
        (b"-a\n", "line 1: the last part of the path is no name"),
        (b"../a\n", "line 1: not a path without"),
        (b"a/./b\n", "line 1: not a path without"),
        (b"/disk//b\n", "line 1: not a path without"),
        (b"control\n", "line 1: control is another directory of the home"),
        (b"run/a\n", "line 1: run is another directory of the home"),
        (b"/disk/intake\n", "line 1: intake is the name of another service"),
        (b"".join(b"q%d\n" % number for number in range(QUEUES_MAX + 1)), f"line 33: more than {QUEUES_MAX} queues"),
    ],
)
def test_a_line_that_is_wrong_is_named_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(LineError) as found:
        unpack_queues(data, "/home")
    assert str(found.value).startswith(why)


def home_with(path: Path, text: str | None) -> Home:
    (path / "control").mkdir()
    if text is not None:
        (path / "control/queues").write_text(text)
    return Home(str(path))


def test_a_home_without_the_file_has_one_queue_and_needs_no_name(tmp_path: Path) -> None:
    home = home_with(tmp_path, None)
    assert home.queue == home.run == home.owned == f"{tmp_path}/queue"
    assert (home.several, home.is_chosen, home.name, home.each()) == (False, True, "", [home])


def test_one_line_moves_the_only_queue_and_its_sockets(tmp_path: Path) -> None:
    home = home_with(tmp_path, "/disk/mail\n")
    assert home.queue == home.run == "/disk/mail"
    assert home.choose("mail").name == ""


def test_of_several_queues_one_must_be_named(tmp_path: Path) -> None:
    home = home_with(tmp_path, "/disk/a\nb\n")
    assert home.several and not home.is_chosen and home.name == ""
    assert home.run == home.owned == f"{tmp_path}/run"
    with pytest.raises(Usage, match=r"unable to choose a queue: .* has a, b; --queue NAME names one"):
        _ = home.queue
    assert [(one.name, one.queue, one.run) for one in home.each()] == [
        ("a", "/disk/a", home.run), ("b", f"{tmp_path}/b", home.run)
    ]  # fmt: skip


def test_a_file_that_cannot_be_used_stops_whoever_needs_the_queue(tmp_path: Path) -> None:
    home = home_with(tmp_path, "a\na\n")
    with pytest.raises(Temporary, match=r"unable to parse .*/control/queues line 2: a second queue"):
        _ = home.queue


def test_the_option_names_a_queue_of_the_home(tmp_path: Path) -> None:
    home_with(tmp_path, "a\nb\n")
    words = ["--home", str(tmp_path)]
    for option in (["--queue", "b"], ["--queue=b"]):
        home, rest = take_queue(*take_home([*words, *option, "more"]))
        assert (home.name, rest) == ("b", ["more"])
    for wrong in (["--queue", "c"], ["--queue"], ["--queue="]):
        with pytest.raises(Usage):
            take_queue(*take_home([*words, *wrong]))


def test_an_id_has_the_name_of_its_queue_before_it_where_there_are_several() -> None:
    assert pack_queue_id("first", "457-abc") == "first/457-abc"
    assert pack_queue_id("", "457-abc") == "457-abc"
    assert split_queue_id("first/457-abc") == ("first", "457-abc")
    assert split_queue_id("457-abc") == ("", "457-abc")


def test_a_nul_is_refused_with_its_line_before_it_is_a_path(tmp_path: Path) -> None:
    control = tmp_path / "control"
    control.mkdir()
    (control / "queues").write_bytes(b"# ours\n/di\0sk/first\n")
    with pytest.raises(Temporary, match="control/queues line 2: it holds a NUL byte"):
        _ = Home(str(tmp_path)).queues
