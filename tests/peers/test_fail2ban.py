"""A real fail2ban reads queue-smtpd's log by the filter that we ship, and bans who guesses passwords or recipients."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_smtp import server_replies as replies
from queue_smtp.server_replies import ServerReply
from queue_smtpd.sessions import session_log as log
from support.processes.suite import wait_until
from support.smtpd.smtpd_daemon import SmtpdDaemon
from support.spark.logs.log_files import stamp
from support.tools import need, need_root

pytestmark = pytest.mark.home("ours", rcpthosts="example.org")

FILTER = Path(__file__).resolve().parents[2] / "packaging" / "fail2ban" / "queue-smtpd.conf"
WRONG, UNKNOWN, DENIED = replies.BAD_CREDENTIALS, replies.UNKNOWN_RECIPIENT, replies.RELAYING_DENIED
HOSTILE = b"x>: 550 5.1.1 no client 192.0.2.99\nsmtp 1: refused AUTH a: 535_ client 192.0.2.98"
LISTED = ServerReply(550, b"5.7.1", b"Your address 192.0.2.5 is listed by bl.example")
# What is refused, with which reply, and the modes in which it counts.
REFUSALS = [
    (b"AUTH joe", WRONG, "auth normal aggressive"),
    (b"AUTH", WRONG, "aggressive"),
    (b"AUTH ", WRONG, "auth normal aggressive"),
    (b"AUTH " + HOSTILE, WRONG, "auth normal aggressive"),
    (b"AUTH joe", replies.AUTH_FAILED_FOR_NOW, ""),
    (b"RCPT <x@h>", UNKNOWN, "normal aggressive"),
    (b"RCPT <x@h>", DENIED, "normal aggressive"),
    (b"RCPT <x@h>", LISTED, "normal aggressive"),
    (b"RCPT <" + HOSTILE + b"y" * 3000, UNKNOWN, "normal aggressive"),
    (b"RCPT <x@h>", replies.RECIPIENT_UNDECIDED, ""),
    (b"RCPT <x@h>", replies.MAILBOX_LATER, ""),
    (b"early talker", replies.EARLY_TALKER, "normal aggressive"),
    (b"MAIL <x@h>", replies.SENDER_REFUSED, "aggressive"),
    (b"PROXY", replies.PROXY_REFUSED, "aggressive"),
    (b"connect", replies.TOO_MANY_ERRORS, "aggressive"),
    (b"DATA", replies.TOO_MANY_MESSAGES, ""),
]


def stamped(lines: list[bytes]) -> str:
    """Return lines as the supervisor's logger writes them."""
    return "".join([f"{stamp(time.time_ns())} {line.decode('ascii')}\n" for line in lines])


@pytest.mark.parametrize("mode", ["auth", "normal", "aggressive"])
def test_the_filter_finds_the_client_of_each_refusal_and_nobody_else(tmp_path: Path, mode: str) -> None:
    lines, expected = [], []
    for number, (what, reply, modes) in enumerate(REFUSALS, 1):
        client = f"192.0.2.{number}" if number % 2 else f"2001:db8::{number}"
        lines += [
            log.connect(1, client, 40000, b"mx.example", "198.51.100.1", 25),
            log.refused(1, what, reply, client),
            log.sender_accepted(1, b"smtp 1: refused AUTH a: 535_ client 192.0.2.97", 0),
            log.ended(1, "refused", 0, 1, 0),
        ]
        if mode in modes.split():
            expected.append(client)
    lines += [log.refused(1, b"AUTH joe", WRONG, "unknown"), log.refused(1, b"AUTH joe", WRONG, "")]
    file = tmp_path / "log"
    file.write_text(stamped(lines))
    words = [need("fail2ban-regex"), "--out", "ip", str(file), f"{FILTER}[mode={mode}]"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == expected, done.stderr


def test_a_jail_bans_a_client_that_tries_to_relay(home: Home, tmp_path: Path) -> None:
    need_root()
    server = need("fail2ban-server")
    config, banned, file = tmp_path / "fail2ban", tmp_path / "banned", tmp_path / "current"
    for name in ("filter.d", "action.d"):
        (config / name).mkdir(parents=True)
    shutil.copy(FILTER, config / "filter.d")
    (config / "action.d" / "note.conf").write_text(f"[Definition]\nactionban = echo <ip> >> {banned}\n")
    (config / "fail2ban.conf").write_text(
        f"[Definition]\nloglevel = INFO\nlogtarget = {tmp_path}/log\nsyslogsocket = auto\nsocket = {tmp_path}/socket\n"
        f"pidfile = {tmp_path}/pid\ndbfile = None\ndbpurgeage = 1d\n"
    )
    (config / "jail.conf").write_text(
        f"[queue-smtpd]\nenabled = true\nfilter = queue-smtpd\nlogpath = {file}\nbackend = polling\n"
        "maxretry = 3\nfindtime = 600\nbantime = 600\nignoreself = false\naction = note\n"
    )
    file.touch()
    words = [server, "-c", str(config), "-s", f"{tmp_path}/socket", "-p", f"{tmp_path}/pid", "-xf", "start"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        try:
            with SmtpdDaemon(home) as daemon:
                for _ in range(3):
                    with daemon.smtp() as client:
                        client.ehlo("c")
                        client.mail("a@far.example")
                        assert client.rcpt("victim@elsewhere.example")[0] == 550
                wait_until(lambda: daemon.said(b"") or daemon.log.count(b"refused RCPT") == 3, 60, "the log")
            file.write_text(stamped(daemon.log.splitlines()))
            wait_until(lambda: banned.exists() and banned.read_text() == "127.0.0.1\n", 60, "the ban")
        finally:
            running.terminate()
