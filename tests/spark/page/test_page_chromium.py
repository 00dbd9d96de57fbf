"""The page of queue-report in a browser: it is whole, fits its window, loads nothing, and runs nothing."""

import socket
from typing import Any

import pytest

from queue_report.page.document import SECTIONS, make_page
from support.spark.page.chromium import DARK, LIGHT, NO_SCRIPTS, observe
from support.spark.page.page_rows import HOSTILE, month

NAMES = [name for name, _, _ in SECTIONS]


def knocks(trap: socket.socket) -> bool:
    try:
        trap.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What Chromium has of the page in a wide and a narrow window, without scripts, and in the dark.

    One Chromium shows the page in several frames: to start one takes much longer than a frame.
    """
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.setblocking(False)
        page = tmp_path_factory.mktemp("page") / "page.html"
        page.write_text(make_page(month(HOSTILE.replace("192.0.2.1", f"127.0.0.1:{trap.getsockname()[1]}"))))
        wide, narrow, plain, still = observe(page, [(1280, ""), (360, ""), (1000, ""), (1000, NO_SCRIPTS)], LIGHT)
        (dark,) = observe(page, [(1000, "")], DARK)
        wide["knocks"] = knocks(trap)
    return {"wide": wide, "narrow": narrow, "light": plain, "no scripts": still, "dark": dark}


@pytest.mark.parametrize("window", ["wide", "narrow"])
def test_page_is_whole_in_a_wide_window_and_in_a_narrow_one(seen: dict[str, dict[str, Any]], window: str) -> None:
    found = seen[window]
    assert found["sections"] == NAMES
    assert found["width"] <= found["room"] <= {"wide": 1280, "narrow": 360}[window]
    assert len(found["plots"]) == 10
    assert min(found["plots"]) >= 10
    assert found["cut"] == [], "a plot that is wider than its place"
    assert found["small"] > 8, "text in a plot that nobody can read"


def test_nothing_is_loaded_or_run(seen: dict[str, dict[str, Any]]) -> None:
    for found in seen.values():
        # Nothing of a log's text became markup.
        assert (found["title"], found["active"], found["loaded"]) == ("Mail queues", 0, [])
    assert not seen["wide"]["knocks"]


def test_page_follows_the_reader_into_the_dark(seen: dict[str, dict[str, Any]]) -> None:
    assert seen["light"]["paper"] != seen["dark"]["paper"]
    assert seen["light"]["ink"] != seen["dark"]["ink"]


def test_page_looks_the_same_without_scripts(seen: dict[str, dict[str, Any]]) -> None:
    assert seen["no scripts"] == seen["light"]
