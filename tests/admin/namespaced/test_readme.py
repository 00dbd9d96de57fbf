"""README's commands, as they stand there but for the home's path and the relay, and where the first mails then go.

Run by tests/admin/test_accounts.py inside a mount namespace whose /etc is private, as root.
"""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.forked import BIN
from support.processes.suite import wait_until
from support.processes.supervision import Runit
from support.servers.smtp.sink import Sink
from support.tools import need

README = (BIN.parent / "README.md").read_text()
# The namespace has a private /opt, but for a home below /var the real /var would be changed.
HOME = "/opt/queue"
PROGRAMS = Path("/opt/queue-suite/bin")


def commands(heading: str) -> list[str]:
    """Return the blocks of commands in a section of the README."""
    section = README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [textwrap.dedent(block) for block in re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)]


def shell(text: str, **more: str) -> None:
    """Run commands, each of which must succeed; `more` is added to the environment, and `user` runs them."""
    environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}:/usr/sbin:/sbin", "QUEUE_HOME": HOME, **more}
    text = text.replace("/var/queue", HOME)
    done = subprocess.run(
        ["sh", "-e", "-c", text], env=environment, user=more.get("USER"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"


@pytest.fixture
def installed(place: Path) -> Iterator[Path]:
    """An /opt with the programs in it, and a user `you`; yield `place`."""
    for directory in ("/opt", "/var/log"):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", directory], check=True)
    shutil.copytree(BIN, PROGRAMS)
    # `env python3`, and programs that look beside themselves, are to find what runs the tests. The packages are
    # where PYTHONPATH says, which an isolated interpreter does not read.
    (PROGRAMS / "python3").write_text(f'#!/bin/sh\n[ "$1" != -I ] || shift\nexec "{sys.executable}" "$@"\n')
    (PROGRAMS / "python3").chmod(0o755)
    subprocess.run([need("useradd"), "-m", "-d", str(place / "you"), "-s", "/bin/sh", "you"], check=True)
    try:
        yield place
    finally:
        # By force: another run's user may have the same number, and processes.
        subprocess.run(["userdel", "--force", "you"], check=False, capture_output=True)
        shutil.rmtree("/etc/queue-suite", ignore_errors=True)
        for directory in ("/opt", "/var/log"):
            subprocess.run(["umount", directory], check=True)


def test_what_the_readme_says_makes_a_queue_that_delivers_its_first_mails(installed: Path) -> None:
    init = commands("Install")[-1]
    configure, make_maildir, _, serve, send = commands("First configuration")[:5]
    new = installed / "you/Maildir/new"
    postmaster = Path(HOME, "alias/Maildir/new")
    with Sink() as relay:
        shell(init)
        shell(configure.replace("relay.example.net:25", f"127.0.0.1:{relay.port}"))
        shell(make_maildir, USER="you", HOME=str(installed / "you"))
        supervisor = Runit(installed)
        supervisor.service, supervisor.log_directory = Path("/etc/queue-suite"), Path("/var/log/queue")
        os.makedirs("/etc/service", exist_ok=True)
        shell(serve)
        # A directory of its own: this machine's /etc/service may list other services.
        (supervisor.scan / "queue-suite").symlink_to(os.readlink("/etc/service/queue-suite"))
        with supervisor:
            sent = send.replace("ann@example.org", "you@example.org").splitlines()
            shell("\n".join(line for line in sent if not line.startswith(("tail", "queuectl show"))))
            wait_until(lambda: len(list(new.iterdir())) == 1, why="the first mail")
            shell("echo hello | queue-inject postmaster@example.org postmaster@mail.example.org someone@far.example")
            wait_until(lambda: len(list(postmaster.iterdir())) == 2, why="postmaster's mail")
            relay.wait_for(2)
            shell("echo hello | queue-inject -f you@mail.example.org no-such-user@example.org")
            wait_until(lambda: len(list(new.iterdir())) == 2, why="the bounce to a user of this host")
        assert len(relay.taken) == 2
    assert "no-such-user@example.org" in "".join(mail.read_text() for mail in new.iterdir())
