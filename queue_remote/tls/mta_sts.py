"""MTA-STS (RFC 8461): finds a domain's policy by DNS and HTTPS, and caches it.

A policy is valid until its max_age has passed, even if the TXT record or the web server disappears meanwhile: an
attacker who can suppress these must not be able to suppress the policy (section 5.1). It is fetched again if the id in
the record changes, and, without a delivery waiting, when it gets old. Policies are cached in memory only, because
queue-remote may not write to the disk. A malformed record or policy raises FormatError; then the domain has no policy,
or keeps the one that is cached.

The policy is fetched with httpx from the addresses that our own resolver finds, without redirects, with a valid
certificate, in at most 64 kB and a minute (section 3.3).
"""

import asyncio
import enum
import re
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from queue_remote.route.resolver import Resolver
from queue_remote.route.unroutable import Unroutable
from queue_remote.tls.contexts import Contexts
from queue_wire.format_error import FormatError, quoted

# Section 3.2: about a year.
MAX_AGE_MAX = 31557600
# Section 3.3: larger policies may be refused.
POLICY_MAX = 65536
# Policies in the cache, and the bytes of their patterns in all, so that a hostile sender cannot fill the memory.
KEPT_MAX = 10000
KEPT_BYTES_MAX = 8 * 1024 * 1024
# Concurrent fetches; each has a descriptor.
FETCHES_MAX = 100
# Section 3.3: after a failure a policy is not fetched again for this time, unless its id changes.
FAILURE_SECONDS = 300.0
# A policy that is older than this, or than half of its max_age, is fetched again.
REFRESH_SECONDS = 86400.0
PIECES_A_TURN = 50
PATH = "/.well-known/mta-sts.txt"
HTTPS_PORT = 443
# For a whole fetch, from the first connection to the last byte.
FETCH_SECONDS = 60.0
# For the connection to one address, before the next is tried.
CONNECT_SECONDS = 15.0
# For fetches to end after they have been cancelled.
CLOSE_SECONDS = 5.0

_RECORD = re.compile(rb"v=STSv1[ \t]*;")
_ID = re.compile(rb"[A-Za-z0-9]{1,32}")
_PATTERN = re.compile(rb"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")

Fetch = Callable[[str, list[str], ssl.SSLContext], Awaitable[bytes]]


class Mode(enum.Enum):
    """ENFORCE: a host that fails gets no mail. TESTING: it gets mail, and the failure is reported. NONE: no policy."""

    ENFORCE = b"enforce"
    TESTING = b"testing"
    NONE = b"none"


class StsPolicy(NamedTuple):
    """`max_age` in seconds; `patterns` are the names that the domain's mail exchangers may have.

    `names` are the same in lower case without a final dot, as a set for the lookup.
    """

    mode: Mode
    max_age: int
    patterns: tuple[bytes, ...]
    names: frozenset[bytes]

    def allows(self, host: bytes) -> bool:
        """Return whether a mail exchanger's name matches a pattern; a leading `*.` is one label (section 4.1)."""
        host = host.lower().removesuffix(b".")
        label, dot, parent = host.partition(b".")
        return (bool(host) and host in self.names) or (bool(label and dot) and b"*." + parent in self.names)


def unpack_record(records: Iterable[bytes]) -> bytes | None:
    """Return the policy's id from the TXT records of `_mta-sts.DOMAIN`, each one's strings joined (section 3.1).

    Returns None if there is no MTA-STS record. Raises FormatError if there are several, or the record has no id.
    """
    ours = [record for record in records if _RECORD.match(record)]
    if not ours:
        return None
    if len(ours) > 1:
        raise FormatError(f"{len(ours)} records with v=STSv1")
    for field in ours[0].split(b";")[1:]:
        key, _, value = field.partition(b"=")
        if key.strip(b" \t") == b"id":
            found = value.strip(b" \t")
            if not _ID.fullmatch(found):
                break
            return found
    raise FormatError(f"no id: {quoted(ours[0])}")


