"""What a resident build does for its lake: builds, the page, and the session of Spark that either may need."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from queue_base.errors import Failure, Temporary, reason
from queue_report.lake.build import Order, Summary, build
from queue_report.runtime.connect import connect_url
from queue_report.runtime.files import local_path
from queue_report.runtime.progress import Progress
from queue_report.runtime.session import Sessions
from queue_report.watch.memory import give_back, resident

Value = TypeVar("Value")

# Of what all may take, the share of Java's heap; Java needs nearly as much besides, and Spark no less than HEAP_MIN.
HEAP_SHARE = 0.5
HEAP_MIN = 512 << 20
# Of what all may take, what this process may have without Java.
OWN_SHARE = 0.5
# And of that, what DuckDB may have while it makes the page.
ENGINE_SHARE = 0.25


class LakeWork:
    """See queue_report.watch.watch.Work. order.expire counts only when the lake is tidied.

    memory: bytes, of all together. master: see queue_report.runtime.session.Sessions.
    """

    def __init__(self, order: Order, page: Path | None, memory: int, master: str | None) -> None:
        # A Connect server has a heap of its own.
        remote = connect_url(master, order.settings)
        heap = {} if remote else {"spark.driver.memory": f"{max(int(memory * HEAP_SHARE), HEAP_MIN) >> 20}m"}
        self._order = order
        self._page = page
        self._memory = memory
        self._has_lake = False
        self._sessions = Sessions(master, {**heap, **order.settings})

    def build(self, tidy: bool) -> Summary:
        expire = self._order.expire if tidy else None
        order = dataclasses.replace(self._order, compact=tidy, expire=expire)
        self._keep_lake()
        done = self._explained(lambda: build(order, self._sessions, Progress()))
        self._has_lake = True
        if tidy:
            # Whole files were in memory.
            give_back()
        return done

    def _keep_lake(self) -> None:
        """Raise Temporary where the lake is gone, as its disk is not mounted: no other one is made in its place."""
        here = local_path(self._order.lake)
        if self._has_lake and here is not None and not os.path.isdir(os.path.join(here, "_delta_log")):
            remedy = "mount its disk, or restart this to make a new one"
            raise Temporary(f"unable to build lake {self._order.lake}: it is gone; {remedy}")

    def write_page(self) -> bool:
        page = self._page
        if page is None:
            return False
        self._explained(lambda: self._write(page))
        return True

    def _write(self, page: Path) -> None:
        from queue_report.page.write import write_page
        from queue_report.reports.choice import open_engine
        from queue_report.reports.report import View

        memory = int(self._memory * ENGINE_SHARE)
        engine = open_engine(self._order.lake, sessions=self._sessions, memory=memory, settings=self._order.settings)
        try:
            write_page(engine, page, View(), Progress())
        finally:
            engine.close()

    def used(self) -> float | None:
        return self._sessions.last_used if self._sessions.begun else None

    def let_go(self) -> None:
        self._sessions.end()

    def memory(self) -> int:
        java = self._sessions.java_pid
        if java is not None and resident(java) + resident(os.getpid()) > self._memory:
            self._sessions.end()
        own = int(self._memory * OWN_SHARE)
        if resident(os.getpid()) > own:
            give_back()
        return max(resident(os.getpid()) - own, 0)

    def _explained(self, work: Callable[[], Value]) -> Value:
        """Do something. An error that is no Failure yet, or comes of Java's end, becomes Temporary."""
        try:
            return work()
        except Exception as error:
            ended = self._sessions.explain(error)
            if ended is not None:
                # The next use starts another Java.
                self._sessions.end()
                raise ended from error
            if isinstance(error, Failure):
                raise
            if isinstance(error, MemoryError):
                give_back()
                raise Temporary(f"unable to build lake {self._order.lake}: out of memory") from error
            if isinstance(error, OSError):
                name = error.filename or f"lake {self._order.lake}"
                raise Temporary(f"unable to use {name}: {reason(error)}") from error
            raise
