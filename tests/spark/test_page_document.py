"""The page's HTML: every section, every text of a log as text, and nothing that comes from elsewhere."""

import base64
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.errors import Temporary
from spark.page.collect import choose_moments, covered
from spark.page.data import PageData, Row
from spark.page.document import SECTIONS, make_page
from spark.page.markup import Markup, join, tag
from spark.page.queue import every_hour
from spark.page.style import STYLE
from spark.page.write import replace as put
from spark.reports.report import View
from support.spark.page_rows import START, month


class Reader(HTMLParser):
    """Keeps the elements and the text of a document, and sees that each element ends where it should."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []
        self.feed(document)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_page_has_all_sections_and_a_hostile_text_is_only_text() -> None:
    page = make_page(month())
    read = Reader(page)
    assert [name for name, _, _ in SECTIONS] == re.findall('<section id="([a-z]+)">', page)
    assert not read.tags & {"script", "img", "iframe", "link", "object", "base", "form"}
    assert not {name for name in read.attributes if name.startswith("on") or name in ("style", "src", "srcset")}
    said = "".join(read.text)
    assert said.count("<script>document.title='taken'</script>") > 20
    # What is not seen, or turns the line around, is marked.
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", page)
    assert "\N{REPLACEMENT CHARACTER}" in said


def test_page_refers_to_nothing_but_itself_and_lets_only_its_own_style_count() -> None:
    page = make_page(month("plain.example"))
    assert set(re.findall('href="([^"]*)"', page)) == {f"#{name}" for name, _, _ in SECTIONS}
    assert not re.search(r"https?:|url\(|@import", page)
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    assert f"default-src &#39;none&#39;; style-src &#39;sha256-{digest}&#39;" in page


def test_page_of_an_empty_lake_has_all_sections_too() -> None:
    page = make_page(PageData("2026-04-01T00:00:05+00:00", 1, "", 0.0, 0.0, {}))
    assert [name for name, _, _ in SECTIONS] == re.findall('<section id="([a-z]+)">', page)
    assert "No mail." in page and "<b>no time at all</b>" in page and "<dd>no attempts</dd>" in page


def test_page_goes_from_the_first_to_the_last_hour_or_as_it_was_asked_to_and_no_time_without_either() -> None:
    hours: dict[str, Sequence[Row]] = {
        "hours": [{"start": START}], "delays-hours": [], "backlog": [{"at": START + 7200}]
    }  # fmt: skip
    assert covered(hours, View()) == (START, START + 3 * 3600)
    nothing: dict[str, Sequence[Row]] = dict.fromkeys(hours, ())
    since, until = int(START) * 10**9, int(START + 3600) * 10**9
    assert covered(nothing, View(since, until)) == (START, START + 3600)
    for view in (View(), View(since=since), View(until=until)):
        begin, end = covered(nothing, view)
        assert begin == end


def test_page_says_at_the_top_of_conservation_whether_all_adds_up() -> None:
    data = month()
    assert "✗ </strong>2 recipients are not accounted for" in make_page(data)
    whole = [row for row in data.of("conservation") if not row["difference"]]
    page = make_page(replace(data, rows={**data.rows, "conservation": whole, "conservation-messages": []}))
    assert "✓ </strong>All 80,000 recipients are accounted for." in page


def test_hour_without_a_row_in_the_queue_was_as_the_one_before() -> None:
    rows = [{"at": START, "T": 3}, {"at": START + 3 * 3600, "T": 0}]
    assert [(at - START, row["T"]) for at, row in every_hour(rows, START, START + 5 * 3600)] == [
        (0, 3), (3600, 3), (7200, 3), (10_800, 0), (14_400, 0),
    ]  # fmt: skip


def test_moments_are_the_longest_queue_a_middling_one_and_the_last_and_each_only_once() -> None:
    rows = [{"at": START + 3600 * i, "T": length} for i, length in enumerate((1, 9, 4, 2, 3))]
    assert [at - START for _, at in choose_moments(rows, START, START + 5 * 3600)] == [3600, 14_400]
    rows[4]["T"] = 0
    assert [at - START for _, at in choose_moments(rows, START, START + 5 * 3600)] == [3600, 10_800, 14_400]
    assert choose_moments([], 0, 0) == []


@given(st.text(max_size=60))
def test_any_text_stays_text(text: str) -> None:
    made = tag("p", text, title=text)
    parts = re.fullmatch(r'<p title="([^"<>]*)">([^<>]*)</p>', made, re.DOTALL)
    assert parts
    assert parts[1] == parts[2]
    assert join(Markup("<br>"), "<br>") == "<br>&lt;br&gt;"


def test_page_is_replaced_at_once_and_keeps_its_name_where_that_fails(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    put(target, b"one")
    put(target, b"two")
    assert target.read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(Temporary, match=r"unable to write .*; it is as it was"):
        put(tmp_path / "missing" / "page.html", b"three")


def test_a_link_to_the_page_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "www").mkdir()
    (tmp_path / "page.html").symlink_to("www/index.html")
    for content in (b"one", b"two"):
        put(tmp_path / "page.html", content)
        assert (tmp_path / "www" / "index.html").read_bytes() == content
    assert (tmp_path / "page.html").is_symlink() and os.listdir(tmp_path / "www") == ["index.html"]


