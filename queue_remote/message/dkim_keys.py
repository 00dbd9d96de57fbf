"""control/dkim: which private key signs mail of which domain (RFC 6376); and the keys.

    example.org:selector:keyfile        mail whose author is at example.org, with d=example.org
    .example.org:selector:keyfile       also mail of any domain below it, with d=example.org

The most specific key counts, as in queue_wire.control.hostmap. Several lines with the same domain are several
signatures: one with rsa-sha256 and one with ed25519-sha256, as RFC 8463 advises. A keyfile without a leading slash is
in control/.

Keys are read and checked when the control files are. A file is PEM, RSA of 1,024 bits or more or Ed25519, or an Ed25519
seed in base64, as dkimpy's dknewkey writes it. If a key is missing, malformed, too small, or readable by others, mail
of its domain is deferred: never sent without signature, and never bounced.
"""

import base64
import binascii
import os
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from queue_base.control import read_parsed
from queue_base.durable import read_file
from queue_base.errors import reason
from queue_base.home import Home
from queue_base.secret_files import find_fault
from queue_wire.control.hostmap import find_key, host_key, refuse_impossible
from queue_wire.control.lines import numbered_lines
from queue_wire.format_error import FormatError, InLine, quoted

BITS_MIN = 1024
# A key of 16,384 bits has 13 kB.
_FILE_MAX = 65536

_DOMAIN = re.compile(rb"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_SELECTOR = re.compile(rb"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


class KeyLine(NamedTuple):
    """A line: the tags d= and s= of the signature, and the path of the private key."""

    domain: bytes
    selector: bytes
    path: bytes


class SigningKey(NamedTuple):
    """A private key; `sign` makes a signature of a SHA-256 digest, in any thread."""

    domain: bytes
    selector: bytes
    algorithm: bytes
    sign: Callable[[bytes], bytes]


class BadKey(Exception):
    """A key cannot be used; the text says which one, and why."""


class Keyring:
    """Keys by domain. `faults` are the reasons, by domain, why mail cannot be signed; `files` the paths of all keys."""

    def __init__(self, keys: Mapping[bytes, list[SigningKey]], faults: Mapping[bytes, str], files: list[str]) -> None:
        self._keys = keys
        self.faults = faults
        self.files = files

    def __bool__(self) -> bool:
        return bool(self._keys or self.faults)

    def find(self, domain: bytes) -> list[SigningKey]:
        """Return the keys for an author's domain, none if its mail is not signed. Raises BadKey."""
        key = find_key(self._keys.keys() | self.faults.keys(), domain)
        if key is None:
            return []
        if key in self.faults:
            raise BadKey(self.faults[key])
        return self._keys[key]


def read_keyring(home: Home) -> Keyring:
    """Read control/dkim and its keys. Raises Temporary if control/dkim cannot be read or parsed."""
    lines = read_parsed(home, "dkim", unpack_keys) or {}
    keys: dict[bytes, list[SigningKey]] = {}
    faults: dict[bytes, str] = {}
    files = []
    for name, wanted in lines.items():
        made = []
        for line in wanted:
            path = os.path.join(home.control, os.fsdecode(line.path))
            files.append(path)
            try:
                made.append(read_key(home, path, line))
            except BadKey as error:
                faults.setdefault(name, f"{line.domain.decode('ascii')}: {path}: {error}")
        if name not in faults:
            keys[name] = made
    return Keyring(keys, faults, files)


def read_key(home: Home, path: str, line: KeyLine) -> SigningKey:
    """Return the key of a line. Raises BadKey."""
    try:
        fault = find_fault(home, os.stat(path))
        data = read_file(path, _FILE_MAX) if fault is None else b""
    except (OSError, ValueError) as error:
        raise BadKey(reason(error) if isinstance(error, OSError) else str(error)) from error
    if fault is not None:
        raise BadKey(fault)
    algorithm, sign = load_key(data)
    return SigningKey(line.domain, line.selector, algorithm, sign)


def unpack_keys(data: bytes) -> dict[bytes, list[KeyLine]]:
    """Return {domain, perhaps with a leading dot: its lines}. Raises LineError."""
    found: dict[bytes, list[KeyLine]] = {}
    for number, line in numbered_lines(data):
        with InLine(number):
            key, made = unpack_key(line)
            found.setdefault(key, []).append(made)
    return found


def unpack_key(line: bytes) -> tuple[bytes, KeyLine]:
    """Return a line, with its domain as it stands there. Raises FormatError."""
    parts = line.split(b":", 2)
    if len(parts) != 3 or not parts[2].strip():
        raise FormatError(f"not domain:selector:keyfile: {quoted(line)}")
    refuse_impossible(parts[0].strip(b" \t"))
    key = host_key(parts[0])
    domain = key.removeprefix(b".")
    selector = parts[1].strip()
    if not _DOMAIN.fullmatch(domain):
        raise FormatError(f"not a domain: {quoted(parts[0])}")
    if not _SELECTOR.fullmatch(selector):
        raise FormatError(f"not a selector: {quoted(parts[1])}")
    return key, KeyLine(domain, selector, parts[2].strip())


def load_key(data: bytes) -> tuple[bytes, Callable[[bytes], bytes]]:
    """Return the algorithm (a=) and the signing function of a private key. Raises BadKey."""
    # dkimpy implements RSA in Python, which takes 9 ms at 2,048 bits and holds the GIL; cryptography takes 0.4 ms.
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa, utils
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise BadKey(f"package cryptography is needed: {error}") from error
    seed = _as_seed(data)
    try:
        key = ed25519.Ed25519PrivateKey.from_private_bytes(seed) if seed else load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadKey("it is not a private key in PEM, or it is encrypted") from error
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return b"ed25519-sha256", key.sign
    if not isinstance(key, rsa.RSAPrivateKey):
        raise BadKey("it is neither RSA nor Ed25519")
    if key.key_size < BITS_MIN:
        raise BadKey(f"it has {key.key_size} bits, and RFC 8301 wants {BITS_MIN} at least")
    hashed = utils.Prehashed(SHA256())
    return b"rsa-sha256", lambda digest: key.sign(digest, padding.PKCS1v15(), hashed)


def _as_seed(data: bytes) -> bytes:
    """Return an Ed25519 seed, 32 bytes, that is in base64; empty if the data is something else."""
    try:
        seed = base64.b64decode(data.strip(), validate=True)
    except binascii.Error:
        return b""
    return seed if len(seed) == 32 else b""
