"""The page's HTML: every section, every text of a log as text, and nothing that comes from elsewhere."""

import base64
import hashlib
import os
import re
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.errors import Temporary
from queue_report.page.data import PageData
from queue_report.page.document import SECTIONS, STYLE, make_page
from queue_report.page.markup import log_text, name_text, reason_text, shown
from queue_report.page.scales import make_bins
from queue_report.page.write import replace as put
from queue_wire.html import Markup, join, tag
from support.spark.page.page_rows import END, month


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
        if tag not in ("meta", "wbr"):
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


def empty() -> PageData:
    return PageData(END, "2026-04-01T00:00:05+00:00", 1, "", 0.0, 0.0, None, make_bins(0, 0))


def test_page_of_an_empty_lake_has_all_sections_too_and_says_that_there_is_nothing() -> None:
    page = make_page(empty())
    assert [name for name, _, _ in SECTIONS] == re.findall('<section id="([a-z]+)">', page)
    assert "No mail." in page and "<b>no log</b>" in page and "There is nothing in the lake." in page
    assert "messages waiting" not in page


def test_page_says_at_the_top_of_conservation_whether_all_adds_up() -> None:
    data = month()
    assert "✗ </strong>2 recipients are not accounted for" in make_page(data)
    whole = [row for row in data.conserved if not row.difference]
    page = make_page(replace(data, conserved=whole, problems=()))
    assert "✓ </strong>All 80,000 recipients are accounted for." in page


def test_a_run_that_lost_a_daemon_and_one_that_was_killed_are_no_clean_stops() -> None:
    lines = {"mx1/main": {"exiting": 7, "died": 2, "crash": 1, "alert": 2}}
    page = make_page(replace(month(), lines=lines))
    row = re.findall(r"<td[^>]*>([^<]*)</td>", page.partition("Lines read</span>")[2])[:8]
    assert row == ["12", "0", "0", "7", "2", "1", "2", "0"]


def test_bars_of_what_is_still_dead_end_where_the_log_ends() -> None:
    data = month()
    episode = data.episodes[0]._replace(domain="gone.example", began=data.end - 3 * 86_400, ended=None, kind="dead")
    page = make_page(replace(data, episodes=[episode], last=data.end))
    x, width = re.findall(r'<rect class="dead" x="([\d.]+)%" y="3" width="([\d.]+)%"', page)[0]
    assert abs(float(x) + float(width) - 100) < 0.02
    assert "still" in page


def test_a_name_is_not_broken_and_a_long_word_only_where_it_may_be() -> None:
    assert name_text("mail.some-company.example") == '<bdi class="log name">mail.some-company.example</bdi>'
    long = "a-very-long-name-of-a-host." * 3 + "example"
    assert re.sub("<wbr>", "", log_text(long)) == f'<bdi class="log">{long}</bdi>'
    assert all(len(part) <= 36 for part in re.split("<wbr>", log_text(long)[17:-6]))
    assert reason_text("Sorry,_it_is_away._(#4.4.1)/") == '<bdi class="log">Sorry, it is away. (#4.4.1)</bdi>'
    assert shown("one two three four", 14) == "one two three…"


@given(st.text(max_size=60))
def test_any_text_stays_text(text: str) -> None:
    made = tag("p", text, title=text)
    parts = re.fullmatch(r'<p title="([^"<>]*)">([^<>]*)</p>', made, re.DOTALL)
    assert parts
    assert parts[1] == parts[2]
    assert join(Markup("<br>"), "<br>") == "<br>&lt;br&gt;"


@given(st.text(max_size=200))
def test_text_of_a_log_shows_no_character_that_moves_others_and_is_cut(text: str) -> None:
    seen = shown(text, 50)
    assert len(seen) <= 50
    assert not [c for c in seen if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
    assert shown("e" + "\u0301" * 40) == "e" + "\u0301" * 3


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
