"""Asks what is remembered for greylisting in a thread, so that no disk stalls the event loop (control/greylist).

If the file cannot be used, or its disk does not answer, nobody is greylisted, and the log has an alert when that
begins. It is tried again after a while. While the thread answers, but more strangers ask than it keeps up with, the
others have to wait as if they came for the first time: who asks for so much must not pass for that. A file that was
removed or replaced is noticed at the next question.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from queue_base.errors import reason
from queue_base.home import Home
from queue_smtpd.processes.log_writer import LogWriter
from queue_smtpd.strangers.greylist_store import GreylistStore
from queue_wire.control.networks import counted_networks
from queue_wire.control.strangers.greylist import GreylistRules
from queue_wire.logline import alert

FILE = "greylist.sqlite"
# Strangers that wait for an answer.
PENDING_MAX = 500
# Seconds before a file that could not be used is tried again.
REST_SECONDS = 30.0
# Seconds without an answer after which the disk is one that does not answer.
STALLED_SECONDS = 10.0
# What is old is forgotten after so many seconds, or questions.
_CLEAN_SECONDS = 60.0
_CLEAN_QUESTIONS = 10_000


class Greylist:
    """The greylist of this process."""

    def __init__(self, home: Home, log: LogWriter, clock: Callable[[], float] = time.time) -> None:
        self._path = f"{home.greylist}/{FILE}"
        self._log = log
        self._clock = clock
        self._rules = GreylistRules()
        self._pool = ThreadPoolExecutor(1, "greylist")
        self._pending = 0
        # When the thread has answered last, or was asked while nobody waited.
        self._answered = 0.0
        self._trouble = ""
        self._rest_until = 0.0
        # For the thread alone.
        self._store: GreylistStore | None = None
        self._clean_at = 0.0
        self._questions = 0

    def configure(self, rules: GreylistRules) -> None:
        """Use these rules from now on."""
        self._rules = rules

    async def judge(self, address: str, sender: bytes, recipient: bytes) -> int:
        """Return how many seconds a client has to wait before it may send this, 0 if it may."""
        now = time.monotonic()
        if now < self._rest_until:
            return 0
        if self._pending >= PENDING_MAX:
            if now < self._answered + STALLED_SECONDS:
                return self._rules.delay
            self._rest(f"unable to use {self._path}: no answer within {STALLED_SECONDS:.0f} seconds")
            return 0
        if not self._pending:
            self._answered = now
        self._pending += 1
        network = counted_networks(address)[1]
        try:
            wait = await asyncio.get_running_loop().run_in_executor(self._pool, self._ask, network, sender, recipient)
        except (OSError, RuntimeError, sqlite3.Error) as error:  # RuntimeError: there can be no more threads.
            why = reason(error) if isinstance(error, OSError) else str(error)
            self._rest(f"unable to use {self._path}: {why}")
            return 0
        finally:
            self._pending -= 1
            self._answered = time.monotonic()
        if time.monotonic() >= self._rest_until:
            self._trouble = ""
        return wait

    def _ask(self, network: str, sender: bytes, recipient: bytes) -> int:
        try:
            if self._store is not None and self._store.moved():
                store, self._store = self._store, None
                store.close_moved()
            if self._store is None:
                directory = os.path.dirname(self._path)
                if not os.path.isdir(directory):
                    os.mkdir(directory, 0o700)
                self._store = GreylistStore(self._path)
            now = self._clock()
            wait = self._store.judge(network, sender, recipient, int(now), self._rules)
            self._questions += 1
            if self._questions >= _CLEAN_QUESTIONS or time.monotonic() >= self._clean_at:
                self._store.clean(int(now), self._rules)
                self._questions, self._clean_at = 0, time.monotonic() + _CLEAN_SECONDS
        except (OSError, sqlite3.Error):
            # It may be another file then.
            if self._store is not None:
                self._store.close()
                self._store = None
            raise
        return wait

    def _rest(self, trouble: str) -> None:
        """Ask nothing for some seconds. Log trouble when it begins, or is another one."""
        self._rest_until = time.monotonic() + REST_SECONDS
        if trouble != self._trouble:
            directory = os.path.dirname(self._path)
            advice = f"{directory} must be a directory of the account that queue-smtpd runs as"
            self._log.write([alert(f"{trouble}; nobody is greylisted meanwhile; {advice}")])
        self._trouble = trouble
