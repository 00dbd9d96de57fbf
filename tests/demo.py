#!/usr/bin/env python3
"""The demo: a home, the suite and a receiving SMTP server, five messages, and a check of everything that came out.

usage: bin/demo [--keep]      (which sets up .venv and runs this with its Python)

A local message, one with three remote recipients, one that the server refuses and that bounces, one that it first
defers, and one that comes in by SMTP with AUTH under TLS, while a stranger is refused. Nothing leaves this machine: all
remote mail goes to a server on 127.0.0.1. Exit 0 if every check came out right; 1 if not, and then the home stays and
is named; 130 for Ctrl-C.
"""

import argparse
import shlex
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from support.demo.home import DemoHome
from support.demo.screen import Screen
from support.demo.story import ANSWERS, DEADLINE, Demo
from support.processes.suite import Suite
from support.servers.smtp.smtp_server import SmtpServer

# Beside the interpreter, where pip puts them.
PROGRAMS = Path(sys.executable).parent
STOPPERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def tell(screen: Screen, path: Path) -> None:
    """Make the home, start what is needed, tell the story, stop everything again."""
    home = DemoHome(path, PROGRAMS, screen)
    with SmtpServer() as server:
        server.recipient_answers.update(ANSWERS)
        screen.title(f"0. A home in {path}, an SMTP server on 127.0.0.1 port {server.port}, and the suite")
        home.make(server.port)
        screen.command("queue-start")
        suite = Suite(home.home, programs=PROGRAMS, on_line=screen.log)
        try:
            suite.wait_for(r"^status: local 0/\d+ remote 0/\d+$", 1, DEADLINE)
            Demo(screen, home, server, suite).tell()
        finally:
            # A second Ctrl-C must not keep the processes from being stopped.
            for number in STOPPERS:
                signal.signal(number, signal.SIG_IGN)
            suite.stop(DEADLINE)
            (path / "log").write_text("".join(f"{line}\n" for line in suite.lines))


def show_kept(screen: Screen, path: Path) -> None:
    """Print how to look around in a home that stays."""
    queuectl, home = shlex.quote(str(PROGRAMS / "queuectl")), shlex.quote(str(path / "home"))
    screen.say(f"""
The home is {path / "home"}, the log {path / "log"}. To look around:
    find {home}/alias -type f
    {queuectl} --home {home} list
    {queuectl} --home {home} stat
    rm -r {shlex.quote(str(path))}""")


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main(argv: list[str]) -> int:
    """Return 0 if everything came out right, 1 if not."""
    parser = argparse.ArgumentParser(prog="bin/demo", description="Shows the whole suite at work, and checks it.")
    parser.add_argument("--keep", action="store_true", help="leave the home, and say how to look around in it")
    keep = parser.parse_args(argv[1:]).keep
    if not (PROGRAMS / "queue-start").exists():
        sys.stderr.write("demo: fatal: unable to find queue-start beside this Python; start bin/demo, which sets up\n")
        return 1
    for number in STOPPERS:
        signal.signal(number, _leave)
    began = time.monotonic()
    screen, path = Screen(), Path(tempfile.mkdtemp(prefix="queue-demo-"))
    try:
        tell(screen, path)
    except Exception as error:
        screen.check(f"the demo comes to its end; {type(error).__name__}: {error}", False)
    except SystemExit as left:
        if not keep:
            shutil.rmtree(path, ignore_errors=True)
        screen.say("\nStopped; nothing is left running.")
        return int(str(left.code))
    seconds = time.monotonic() - began
    if screen.failed:
        screen.say(f"\nNOT OK: {len(screen.failed)} of {len(screen.failed) + screen.passed} checks, in {seconds:.1f} s")
    else:
        screen.say(f"\nAll {screen.passed} checks are ok, in {seconds:.1f} s.")
    if keep or screen.failed:
        show_kept(screen, path)
    else:
        shutil.rmtree(path)
    return 1 if screen.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
