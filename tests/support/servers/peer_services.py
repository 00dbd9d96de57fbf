"""Fixtures for tests of queue-remote against a Postfix: a test file names this module in `pytest_plugins`.

What its Postfix serves is the file's `SERVICES`, as serve() of postfix_services takes it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.remote_daemon import RemoteHome
from support.servers.postfix_services import Services, serve


@pytest.fixture(scope="module")
def running_services(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Yield the services of a test file, which its tests share."""
    with serve(request.module.SERVICES, tmp_path_factory.mktemp("certificate")) as made:
        yield made


@pytest.fixture
def services(running_services: Services) -> Services:
    """Return them without the messages of the test before."""
    running_services.clear()
    return running_services


@pytest.fixture
def peer_home(tmp_path: Path) -> RemoteHome:
    """Return a home with times that a busy Postfix keeps, and a test can wait for."""
    return RemoteHome(tmp_path, timeoutconnect="5", timeoutremote="30", connectionidle="10")
