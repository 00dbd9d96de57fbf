"""The private keys that control/dkim names (dkim_control.py), read and checked when the control files are.

A key that is missing, damaged, too small, or that others can read is no key: mail of its domain is deferred, never
sent unsigned, and never bounced. Files are in PEM, RSA of 1,024 bits or more or Ed25519, or hold an Ed25519 seed in
base64, as dkimpy's dknewkey writes it.
"""

import base64
import binascii
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

from queue_base.control import read_parsed
from queue_base.durable import read_file
from queue_base.errors import reason
from queue_base.home import Home
from queue_remote.message.dkim_control import KeyLine, unpack_keys
from queue_remote.private import find_fault
from queue_wire.control.hostmap import find_key

BITS_LEAST = 1024
# A key of 16,384 bits has 13 kB.
_FILE_MOST = 65536


class Key(NamedTuple):
    """`sign` turns a SHA-256 digest into a signature; it may be called in any thread."""

    domain: bytes
    selector: bytes
    algorithm: bytes
    sign: Callable[[bytes], bytes]


class BadKey(Exception):
    """A key cannot be used; the text says which and why."""


class Keyring:
    """Keys by domain; `faults` says of a domain why its mail cannot be signed; `files` are the paths of all keys."""

    def __init__(self, keys: Mapping[bytes, list[Key]], faults: Mapping[bytes, str], files: list[str]) -> None:
        self._keys = keys
        self.faults = faults
        self.files = files

    def __bool__(self) -> bool:
        return bool(self._keys or self.faults)

    def find(self, domain: bytes) -> list[Key]:
        """Return the keys for an author's domain, none where its mail is not signed. Raises BadKey."""
        key = find_key(self._keys.keys() | self.faults.keys(), domain)
        if key is None:
            return []
        if key in self.faults:
            raise BadKey(self.faults[key])
        return self._keys[key]


def read_keyring(home: Home) -> Keyring:
    """Return what control/dkim and its keys make. Raises Temporary where control/dkim cannot be read or parsed."""
    lines = read_parsed(home, "dkim", unpack_keys) or {}
    keys: dict[bytes, list[Key]] = {}
    faults: dict[bytes, str] = {}
    files = []
    for name, wanted in lines.items():
        made = []
        for line in wanted:
            path = os.path.join(home.control, os.fsdecode(line.path))
            files.append(path)
            try:
                made.append(_read_key(home, path, line))
            except BadKey as error:
                faults.setdefault(name, f"{line.domain.decode('ascii')}: {path}: {error}")
        if name not in faults:
            keys[name] = made
    return Keyring(keys, faults, files)


def _read_key(home: Home, path: str, line: KeyLine) -> Key:
    try:
        fault = find_fault(home, path)
        data = read_file(path, _FILE_MOST) if fault is None else b""
    except (OSError, ValueError) as error:
        raise BadKey(reason(error) if isinstance(error, OSError) else str(error)) from error
    if fault is not None:
        raise BadKey(fault)
    algorithm, sign = load_key(data)
    return Key(line.domain, line.selector, algorithm, sign)


def load_key(data: bytes) -> tuple[bytes, Callable[[bytes], bytes]]:
    """Return the algorithm (a=) and the signing function of a private key. Raises BadKey."""
    # dkimpy signs with RSA in Python, which takes 9 ms at 2,048 bits, and so long nothing else runs; this takes 0.4.
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
    if key.key_size < BITS_LEAST:
        raise BadKey(f"it has {key.key_size} bits, and RFC 8301 wants {BITS_LEAST} at least")
    hashed = utils.Prehashed(SHA256())
    return b"rsa-sha256", lambda digest: key.sign(digest, padding.PKCS1v15(), hashed)


def _as_seed(data: bytes) -> bytes:
    """Return the 32 bytes in base64 that are an Ed25519 key, nothing where it is something else."""
    try:
        seed = base64.b64decode(data.strip(), validate=True)
    except binascii.Error:
        return b""
    return seed if len(seed) == 32 else b""
