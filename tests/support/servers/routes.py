"""Routes, as queue-remote finds them for the control files of a test's home."""

import asyncio

import uvloop

from queue_base.home import Home
from queue_remote.route.route import Route, Router
from queue_remote.settings import read_settings
from support.remote_daemon import RemoteHome


def router_of(home: RemoteHome) -> Router:
    return Router(read_settings(Home(str(home.path))))


def find_often(home: RemoteHome, nexthop: bytes, times: int) -> list[Route]:
    """Return what one router finds, asked so many times. Raises Unroutable."""
    router = router_of(home)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return [runner.run(router.find(nexthop)) for _ in range(times)]


def find(home: RemoteHome, nexthop: bytes) -> Route:
    """Return what a router finds at once after its start. Raises Unroutable."""
    return find_often(home, nexthop, 1)[0]
