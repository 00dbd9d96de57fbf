"""Hashes of crypt(3), by the system's libcrypt. Python's own module is gone since 3.13.

Hashing takes up to a second, by the hash. Other threads go on meanwhile.
"""

import ctypes
import ctypes.util
import functools
import hmac
from typing import Any

# sizeof(struct crypt_data) is 32,768 in libxcrypt, and 131,232 in old glibc.
_DATA_SIZE = 1 << 18


def matches_crypt(password: bytes, known: bytes) -> bool:
    """Return whether a password has this hash. Raises OSError if the system has no libcrypt."""
    made = _crypt(password, known)
    # A hash that libcrypt does not know gives None, or `*0`, whatever the password.
    return made is not None and not made.startswith(b"*") and hmac.compare_digest(made, known)


def _crypt(password: bytes, known: bytes) -> bytes | None:
    data = ctypes.create_string_buffer(_DATA_SIZE)
    try:
        made: bytes | None = _library().crypt_r(password, known, data)
        return made
    finally:
        # It holds the password.
        ctypes.memset(data, 0, _DATA_SIZE)


@functools.cache
def _library() -> Any:
    name = ctypes.util.find_library("crypt") or "libcrypt.so.1"
    library = ctypes.CDLL(name)
    library.crypt_r.restype = ctypes.c_char_p
    library.crypt_r.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p)
    return library
