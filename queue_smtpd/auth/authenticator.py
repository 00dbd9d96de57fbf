"""Who may authenticate, by which mechanisms, and whether a password is right. It is checked in threads.

control/checkpassword names a program that knows the passwords; without it they are in control/smtpdusers. SCRAM needs a
verifier, so it is not offered if a user has a hash of crypt, of which none can be made. CRAM-MD5 needs a password that
the server has, too; it is offered if a user has one, for ATRN alone.

Hashing, or the program, takes time, so a password is checked in one of a few threads. If too many wait, the answer is
that it cannot be checked now; so it is if the file or the program is in trouble, which the log has once.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_smtp.auth_server import CRAM_MD5, MECHANISMS
from queue_smtpd.auth.check_program import ask_program
from queue_smtpd.auth.password_file import PasswordFile
from queue_smtpd.processes.log_writer import LogWriter
from queue_wire.control.smtpdusers import Verifier
from queue_wire.logline import alert

THREADS = 8
# Passwords that wait for a thread, or are in one.
PENDING_MAX = 100
_WITHOUT_VERIFIERS = (b"PLAIN", b"LOGIN")

Found = TypeVar("Found")


class AuthOffer(NamedTuple):
    """What a session offers: mechanisms, none if nobody can authenticate, and the secret for made-up verifiers."""

    mechanisms: tuple[bytes, ...] = ()
    secret: bytes = b""

    def __repr__(self) -> str:
        return f"AuthOffer({self.mechanisms!r}, ***)"


class Authenticator:
    """Checks passwords. `offer` is what to offer now; `refresh` brings it up to date."""

    def __init__(self, home: Home, log: LogWriter) -> None:
        self._log = log
        self._file = PasswordFile(home)
        self._program: list[bytes] = []
        self._pool = ThreadPoolExecutor(THREADS, "password")
        self._pending = 0
        self._trouble = ""
        self.offer = AuthOffer()

    def configure(self, program: list[bytes]) -> None:
        """Use this program, with its arguments, from now on; the file if there is none."""
        self._program = program

    def refresh(self) -> bool:
        """Look at the file again; return whether the offer has changed. It may be called in a thread."""
        before = self.offer
        if self._program:
            self.offer = AuthOffer(_WITHOUT_VERIFIERS)
            return self.offer != before
        try:
            self._file.refresh()
            trouble = ""
        except Temporary as error:
            trouble = str(error)
        self._note(trouble)
        mechanisms = MECHANISMS if self._file.all_scram and not trouble else _WITHOUT_VERIFIERS
        shared = (CRAM_MD5,) if self._file.any_shared and not trouble else ()
        self.offer = AuthOffer((*mechanisms, *shared), self._file.secret) if self._file.present else AuthOffer()
        return self.offer != before

    async def check_password(self, user: bytes, password: bytes, challenge: bytes = b"") -> bool | None:
        """Return whether a password, or the response to a challenge, is right; None if it cannot be checked now."""
        return await self._run(lambda: self._is_right(user, password, challenge))

    async def find_verifier(self, user: bytes) -> tuple[Verifier | None] | None:
        """Return (the verifier of a user,), (None,) if there is none; None if it cannot be looked up now."""
        return await self._run(lambda: self._verifier(user))

    async def _run(self, work: Callable[[], Found]) -> Found | None:
        if self._pending >= PENDING_MAX:
            return None
        self._pending += 1
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._pool, work)
            self._note("")
            return found
        except Temporary as error:
            self._note(str(error))
        except OSError as error:
            self._note(f"unable to check passwords: {reason(error)}")
        except RuntimeError as error:
            self._note(f"unable to check passwords: {error}")  # There can be no more threads.
        finally:
            self._pending -= 1
        return None

    def _is_right(self, user: bytes, password: bytes, challenge: bytes) -> bool:
        if self._program:
            return not challenge and ask_program(self._program, user, password)
        self._file.refresh()
        if challenge:
            return self._file.has_answered(user, challenge, password)
        return self._file.is_right(user, password)

    def _verifier(self, user: bytes) -> tuple[Verifier | None]:
        self._file.refresh()
        return (self._file.verifier(user),)

    def _note(self, trouble: str) -> None:
        """Log trouble when it begins, or is another one."""
        if trouble and trouble != self._trouble:
            self._log.write([alert(f"{trouble}; nobody can authenticate now")])
        self._trouble = trouble
