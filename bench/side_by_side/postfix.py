"""Postfix as a side: an instance of its own with Debian's master.cf, beside the one that the machine may have.

Daemons are not chrooted, since a chroot wants copies of files of /etc; that costs nothing while mail runs.
"""

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import psutil

from disk import read_disk
from processes import family, named, tree_usage
from side_by_side.feeder import feed
from side_by_side.figures import THEIRS
from side_by_side.mail import RELAY, SENDER, SMALL, Mail, Routes, letter
from side_by_side.side import DEFERRED, DELIVERED, FINISHED, Filled, Injection, Side, Verdict, greets
from support.processes.suite import wait_until
from support.servers.ports import free_port
from support.tools import need

MASTER_CF = Path("/usr/share/postfix/master.cf.dist")
# What main.cf has beside its own directories and names: the value, and why. All else is Postfix's default.
SETTINGS = {
    "compatibility_level": ("3.6", "as Debian sets it"),
    "inet_interfaces": ("127.0.0.1", "nothing listens elsewhere"),
    "inet_protocols": ("ipv4", "as the receivers"),
    "mydestination": ("", "all mail is remote"),
    "alias_maps": ("", "there is no local mail"),
    "relayhost": ("[127.0.0.1]:...", "the receiver; ours has it in smtproutes"),
    "transport_maps": ("...", "receivers of single domains; ours has them in smtproutes"),
    "maillog_file": ("...", "postlogd writes the log to a file, as ours is"),
}
FILLING = {"in_flow_delay": ("0", "only while the queue is filled and qmgr is stopped; else the default, 1s")}
SESSIONS = 20
_STATUS = re.compile(rb" to=<([^>]*)>, .* status=(sent|deferred|bounced|expired)")
_DEADLINE = 60.0
_FEED_SESSIONS = 8


