"""A directory for the page that another account owns: root writes through no link of that account's."""

from pathlib import Path

import pytest

from queue_base.errors import Temporary
from queue_report.page.write import replace
from support.queues.others import give


@pytest.fixture
def theirs(place: Path) -> Path:
    """A directory of another account, beside a file of root's."""
    (place / "ours").write_text("ours")
    (place / "theirs").mkdir()
    give(place / "theirs")
    return place / "theirs"


def test_a_page_replaces_nothing_that_a_link_of_another_account_leads_to(theirs: Path) -> None:
    (theirs / "page.html").symlink_to("../ours")
    with pytest.raises(Temporary, match="is a symbolic link; it is as it was"):
        replace(theirs / "page.html", b"page")
    assert (theirs.parent / "ours").read_text() == "ours"
    (theirs.parent / "link").symlink_to("ours")
    replace(theirs.parent / "link", b"page")
    assert (theirs.parent / "ours").read_text() == "page" and (theirs.parent / "link").is_symlink()