def unpack_policy(text: bytes) -> StsPolicy:
    """Return the policy in a file (section 3.2). Raises FormatError.

    The first of equal keys counts, except `mx`, which may be repeated; unknown keys are ignored.
    """
    values: dict[bytes, bytes] = {}
    patterns: list[bytes] = []
    for line in text.split(b"\n"):
        if not line:
            continue
        key, colon, value = line.removesuffix(b"\r").partition(b":")
        value = value.strip(b" \t")
        if colon and key == b"mx":
            patterns.append(value)
        elif colon:
            values.setdefault(key, value)
    if values.get(b"version") != b"STSv1":
        raise FormatError("no version STSv1")
    try:
        mode = Mode(values.get(b"mode"))
    except ValueError as error:
        raise FormatError(f"no known mode: {quoted(values.get(b'mode', b''))}") from error
    age = values.get(b"max_age", b"")
    if not age.isdigit() or len(age) > 10:
        raise FormatError(f"no max_age: {quoted(age)}")
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise FormatError(f"not a name for mx: {quoted(pattern)}")
    if not patterns and mode is not Mode.NONE:
        raise FormatError("no mx")
    names = frozenset(pattern.lower().removesuffix(b".") for pattern in patterns)
    return StsPolicy(mode, min(int(age), MAX_AGE_MAX), tuple(patterns), names)


class NoPolicy(Exception):
    """A policy cannot be fetched; the text says why."""


class CachedPolicy(NamedTuple):
    """A domain's policy, with the id of its record, and times as `boot_seconds` returns them."""

    id: bytes
    policy: StsPolicy
    fetched: float
    expires: float


class StsFound(NamedTuple):
    """A domain's policy, None if it has none, and the latest failure to find one, empty if there was none."""

    kept: CachedPolicy | None
    trouble: str


class StsCache:
    """The most recently used policies by domain. It survives changes of the control files.

    `aclose` must be awaited before the event loop is closed.
    """

    def __init__(self, fetch: Fetch | None = None) -> None:
        """`fetch` replaces fetch_policy."""
        self._fetch = fetch or fetch_policy
        self._kept: OrderedDict[bytes, CachedPolicy] = OrderedDict()
        self._bytes = 0
        # Failures: the id, the reason, and until when the policy is not fetched again.
        self._failed: OrderedDict[bytes, tuple[bytes, str, float]] = OrderedDict()
        self._fetching: dict[bytes, asyncio.Task[None]] = {}
        self._free = asyncio.Semaphore(FETCHES_MAX)

    async def find(self, resolver: Resolver, contexts: Contexts, domain: bytes) -> StsFound:
        """Return the current policy of a domain (ASCII, lower case). Does not raise."""
        try:
            answer = await resolver.ask(b"_mta-sts." + domain, "TXT")
            found = unpack_record(b"".join(record.strings) for record in answer.records)
        except FormatError as error:
            return StsFound(self._current(domain), f"_mta-sts.{domain.decode('ascii', 'replace')} TXT: {error}")
        except Unroutable as error:
            return StsFound(self._current(domain), error.details)
        # Not before DNS has answered: a fetch may end meanwhile.
        kept = self._current(domain)
        if found is None:
            return StsFound(kept, "")
        if kept is not None and kept.id == found and not _is_old(kept):
            return StsFound(kept, "")
        failed_id, trouble, until = self._failed.get(domain, (b"", "", 0.0))
        if failed_id == found and boot_seconds() < until:
            return StsFound(kept, trouble)
        task = self._fetching.get(domain)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._renew(resolver, contexts, domain, found))
            self._fetching[domain] = task
            task.add_done_callback(lambda _: self._fetching.pop(domain))
        if kept is not None and kept.id == found:
            return StsFound(kept, "")
        # Other deliveries may wait for the same task.
        await asyncio.shield(task)
        failed_id, trouble, _ = self._failed.get(domain, (b"", "", 0.0))
        return StsFound(self._current(domain), trouble if failed_id == found else "")

    async def aclose(self) -> None:
        """Cancel the fetches, and wait until they have ended.

        A loop that is closed cancels all tasks, those of httpx's connections too. If one of them has not run yet, its
        coroutine is never awaited, which Python reports on stderr. A fetch that is cancelled alone ends them itself.
        """
        fetches = list(self._fetching.values())
        for fetch in fetches:
            fetch.cancel()
        if fetches:
            await asyncio.wait(fetches, timeout=CLOSE_SECONDS)

    def _current(self, domain: bytes) -> CachedPolicy | None:
        kept = self._kept.pop(domain, None)
        if kept is not None and kept.expires <= boot_seconds():
            self._bytes -= _size(kept)
            return None
        if kept is not None:
            # Inserted again at the end: the first entry is the least recently used one.
            self._kept[domain] = kept
        return kept

    async def _renew(self, resolver: Resolver, contexts: Contexts, domain: bytes, found: bytes) -> None:
        """Fetch a domain's policy and cache it, or record why that failed."""
        host = b"mta-sts." + domain
        try:
            addresses = await resolver.addresses(host)
            if not addresses.found and addresses.trouble is not None:
                raise NoPolicy(addresses.trouble.details)
            found_at = [address for address, _ in addresses.found]
            async with self._free:
                text = await self._fetch(host.decode("ascii"), found_at, contexts.https())
            policy = unpack_policy(text)
        except (NoPolicy, FormatError, OSError) as error:
            while len(self._failed) >= KEPT_MAX:
                self._failed.popitem(last=False)
            self._failed[domain] = found, str(error), boot_seconds() + FAILURE_SECONDS
            return
        self._failed.pop(domain, None)
        now = boot_seconds()
        self._put(domain, CachedPolicy(found, policy, now, now + policy.max_age))

    def _put(self, domain: bytes, kept: CachedPolicy) -> None:
        if domain in self._kept:
            self._bytes -= _size(self._kept.pop(domain))
        self._kept[domain] = kept
        self._bytes += _size(kept)
        while len(self._kept) > KEPT_MAX or self._bytes > KEPT_BYTES_MAX:
            self._bytes -= _size(self._kept.popitem(last=False)[1])


