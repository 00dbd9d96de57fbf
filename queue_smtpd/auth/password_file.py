"""control/smtpdusers as the server uses it: read anew when it has changed, and asked about passwords.

A user who does not exist costs the same time as one who does: the password is checked against the hash of another one,
and the answer is no. Which one is the same each time. A file that everybody may read, or others than root and its owner
may write, is not used.
"""

import errno
import hashlib
import hmac
import os
from contextlib import suppress

from queue_base.accounts import SMTPD_ACCOUNT
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_base.secret_files import find_fault
from queue_smtp.auth_server import ROUNDS, digest_of, knows_password, make_up_verifier, make_verifier
from queue_wire.control.lines import refuse_nul
from queue_wire.control.smtpdusers import Proof, SharedSecret, UserPasswords, Verifier, unpack_users
from queue_wire.format_error import FormatError, wrong_in

FILE_MAX = 64 << 20
_ADVICE = {
    errno.EACCES: f"; chgrp {SMTPD_ACCOUNT} and chmod 640 allow it",
    errno.ELOOP: "; it is a link, and must be the file itself",
}
_NOBODY = Verifier(ROUNDS, bytes(16), bytes(32), bytes(32))


def _has_hash(password: bytes, known: bytes) -> bool:
    # Imported here because few files have such hashes, and ctypes takes time.
    from queue_smtpd.auth.crypt_hashes import matches_crypt

    return matches_crypt(password, known)


class PasswordFile:
    """The file, whose methods may be called in any thread. `present`: it is there, whether it can be used or not."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._path = f"{home.control}/smtpdusers"
        self._seen: tuple[int, ...] | None = None
        self._found = UserPasswords({})
        self._choices: list[Proof] = []
        # Verifiers of the users who have a password for CRAM-MD5, with the proof and the salt that each is made of.
        self._made: dict[bytes, tuple[Verifier, SharedSecret, bytes]] = {}
        self._secret = b""
        self.present = False

    @property
    def all_scram(self) -> bool:
        """Whether every user has a verifier for SCRAM, or a password that one can be made of."""
        return all(self.verifier(user) is not None for user in self._found.users)

    @property
    def any_shared(self) -> bool:
        """Whether a user has a password for CRAM-MD5."""
        return any(isinstance(each, SharedSecret) for each in self._choices)

    @property
    def secret(self) -> bytes:
        """What verifiers for users who do not exist are made up with."""
        return self._secret

    def refresh(self) -> bool:
        """Read the file if it has changed, and return whether it has. Raises Temporary if it cannot be used."""
        try:
            # A FIFO must not stop the program, and a link must not lead elsewhere.
            handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
        except FileNotFoundError:
            changed = self.present
            self.present, self._seen = False, None
            self._take(UserPasswords({}), b"")
            return changed
        except OSError as error:
            self.present, self._seen = True, None
            advice = _ADVICE.get(error.errno or 0, "")
            raise Temporary(f"unable to read {self._path}: {reason(error)}{advice}") from error
        self.present = True
        with open(handle, "rb") as file:
            found = os.fstat(handle)
            seen = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_mode)
            if seen == self._seen:
                return False
            self._seen = None
            self._check(found)
            data = file.read(FILE_MAX + 1)
        if len(data) > FILE_MAX:
            raise Temporary(f"unable to use {self._path}: it has more than {FILE_MAX} bytes")
        try:
            refuse_nul(data)
            self._take(unpack_users(data), data)
        except FormatError as error:
            advice = "queuectl passwd writes such lines"
            # `from None`: a traceback would show lines of the file.
            raise Temporary(f"unable to parse {wrong_in(self._path, error)}; {advice}") from None
        self._seen = seen
        return True

    def verifier(self, user: bytes) -> Verifier | None:
        """Return a user's verifier for SCRAM, None if there is none."""
        found = self._found.users.get(user)
        if isinstance(found, Verifier):
            return found
        made = self._made.get(user)
        return None if made is None else made[0]

    def is_right(self, user: bytes, password: bytes) -> bool:
        """Return whether a user has this password. It takes as long for a user who does not exist. Raises OSError."""
        known = self._found.users.get(user)
        tried = self._another(user) if known is None else known
        if isinstance(tried, bytes):
            right = _has_hash(password, tried)
        elif isinstance(tried, Verifier):
            right = knows_password(tried, password)
        else:
            right = hmac.compare_digest(tried.password, password)
        return right and known is not None

    def has_answered(self, user: bytes, challenge: bytes, digest: bytes) -> bool:
        """Return whether a user has answered a challenge of CRAM-MD5 as who knows the password."""
        known = self._found.users.get(user)
        password = known.password if isinstance(known, SharedSecret) else self._secret
        right = hmac.compare_digest(digest_of(challenge, password), digest)
        return right and isinstance(known, SharedSecret)

    def _another(self, user: bytes) -> Proof:
        if not self._choices:
            return _NOBODY
        digest = hmac.new(self._secret, b"another:" + user, hashlib.sha256).digest()
        return self._choices[int.from_bytes(digest[:8], "big") % len(self._choices)]

    def _take(self, found: UserPasswords, data: bytes) -> None:
        self._found = found
        self._choices = list(found.users.values())
        self._secret = found.secret or hashlib.sha256(b"secret of " + data).digest()
        # Not when one is asked for: the time would tell who has such a password. One takes milliseconds, so those that
        # would be the same are kept.
        before, self._made = self._made, {}
        for user, proof in found.users.items():
            if isinstance(proof, SharedSecret):
                salt = make_up_verifier(user, self._secret).salt
                made = before.get(user)
                if made is not None and made[1:] == (proof, salt):
                    self._made[user] = made
                    continue
                with suppress(FormatError):
                    self._made[user] = make_verifier(proof.password, salt), proof, salt

    def _check(self, found: os.stat_result) -> None:
        fault = find_fault(self._home, found, of_smtpd=True)
        if fault is not None:
            raise Temporary(f"unable to use {self._path}: {fault}")
