"""The mail of these tests has somewhere to go to: a maildir for local addresses, a sink for all others.

Messages go one of two ways: they are delivered from their notices, or, with `classifyafter` 0, classified first. Tests
run with the default. Those marked `both_ways`, and with --exhaustive all, run with `classifyafter` 0, too; but not
those marked `one_way`, which say themselves which one it is.
"""

import os
from collections.abc import Iterator

import pytest

from support.local.good_mail import GoodMail, good_mail
from support.queues.home import CLASSIFYAFTER
from support.servers.ports import free_port

WAYS = {"from the notice": "", "classified first": "0"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test twice, unless pytest --classifyafter says how, or the test does."""
    config, item = metafunc.config, metafunc.definition
    wanted = config.getoption("--exhaustive") or item.get_closest_marker("both_ways")
    named = config.getoption("--classifyafter") or any(
        "classifyafter" in mark.args[0] for mark in item.iter_markers("parametrize")
    )
    if wanted and not named and not item.get_closest_marker("one_way"):
        metafunc.parametrize("way", WAYS.values(), ids=WAYS.keys(), indirect=True, scope="module")


@pytest.fixture(autouse=True, scope="module")
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give the homes of a test its `classifyafter`; without one they have the default, or that of --classifyafter."""
    before = os.environ.get(CLASSIFYAFTER)
    if after := getattr(request, "param", ""):
        os.environ[CLASSIFYAFTER] = after
    yield
    if before is None:
        os.environ.pop(CLASSIFYAFTER, None)
    else:
        os.environ[CLASSIFYAFTER] = before


@pytest.fixture
def mail(way: None) -> Iterator[GoodMail]:
    """Yield a site that good mail is sent through."""
    with good_mail() as found:
        yield found


@pytest.fixture
def port() -> int:
    """Return the port of an on-demand domain's host, which is down."""
    return free_port()


@pytest.fixture
def customer(mail: GoodMail, port: int) -> GoodMail:
    """Give a site with an on-demand domain, whose host is down."""
    mail.control("ondemand", "customer.example:etrn probe never\n")
    mail.control("smtproutes", f"customer.example:127.0.0.1:{port}\n:127.0.0.1:{mail.sink.port}\n")
    return mail
