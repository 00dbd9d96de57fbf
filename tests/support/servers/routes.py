"""Routes, as queue-remote finds them for the control files of a test's home."""

import asyncio

import uvloop

from queue_base.home import Home
from queue_remote.config import RemoteConfig
from queue_remote.message.conversions import Conversions
from queue_remote.route.router import Route, Router
from queue_remote.setup import read_setup
from queue_remote.tls.mta_sts import StsCache
from queue_wire.control.registry import RESOLVER
from support.processes.remote_daemon import RemoteHome


def read_config(home: Home) -> RemoteConfig:
    """Return what queue-remote makes of its control files. Raises Temporary."""
    return read_setup(home, StsCache(), Conversions()).config


def router_of(home: RemoteHome) -> Router:
    config = read_config(Home(str(home.path)))
    return Router(config.me, config.routes, config.values[RESOLVER])


def find_often(home: RemoteHome, nexthop: bytes, times: int) -> list[Route]:
    """Return what one router finds, asked so many times. Raises Unroutable."""
    router = router_of(home)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return [runner.run(router.find(nexthop)) for _ in range(times)]


def find(home: RemoteHome, nexthop: bytes) -> Route:
    """Return what a router finds at once after its start. Raises Unroutable."""
    return find_often(home, nexthop, 1)[0]
