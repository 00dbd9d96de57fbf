"""The demo's logs: the same each time, in directories as multilog leaves them, and queue-send's own words."""

import re
from collections import Counter
from pathlib import Path

from queue_report.demo.destinations import DAY
from queue_report.demo.multilog import Multilog, stamp
from queue_report.demo.sender import START
from queue_report.demo.things import HOSTS
from queue_report.demo.world import write_logs

LINE = re.compile(
    r"@([0-9a-f]{24}) (?:status: (?:exiting|local \d+/\d+ remote \d+/\d+(?: exitasap)?)|(new|end) msg \d+"
    r"|(info) msg \d+: bytes \d+ from <[^ ]*> qp \d+ uid \d+|(starting) delivery \d+: msg \d+ to (?:local|remote) [^ ]+"
    r"|delivery \d+: (success|failure|deferral): [^ ]*|(bounce) msg \d+ qp \d+|triple bounce: discarding bounce/\d+"
    r"|dest [^ ]+ (?:dead|alive): .*)"
)


def test_logs_of_two_days_are_the_same_each_time_in_order_and_whole(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_logs(tmp_path / name, days=2)
    one, two = (
        {path.relative_to(tmp_path / name): path.read_text() for path in sorted((tmp_path / name).rglob("*.*"))}
        | {path.relative_to(tmp_path / name): path.read_text() for path in (tmp_path / name).rglob("current")}
        for name in ("one", "two")
    )
    assert one == two
    assert {path.parts[:2] for path in one} == {(host.name, "main") for host in HOSTS}
    kinds: Counter[str] = Counter()
    for host in HOSTS:
        directory = tmp_path / "one" / host.name / "main"
        rotated = sorted(path for path in directory.iterdir() if path.name != "current")
        lines = [line for path in (*rotated, directory / "current") for line in path.read_text().splitlines()]
        matches = [LINE.fullmatch(line) for line in lines]
        stamps = []
        for line, match in zip(lines, matches, strict=True):
            assert match, line
            stamps.append(match[1])
            kinds.update(kind for kind in match.groups()[1:] if kind)
        # Stamps rise, so the order of lines is beyond doubt.
        assert stamps == sorted(set(stamps))
        assert stamps[-1] < stamp(int((START + 2 * DAY) * 10**9))[1:]
    assert kinds["new"] == kinds["info"] > 500
    assert min(kinds[kind] for kind in ("success", "failure", "deferral", "bounce", "end")) > 5


def test_power_cut_leaves_half_a_line_at_the_end_of_a_file_that_says_so(tmp_path: Path) -> None:
    log = Multilog(tmp_path, size=100)
    log.write(10**9, "status: local 0/10 remote 0/20")
    log.cut(2 * 10**9, "starting delivery 1: msg 7 to local a@b")
    log.write(3 * 10**9, "x" * 90)
    log.write(4 * 10**9, "status: exiting")
    log.close()
    names = [f"{stamp(2 * 10**9)}.u", f"{stamp(3 * 10**9)}.s", "current"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert not (tmp_path / names[0]).read_text().endswith("\n")
    assert (tmp_path / "current").read_text() == f"{stamp(4 * 10**9)} status: exiting\n"
