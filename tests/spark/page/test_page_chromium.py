"""The page of queue-report in a browser: it is whole, fits its window, loads nothing, and runs nothing."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.page.document import SECTIONS, make_page
from support.spark.chromium import DARK, LIGHT, NO_SCRIPTS, observe
from support.spark.page_rows import HOSTILE, month

NAMES = [name for name, _, _ in SECTIONS]


@pytest.fixture
def trap() -> Iterator[socket.socket]:
    """A port that nobody may knock at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def knocks(trap: socket.socket) -> bool:
    try:
        trap.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def write(directory: Path, trap: socket.socket) -> Path:
    page = directory / "page.html"
    hostile = HOSTILE.replace("192.0.2.1", f"127.0.0.1:{trap.getsockname()[1]}")
    page.write_text(make_page(month(hostile)))
    return page


def test_page_is_whole_in_a_wide_window_and_in_a_narrow_one_and_nothing_is_loaded_or_run(
    tmp_path: Path, trap: socket.socket
) -> None:
    page = write(tmp_path, trap)
    for width in (1280, 360):
        seen = observe(page, width)
        assert seen["sections"] == NAMES
        assert seen["width"] <= seen["room"], f"the page is wider than a window of {width}"
        assert len(seen["plots"]) == 10
        assert min(seen["plots"]) >= 10
        assert seen["cut"] == [], "a plot that is wider than its place"
        assert seen["small"] > 8, "text in a plot that nobody can read"
        # Nothing of a log's text became markup.
        assert (seen["title"], seen["active"], seen["loaded"]) == ("Mail queues", 0, [])
    assert not knocks(trap)


def test_page_follows_the_reader_into_the_dark(tmp_path: Path, trap: socket.socket) -> None:
    page = write(tmp_path, trap)
    light, dark = (observe(page, 1000, scheme) for scheme in (LIGHT, DARK))
    assert light["paper"] != dark["paper"]
    assert light["ink"] != dark["ink"]


def test_page_looks_the_same_without_scripts(tmp_path: Path, trap: socket.socket) -> None:
    page = write(tmp_path, trap)
    assert observe(page, 1000, frame=NO_SCRIPTS) == observe(page, 1000)
