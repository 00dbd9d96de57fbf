"""The demo's throw-away home: its commands, its mailboxes, its five messages, and what is left in its queue."""

import datetime
import os
import select
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from queue_base.daemon.supervisor import DESCRIPTOR
from queue_base.home import Home
from support.demo.screen import Screen
from support.smtpd.smtpd_daemon import free_ports

ME = "demo.example"
AUTHOR, READER = f"author@{ME}", f"reader@{ME}"
THREE = ["red@shop.example", "green@shop.example", "blue@shop.example"]
GONE, LATER = "gone@shop.example", "later@shop.example"

SECONDS = 30.0
PASSWORD = "correct horse"

BCC = b"Bcc: blue@shop.example\n"
_FROM = b"From: The Author <author@demo.example>\n"
LOCAL = _FROM + b"""To: reader@demo.example
Subject: to a mailbox on this host

This text goes into a Maildir.
.This line begins with a dot, and so does the next.
.
"""
REMOTE = _FROM + b"To: red@shop.example, green@shop.example\n" + BCC + b"""Subject: one message, three recipients

It travels once, for all three.
..Two dots here, and one below.
.
"""
REFUSED = _FROM + b"""To: gone@shop.example
Subject: to somebody who is not there

The server answers 550 to this recipient.
"""
DEFERRED = _FROM + b"""To: later@shop.example
Subject: in a while
Content-Type: text/plain; charset=latin-1
Content-Transfer-Encoding: 8bit

The server answers 451, and takes it the second time. Na\xefve bytes \xa1\xff\x80 stay as they are.
"""
SUBMITTED = _FROM + b"""To: reader@demo.example, red@shop.example
Subject: from a mail client

It came in by SMTP, under TLS, with a password.
.
"""


def self_signed(name: str) -> bytes:
    """Return a certificate for a host, good for a day, and its key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.sign(key, hashes.SHA256()).public_bytes(pem) + private


class DemoHome:
    """A home made with `queuectl init`. Raises OSError, and CalledProcessError for a command that fails."""

    def __init__(self, path: Path, programs: Path, screen: Screen) -> None:
        self.path = path
        self.home = Home(str(path / "home"))
        self.certificate = Path(self.home.control, "certificate.pem")
        self._programs = programs
        self._screen = screen
        # What a user's own settings would change in the messages, or in which home they go to.
        for name in list(os.environ):
            if name.startswith(("QMAIL", "QUEUE_", "MAIL")):
                del os.environ[name]
        os.environ["QUEUE_HOME"] = self.home.path

    def make(self, port: int) -> None:
        """Make it: mail for ME is local, all other mail goes to a port of the loopback interface."""
        self._screen.block(self.run("queuectl", "init", self.home.path, "--as-me", "--me", ME))
        self.write(Path(self.home.control, "smtproutes"), b":127.0.0.1:%d\n" % port)
        for name, maildir in (("reader", "Maildir"), ("author", "Maildir-author")):
            self.write(Path(self.home.alias, f".qmail-{name}"), f"./{maildir}/\n".encode())
            for part in ("cur", "new", "tmp"):
                Path(self.home.alias, maildir, part).mkdir(parents=True)

    def write(self, path: Path, data: bytes) -> None:
        """Make a file, and show how."""
        self._screen.command(f"echo '{data.decode().strip()}' >{path.relative_to(self.path)}")
        path.write_bytes(data)

    def run(self, name: str, *arguments: str, message: bytes = b"") -> bytes:
        """Run a program of the suite with a message on stdin; return its stdout."""
        self._screen.command(" ".join([name, *arguments]) + (" <message" if message else ""))
        words = [str(self._programs / name), *arguments]
        return subprocess.run(words, input=message, stdout=subprocess.PIPE, check=True, timeout=30).stdout

    def open_ports(self) -> tuple[int, int]:
        """Have queue-smtpd listen as a mail exchanger and for submission, with a certificate; return the ports."""
        mx, submission = free_ports(2)
        self.write(Path(self.home.control, "smtpd"), b"127.0.0.1:%d mx\n127.0.0.1:%d submission\n" % (mx, submission))
        self._screen.say("Without this file, clients on this host may relay, and the stranger below is on it:")
        self.write(Path(self.home.control, "relayclients"), b"")
        self._screen.say("A certificate that this demo has signed itself:")
        self.certificate.write_bytes(self_signed(ME))
        self.certificate.chmod(0o600)
        self.write(Path(self.home.control, "smtpdcert"), f":{self.certificate.name}\n".encode())
        return mx, submission

    @contextmanager
    def smtpd(self) -> Iterator[None]:
        """Run queue-smtpd, and show its log."""
        self._screen.command("queue-smtpd")
        reader, writer = os.pipe()
        process = subprocess.Popen(
            [str(self._programs / "queue-smtpd")], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            pass_fds=[writer], env={**os.environ, DESCRIPTOR: str(writer)},
        )  # fmt: skip
        os.close(writer)
        log = threading.Thread(target=self._show, args=(process.stderr,))
        log.start()
        try:
            with os.fdopen(reader, "rb") as ready:
                if not (select.select([ready], [], [], SECONDS)[0] and ready.read(1)):
                    raise OSError("queue-smtpd does not begin")
            yield
        finally:
            process.terminate()
            process.wait(SECONDS)
            log.join(SECONDS)
            if process.stderr is not None:
                process.stderr.close()

    def _show(self, log: IO[str] | None) -> None:
        for line in log or ():
            self._screen.log(line.rstrip(), "queue-smtpd")

    def enqueue(self, sender: str, recipients: list[str], message: bytes) -> None:
        """Run queue-enqueue: the message on descriptor 0, the envelope on descriptor 1."""
        envelope = b"".join(word.encode() + b"\0" for word in [f"F{sender}", *(f"T{each}" for each in recipients), ""])
        self._screen.command("printf '" + envelope.decode().replace("\0", r"\0") + "' >envelope")
        self._screen.command("queue-enqueue 0<message 1<envelope")
        (self.path / "message").write_bytes(message)
        (self.path / "envelope").write_bytes(envelope)
        with open(self.path / "message", "rb") as zero, open(self.path / "envelope", "rb") as one:
            words = [str(self._programs / "queue-enqueue")]
            subprocess.run(words, stdin=zero, stdout=one, check=True, timeout=30)

    def messages(self, maildir: str) -> list[bytes]:
        """Return the messages that arrived in a Maildir of alias/, showing each."""
        found = []
        for path in sorted(Path(self.home.alias, maildir, "new").iterdir()):
            found.append(path.read_bytes())
            self._screen.command(f"cat home/alias/{maildir}/new/{path.name}")
            self._screen.block(found[-1])
        return found

    def left_over(self) -> list[str]:
        """Return the files in queue/ but for those in intake/ and lock/, and those in the Maildirs' tmp/."""
        tops = [path for path in Path(self.home.queue).iterdir() if path.name not in ("intake", "lock")]
        tops += Path(self.home.alias).glob("*/tmp")
        return sorted(str(path) for top in tops for path in top.rglob("*") if not path.is_dir())