class Postfix(Side):
    """An instance of Postfix."""

    name = THEIRS
    texts: ClassVar[dict[str, bytes]] = {
        DELIVERED: b" status=sent ",
        DEFERRED: b" status=deferred ",
        FINISHED: b": removed\n",
    }
    trouble = rb" (?:fatal|panic|error): | status=(?:bounced|expired)"

    def __init__(self, place: Path, scratch: Path, traced: bool = False, large: bool = False) -> None:
        super().__init__(place, scratch, traced, large)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("etc", "queue", "data"):
            (place / name).mkdir()
        shutil.chown(place / "data", "postfix")
        self._etc = place / "etc"
        services = MASTER_CF.read_text()
        services = re.sub(r"^(\S+\s+\S+\s+\S+\s+\S+\s+)y(?=\s)", r"\1n", services, flags=re.MULTILINE)
        services = re.sub(r"^smtp(?= +inet )", f"127.0.0.1:{self.port}", services, flags=re.MULTILINE)
        (self._etc / "master.cf").write_text(services)

    def route(self, routes: Routes) -> None:
        """Write main.cf and its table of transports."""
        self._routes = routes
        transports = [f"{domain} smtp:[{address}]:{port}\n" for domain, (address, port) in routes.others.items()]
        (self._etc / "transport").write_text("".join(transports))
        self._write_main()
        if not (self.place / "queue/maildrop").exists():
            # Makes the directories of the queue.
            subprocess.run([need("postfix"), "-c", str(self._etc), "check"], check=True, capture_output=True)
        if transports:
            subprocess.run([need("postmap"), "-c", str(self._etc), f"hash:{self._etc}/transport"], check=True)

    def _write_main(self, filling: bool = False) -> None:
        own = {
            "queue_directory": f"{self.place}/queue",
            "data_directory": f"{self.place}/data",
            "maillog_file": str(self.log),
            "maillog_file_prefixes": str(self.place),
            "myhostname": "bench.example",
            "relayhost": f"[127.0.0.1]:{self._routes.port}",
            "transport_maps": f"hash:{self._etc}/transport" if self._routes.others else "",
        }
        chosen = {name: value for name, (value, _) in {**SETTINGS, **(FILLING if filling else {})}.items()}
        (self._etc / "main.cf").write_text("".join(f"{name} = {value}\n" for name, value in {**chosen, **own}.items()))

    @property
    def root(self) -> int:
        """The script that started master; strace, where syncs are counted."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the daemons; return at once."""
        words = self.traced([need("postfix"), "-c", str(self._etc), "start-fg"])
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def listen(self) -> int:
        """Return the port of smtpd, which runs with the others."""
        return self.port

    def wait_ready(self) -> None:
        """Return when smtpd greets and qmgr runs."""
        wait_until(lambda: greets(self.port), why="smtpd of Postfix")
        wait_until(lambda: self._daemons("qmgr"), why="qmgr")

    def _daemons(self, program: str) -> list[int]:
        return [pid for name, pid in named(self.root, program) if name == program]

    def manager(self) -> int:
        """Return qmgr."""
        return self._daemons("qmgr")[0]

    def stop(self) -> None:
        """Stop the daemons, if they run."""
        process, self._process = self._process, None
        if process is None:
            return
        every = family(process.pid)
        try:
            master = int((self.place / "queue/pid/master.pid").read_text())
            os.kill(master, signal.SIGTERM)
        except (OSError, ValueError):
            process.kill()  # It has not come so far.
        for pid in every:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        end = time.monotonic() + _DEADLINE
        while process.poll() is None or any(map(psutil.pid_exists, every)):
            if time.monotonic() > end:
                for pid in filter(psutil.pid_exists, every):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def fill(self, mail: Mail) -> Filled:
        """Put mail in by SMTP while qmgr is stopped by a signal; then stop all."""
        self._write_main(filling=True)
        self.start()
        try:
            self.wait_ready()
            os.kill(self.manager(), signal.SIGSTOP)
            disk, before, begun = read_disk(self.place), tree_usage(self.root), time.monotonic()
            if len(mail.domains) == 1:
                self.batch(mail).wait()
            else:
                feed(self.port, mail, _FEED_SESSIONS)
            seconds = time.monotonic() - begun
            return Filled(seconds, tree_usage(self.root) - before, read_disk(self.place) - disk)
        finally:
            self.stop()
            self._write_main()

    @contextlib.contextmanager
    def accepting(self) -> Iterator[None]:
        """Run the daemons, with pickup stopped by a signal. Their syncs do not count."""
        traced, self._traced = self._traced, False
        self.start()
        self._traced = traced
        try:
            self.wait_ready()
            wait_until(lambda: self._daemons("pickup"), why="pickup")
            os.kill(self._daemons("pickup")[0], signal.SIGSTOP)
            yield
        finally:
            self.stop()

    def batch(self, mail: Mail) -> Injection:
        """Begin smtp-source with 20 sessions; what it costs itself does not count. All mail is for one domain."""
        [domain] = mail.domains
        text = self.scratch / "message"
        text.write_bytes(letter(mail.size))
        options = ["-d", "-N", "-s", str(min(SESSIONS, mail.messages)), "-m", str(mail.messages), "-F", str(text)]
        words = [need("smtp-source"), *options, "-f", SENDER, "-t", f"bob@{domain}", f"127.0.0.1:{self.port}"]
        return Injection(subprocess.Popen(words, stdout=subprocess.DEVNULL), False)

    def one(self, recipient: str) -> list[str]:
        """Return a sendmail."""
        return ["/usr/sbin/sendmail", "-C", str(self._etc), "-i", "-f", SENDER, recipient]

    def is_empty(self) -> bool:
        """Whether no message has a file."""
        top = self.place / "queue"
        for kind in ("maildrop", "incoming", "active", "deferred"):
            for _, _, names in os.walk(top / kind):
                if names:
                    return False
        return True

    def verdicts(self, lines: bytes) -> Iterator[Verdict]:
        """Yield the results of attempts."""
        for recipient, status in _STATUS.findall(lines):
            yield Verdict(recipient.decode(), status == b"sent")

    def make_deferred(self, messages: int) -> None:
        """Make copies of a message that was deferred, under names like qmgr's; qmgr opens none before it is due."""
        top, due = self.place / "queue", time.time() + 86400
        for digit in "0123456789ABCDEF":
            (top / "deferred" / digit).mkdir(exist_ok=True)
            shutil.chown(top / "deferred" / digit, "postfix")
        owner = pwd.getpwnam("postfix").pw_uid
        text = self._deferred_message()
        new = str(top / "incoming/new")
        for number in range(messages):
            handle = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o700)
            try:
                os.write(handle, text)
                os.fchown(handle, owner, -1)
                inode = os.fstat(handle).st_ino
            finally:
                os.close(handle)
            os.utime(new, (due, due))
            # A queue id: microseconds in five hexadecimal digits, the first of which names the directory; the inode.
            name = f"{number % 1_000_000:05X}{inode:X}"
            os.rename(new, f"{top}/deferred/{name[0]}/{name}")

    def _deferred_message(self) -> bytes:
        """Send a message while nobody takes mail, and return its file."""
        self.start()
        try:
            self.wait_ready()
            subprocess.run(self.one(f"bob@{RELAY}"), input=letter(SMALL), env=self.environment(), check=True)
            wait_until(lambda: any((self.place / "queue/deferred").glob("*/*")), why="a deferred message")
        finally:
            self.stop()
        [path] = (self.place / "queue/deferred").glob("*/*")
        data = path.read_bytes()
        path.unlink()
        return data
