"""Keeps what this queue-report makes of the logs in logs.tar.xz as tables.jsonl.xz, or says what is not as it was.

usage: PYTHONPATH=.:spark:tests python tests/spark/frozen/freeze.py [compare [TREE ...]]

Each tree is built alone, in one piece; `compare` builds it alone in each way of the test, and prints the rows that
differ. Freeze anew only where a change of the tables is meant, after a look at what differs. A tree is a directory of
logs.tar.xz, NAME/logs/HOST/QUEUE/, as support/spark/frozen_tables.py describes it. With a new one, pack them again:

  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cJf logs.tar.xz -C DIRECTORY .

A line of tables.jsonl.xz is the tree, the table, and a row in JSON, with tabs between them. Without a table, the
rest is how many lines of each kind the tree has. The trees are

  real-*        what suites and queue-smtpd have logged in other tests, under kills and restarts
  demo, bench   parts of the logs of `queue-report demo` and of bench/report
  world-*       simulated queues (log_world.py), rotated, some by multilog and svlogd themselves
  damaged-*     the same, cut short, with lines and files that are lost or doubled, and with garbage
  doubled, repeats, copies, any
                lines and files that are there twice; what they are to count for is a decision
  clock, packed, garbage, renumbered, reasons, places, names, ...
                what is hard in the logs that tests write by hand
  flat, given, given-queue, beside
                logs that are built alone, with an order of their own
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from support.spark.frozen_tables import WAYS, Tables, Tree, build_trees, compare, in_order, unpack_trees, write_frozen


def made_of(trees: list[Tree], directory: Path) -> Iterator[tuple[str, Counter[str], Tables]]:
    """Build each tree; yield what came of it."""
    for tree in trees:
        lines, tables = build_trees([tree], "one piece", directory / f"{tree.name}.lake")
        yield tree.name, lines, in_order(tables)


def main(words: list[str]) -> int:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        trees = unpack_trees(place / "trees")
        if words[:1] != ["compare"]:
            write_frozen(made_of(trees, place))
            return 0
        told = [
            text
            for tree in trees
            for way in WAYS
            if tree.name in words[1:] or not words[1:]
            for text in compare([tree], way, place / f"{tree.name} {way}")
        ]
        print("\n".join(told) or "all is as it was")
        return bool(told)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
