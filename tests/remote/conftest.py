"""The home of these tests is one of queue-remote's."""

import pytest

from support.processes.remote_daemon import RemoteHome


@pytest.fixture
def home(remote_home: RemoteHome) -> RemoteHome:
    """Return a home with no more than queue-remote looks at, and short time limits."""
    return remote_home
