"""A lake whose disk gets full, whenever that is, stays as it was, and grows as soon as there is room again."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from support.spark.full_disk import PHASES
from support.tools import need, need_private_mounts

TESTS = Path(__file__).resolve().parents[2]
# Only the program sees the disk, and it is gone with it.
ENTER = 'mount -t tmpfs -o size=2m tmpfs "$1" && exec "$2" -m support.spark.full_disk "$1"'
FULL = r"111 unable to build lake \S+: no space left on device; it is as it was, run this again to go on"


def test_a_disk_that_gets_full_in_any_phase_is_temporary_trouble_and_the_lake_stays(tmp_path: Path) -> None:
    need_private_mounts()
    (tmp_path / "disk").mkdir()
    inside = ["sh", "-c", ENTER, "sh", str(tmp_path / "disk"), sys.executable]
    done = subprocess.run(
        [need("unshare"), "--mount", "--propagation", "private", *inside],
        env={**os.environ, "PYTHONPATH": f"{TESTS.parent}:{TESTS}"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert len(found) == 2 * len(PHASES)
    for phase, (said, same, after) in found.items():
        assert re.fullmatch(FULL, said), (phase, said)
        assert same and after, phase
