"""Logs of all kinds make the tables that an earlier queue-report made of them, whether they come whole or in pieces."""

from pathlib import Path

import pytest

from support.spark.frozen_tables import WAYS, compare, groups, unpack_trees


@pytest.mark.parametrize("way", WAYS)
def test_logs_make_the_tables_that_they_made_before(tmp_path: Path, way: str) -> None:
    builds = enumerate(groups(unpack_trees(tmp_path / "trees")))
    told = [text for number, trees in builds for text in compare(trees, way, tmp_path / str(number))]
    assert not told, "\n".join([f"{len(told)} differences", *told[:60]])
