"""queue-remote --route, which queuectl route asks; transcripts/route.txt has what that prints."""

import subprocess

from queue_base.home import Home
from support.processes.suite import program


def test_queue_remote_tells_of_one_nexthop_only(home: Home) -> None:
    words = [*program("queue-remote"), "--home", home.path, "--route"]
    for more in ([], ["a.example", "b.example"]):
        done = subprocess.run([*words, *more], capture_output=True, timeout=60)
        assert (done.returncode, done.stdout) == (100, b"")
        assert done.stderr.startswith(b"queue-remote: fatal: ")
