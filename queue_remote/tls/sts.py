"""MTA-STS policies: found by DNS and HTTPS, and kept (RFC 8461 sections 3 and 5).

A policy counts until its max_age is over, whatever becomes of the TXT record or the web server meanwhile: who can
make those vanish shall not make the policy vanish. A new id in the record has it fetched anew, and so does its age,
then without anybody waiting for it. Policies are kept in memory only: queue-remote may write nowhere on the disk.
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from queue_remote.route.lookup import Resolver, Unroutable
from queue_remote.tls.contexts import Contexts
from queue_remote.tls.mta_sts import StsPolicy, unpack_policy, unpack_record
from queue_wire.format_error import FormatError

# Policies kept, and the bytes of their names in all: a hostile sender must not fill the memory.
KEPT_MOST = 10000
KEPT_BYTES_MOST = 8 * 1024 * 1024
# At once; each has a descriptor.
FETCHES_MOST = 100
# Section 3.3: a policy that could not be fetched is not asked for again so soon, unless its id changes.
FAILURE_SECONDS = 300.0
# One that is older, or has lived half of its life, is fetched again.
REFRESH_SECONDS = 86400.0

Fetch = Callable[[str, list[str], ssl.SSLContext], Awaitable[bytes]]


class NoPolicy(Exception):
    """There is no policy to be had now; the text says why."""


class Kept(NamedTuple):
    """A domain's policy, with the id that the record had, and times as `now_even` returns them."""

    id: bytes
    policy: StsPolicy
    fetched: float
    expires: float


class Found(NamedTuple):
    """What is known of a domain: its policy, None for none, and the latest trouble with finding one, empty for none."""

    kept: Kept | None
    trouble: str


class StsCache:
    """Policies by domain, those used least going first. It outlives the settings."""

    def __init__(self, fetch: Fetch | None = None) -> None:
        """`fetch` is in place of queue_remote.tls.sts_fetch.fetch_policy."""
        self._fetch = fetch
        self._kept: dict[bytes, Kept] = {}
        self._bytes = 0
        # What failed: the id, the reason, and until when it is not tried again.
        self._failed: dict[bytes, tuple[bytes, str, float]] = {}
        self._fetching: dict[bytes, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(FETCHES_MOST)

    async def find(self, resolver: Resolver, contexts: Contexts, domain: bytes) -> Found:
        """Return what counts for a policy domain (ASCII, lower case) now. Does not raise."""
        kept = self._current(domain)
        try:
            answer = await resolver.ask(b"_mta-sts." + domain, "TXT")
            found = unpack_record(b"".join(record.strings) for record in answer.records)
        except FormatError as error:
            return Found(kept, f"_mta-sts.{domain.decode('ascii', 'replace')} TXT: {error}")
        except Unroutable as error:
            return Found(kept, _particulars(error))
        if found is None:
            return Found(kept, "")
        if kept is not None and kept.id == found and not _is_old(kept):
            return Found(kept, "")
        failed_id, trouble, until = self._failed.get(domain, (b"", "", 0.0))
        if failed_id == found and now_even() < until:
            return Found(kept, trouble)
        task = self._fetching.get(domain)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._renew(resolver, contexts, domain, found))
            self._fetching[domain] = task
            task.add_done_callback(lambda _: self._fetching.pop(domain))
        if kept is not None and kept.id == found:
            return Found(kept, "")
        # Others may wait for it as well.
        await asyncio.shield(task)
        failed_id, trouble, _ = self._failed.get(domain, (b"", "", 0.0))
        return Found(self._current(domain), trouble if failed_id == found else "")

    def _current(self, domain: bytes) -> Kept | None:
        kept = self._kept.pop(domain, None)
        if kept is not None and kept.expires <= now_even():
            self._bytes -= _size(kept)
            return None
        if kept is not None:
            self._kept[domain] = kept  # At the end again: what is used least comes first.
        return kept

    async def _renew(self, resolver: Resolver, contexts: Contexts, domain: bytes, found: bytes) -> None:
        """Fetch a domain's policy and keep it, or keep in mind why that failed."""
        host = b"mta-sts." + domain
        try:
            addresses = await resolver.addresses(host)
            if not addresses.found and addresses.trouble is not None:
                raise NoPolicy(_particulars(addresses.trouble))
            if self._fetch is None:
                # An HTTP client takes a while to import, and few domains need it.
                from queue_remote.tls.sts_fetch import fetch_policy

                self._fetch = fetch_policy
            found_at = [address for address, _ in addresses.found]
            async with self._room:
                text = await self._fetch(host.decode("ascii"), found_at, contexts.https())
            policy = unpack_policy(text)
        except (NoPolicy, FormatError, OSError) as error:
            while len(self._failed) >= KEPT_MOST:
                del self._failed[next(iter(self._failed))]
            self._failed[domain] = found, str(error), now_even() + FAILURE_SECONDS
            return
        self._failed.pop(domain, None)
        now = now_even()
        self._put(domain, Kept(found, policy, now, now + policy.max_age))

    def _put(self, domain: bytes, kept: Kept) -> None:
        if domain in self._kept:
            self._bytes -= _size(self._kept.pop(domain))
        self._kept[domain] = kept
        self._bytes += _size(kept)
        while len(self._kept) > KEPT_MOST or self._bytes > KEPT_BYTES_MOST:
            self._bytes -= _size(self._kept.pop(next(iter(self._kept))))


def now_even() -> float:
    """Return seconds that go on evenly, also while the machine sleeps: a clock that is set makes nothing old or new."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _particulars(error: Unroutable) -> str:
    """Return the last line of a verdict's text, without its full stop."""
    return error.verdict[1].decode("ascii", "replace").strip().splitlines()[-1].removesuffix(".")


def _is_old(kept: Kept) -> bool:
    return now_even() - kept.fetched > min(REFRESH_SECONDS, kept.policy.max_age / 2)


def _size(kept: Kept) -> int:
    return sum(len(pattern) + 60 for pattern in kept.policy.patterns)
