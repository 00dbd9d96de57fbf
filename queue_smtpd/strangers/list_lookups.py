"""Asks DNS lists whether a client's address is listed (control/dnslists).

All lists are asked at once, and the first one in their order that has the address counts. A list that does not answer
in some seconds, or refuses to, is not a hit; after a few failures in a row it is not asked for a minute, so that a list
that is dead delays little mail. Answers are cached as long as DNS says, up to a bound.
"""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from queue_base.dns_lookups import DnsLookups, LookupFailed
from queue_smtpd.processes.log_writer import LogWriter
from queue_wire.control.smtproutes import Relay
from queue_wire.control.strangers.dnslists import DnsList, is_hit, is_refusal, list_question, listing_text
from queue_wire.logline import warning

# Seconds for the answer of a list.
ANSWER_SECONDS = 5.0
# Failures in a row after which a list is not asked for REST_SECONDS.
FAILURES_MAX = 3
REST_SECONDS = 60.0


class _ListTrouble(NamedTuple):
    """Failures of a list in a row, and until when it is not asked."""

    failures: int = 0
    until: float = 0.0


class ListLookups:
    """The lists of this process."""

    def __init__(self, log: LogWriter, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lists: tuple[DnsList, ...] = ()
        self._servers: list[Relay] | None = None
        self._lookups: DnsLookups | None = None
        self._trouble: dict[bytes, _ListTrouble] = {}

    def configure(self, lists: tuple[DnsList, ...], servers: list[Relay] | None) -> None:
        """Ask these lists from now on, at these DNS servers; None: those of /etc/resolv.conf, which is read again."""
        self._lists = lists
        self._servers = servers
        self._lookups = None
        self._trouble = {}

    async def find(self, address: str) -> bytes | None:
        """Return the text for a client that is listed, None if it is not."""
        lists = [one for one in self._lists if self._clock() >= self._trouble.get(one.zone, _ListTrouble()).until]
        if len(lists) == 1:
            return await self._ask(lists[0], address)
        texts = await asyncio.gather(*(self._ask(one, address) for one in lists))
        return next((text for text in texts if text is not None), None)

    async def _ask(self, one: DnsList, address: str) -> bytes | None:
        name = list_question(one, address)
        if name is None:
            return None
        try:
            if self._lookups is None:
                self._lookups = DnsLookups(self._servers, ANSWER_SECONDS, self._warn)
            answer = await self._lookups.ask(name, "A")
        except LookupFailed as error:
            self._fail(one, error.why)
            return None
        found = sorted(answer.records)
        refusal = next((each for each in found if is_refusal(each)), None)
        if refusal is not None:
            self._fail(one, f"it says {refusal}, with which lists refuse to answer")
            return None
        self._trouble.pop(one.zone, None)
        hit = next((each for each in found if is_hit(one, each)), None)
        return None if hit is None else listing_text(one, address, hit)

    def _warn(self, text: str) -> None:
        self._log.write([warning(text)])

    def _fail(self, one: DnsList, why: str) -> None:
        failures = self._trouble.get(one.zone, _ListTrouble()).failures + 1
        if failures < FAILURES_MAX:
            self._trouble[one.zone] = _ListTrouble(failures)
            return
        self._trouble[one.zone] = _ListTrouble(0, self._clock() + REST_SECONDS)
        text = f"DNS list {one.zone.decode()} does not answer: {why}; it is not asked for {REST_SECONDS:.0f} s"
        self._log.write([warning(text)])
