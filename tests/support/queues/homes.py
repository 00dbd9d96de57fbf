"""The fixtures that make a home, each with the control files that the mark `home` names.

    pytestmark = pytest.mark.home(23, concurrencyremote="20")  # Buckets, control files.

A mark on a single test counts before that of its file. `home` is one with a queue. In tests/remote it is `remote_home`,
and in tests/suite `mail` is a site that good mail is sent through.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from support.local.mailboxes import MailHome, mail_home
from support.processes.remote_daemon import RemoteHome
from support.queues.home import make_home
from support.site import Site, mail_site

# Nobody in tests needs longer to answer, but for those who are slow on purpose.
_PATIENCE = {"timeoutconnect": "5", "timeoutremote": "20"}


def controls(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return name and text of the control files that the marks of a test name."""
    found: dict[str, str] = {}
    for mark in request.node.iter_markers("home"):
        found = {**mark.kwargs, **found}
    return found


def _write(home: Home, request: pytest.FixtureRequest) -> None:
    for name, text in controls(request).items():
        Path(home.control, name).write_text(f"{text}\n")


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """Return a fresh home with three buckets, or as many as the mark's first argument says."""
    mark = request.node.get_closest_marker("home")
    made = make_home(tmp_path / "home", split=mark.args[0] if mark and mark.args else 3)
    _write(made, request)
    return made


@pytest.fixture
def remote_home(request: pytest.FixtureRequest, tmp_path: Path) -> RemoteHome:
    """Return a home with no more than queue-remote looks at, and short time limits."""
    return RemoteHome(tmp_path, **{**_PATIENCE, **controls(request)})


@pytest.fixture
def mail(request: pytest.FixtureRequest) -> Iterator[MailHome]:
    """Yield a home whose alias/ is a mailbox that everybody can walk to."""
    with mail_home() as made:
        _write(made.home, request)
        yield made


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Yield a home in memory with a maildir behind every local address."""
    with mail_site() as made:
        _write(made.home, request)
        yield made
