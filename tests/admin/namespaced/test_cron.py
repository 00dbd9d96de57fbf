"""Debian's cron, which calls /usr/sbin/sendmail and nothing else, mails the output of a job, as a user who may not
write to the queue.

Run by tests/admin/test_accounts.py inside a mount namespace whose /etc is private, as root.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from queue_base.home import Home
from support.processes.suite import Suite, program, wait_until
from support.tools import need, need_file

SENDMAIL = "/usr/sbin/sendmail"
SPOOL = "/var/spool/cron"
USER = "crondy"


@pytest.fixture
def place(place: Path) -> Iterator[Path]:
    """Have a user with a Maildir there."""
    subprocess.run([need("useradd"), "-m", "-d", place / USER, "-s", "/bin/sh", USER], check=True)
    for box in ("new", "cur", "tmp"):
        (place / USER / "Maildir" / box).mkdir(parents=True)
    subprocess.run(["chown", "-R", f"{USER}:", place / USER / "Maildir"], check=True)
    yield place
    # By force: another run's user may have the same number, and processes.
    subprocess.run(["userdel", "--force", USER], check=False, capture_output=True)


@contextmanager
def mounted(*mounts: tuple[str, ...]) -> Iterator[None]:
    """Make mounts; take them away afterwards, the last first."""
    done: list[str] = []
    try:
        for words in mounts:
            subprocess.run(["mount", *words], check=True)
            done.append(words[-1])
        yield
    finally:
        for target in reversed(done):
            subprocess.run(["umount", target], check=True)


def test_the_output_of_a_cron_job_arrives(place: Path) -> None:
    cron = need("cron")
    need_file(SENDMAIL)
    home = Home(str(place / "home"))
    words = [*program("queuectl"), "init", home.path, "--me", "me.example", "--local", "me.example"]
    subprocess.run(words, check=True, capture_output=True)
    # cron gives it no environment of ours; a script in place of an installed program has to say where things are.
    settings = {"QUEUE_HOME": home.path, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())
    (place / "sendmail").write_text(f'#!/bin/sh\n{exports}exec {shlex.join(program("sendmail"))} "$@"\n')
    (place / "sendmail").chmod(0o755)
    # None of this machine's own jobs may run here, nor its cron know of this one.
    (place / "crontab").touch()
    empty = [("-t", "tmpfs", "tmpfs", path) for path in ("/run", SPOOL, "/etc/cron.d")]
    Path("/etc/crontab").touch()
    binds = [("--bind", str(place / "crontab"), "/etc/crontab"), ("--bind", str(place / "sendmail"), SENDMAIL)]
    with mounted(*empty, *binds), Suite(home) as suite:
        os.makedirs(SPOOL + "/crontabs")
        table = Path(SPOOL, "crontabs", USER)
        # MAILTO with two names is one argument with a comma. A @reboot job runs when cron starts.
        table.write_text(f"MAILTO={USER},no-such-user\n@reboot echo one; echo .; echo two\n")
        table.chmod(0o600)
        subprocess.run(["chown", f"{USER}:", table], check=True)
        running = subprocess.Popen([cron, "-f"], stdin=subprocess.DEVNULL)
        try:
            wait_until(lambda: list((place / USER / "Maildir/new").iterdir()), 60, "the mail of the job")
            suite.wait_for("failure:")
        finally:
            running.kill()
            running.wait(60)
        suite.wait_for(f"info msg .* from <{USER}@me.example> .* uid {(place / USER).stat().st_uid}$")
    mails = [path.read_text() for path in (place / USER / "Maildir/new").iterdir()]
    [mail] = [mail for mail in mails if f"Subject: Cron <{USER}@" in mail]
    assert mail.endswith("\n\none\n.\ntwo\n") and "\nFrom: root@me.example (Cron Daemon)\n" in mail
