"""The addresses to try for one delivery."""

from typing import NamedTuple


class Target(NamedTuple):
    """One address to try. `host` is the exchanger's or relay's name (ASCII, no final dot), empty for a bare
    address; `secure`: DNSSEC vouches for the address."""

    host: bytes
    address: str
    port: int
    secure: bool