def boot_seconds() -> float:
    """Return the seconds since the boot, suspension included, so that setting the clock does not expire policies."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _is_old(kept: CachedPolicy) -> bool:
    return boot_seconds() - kept.fetched > min(REFRESH_SECONDS, kept.policy.max_age / 2)


def _size(kept: CachedPolicy) -> int:
    return sum(len(pattern) + 60 for pattern in kept.policy.patterns)


async def fetch_policy(host: str, addresses: list[str], context: ssl.SSLContext) -> bytes:
    """Return the policy file of `mta-sts.DOMAIN`, from the first address that answers. Raises NoPolicy."""
    trouble = f"{host} has no address"
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            for address in addresses:
                try:
                    return await _fetch(host, address, context)
                except OSError as error:
                    trouble = f"{address} ({host}): {error}"
    except TimeoutError as error:
        raise NoPolicy(f"{host}: not fetched in {FETCH_SECONDS:.0f} s") from error
    raise NoPolicy(trouble)


async def _fetch(host: str, address: str, context: ssl.SSLContext) -> bytes:
    """Return the file from one address. Raises OSError if another address may succeed, else NoPolicy."""
    # It takes long to load, and few domains need it.
    import httpx

    shown = f"[{address}]" if ":" in address else address
    transport = httpx.AsyncHTTPTransport(verify=context)
    timeout = httpx.Timeout(FETCH_SECONDS, connect=CONNECT_SECONDS)
    # The certificate and the request have the host's name; the URL has the address.
    headers = {"Host": host, "Accept-Encoding": "identity", "User-Agent": "queue-suite"}
    url = f"https://{shown}:{HTTPS_PORT}{PATH}"
    request = httpx.Request("GET", url, headers=headers, extensions={"sni_hostname": host})
    try:
        async with httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False) as client:
            response = await client.send(request, stream=True, follow_redirects=False)
            try:
                return await _body(host, response)
            finally:
                await response.aclose()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise OSError(str(error) or type(error).__name__) from error


async def _body(host: str, response: Any) -> bytes:
    """Return the body of an httpx.Response. Raises NoPolicy."""
    if response.status_code != 200:
        raise NoPolicy(f"{host} answers {response.status_code} for {PATH}")
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "text/plain":
        raise NoPolicy(f"{host} has no text/plain at {PATH}")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise NoPolicy(f"{host} has a compressed file at {PATH}")
    body = b""
    pieces = 0
    async for data in response.aiter_raw():
        body += data
        if len(body) > POLICY_MAX:
            raise NoPolicy(f"{host} has more than {POLICY_MAX} bytes at {PATH}")
        pieces += 1
        if pieces % PIECES_A_TURN == 0:
            # What has come may be thousands of chunks of a byte, which are parsed without waiting for anything.
            await asyncio.sleep(0)
    return body
