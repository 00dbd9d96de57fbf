"""The fixtures that make a home, each with the control files that the mark `home` names.

    pytestmark = pytest.mark.home(23, concurrencyremote="20")  # Buckets, control files.

A mark on a single test counts before that of its file. A control file whose text is None is not there. `home` is one
with a queue; in the place of the number of buckets the mark may have the name of another kind, of KINDS. In
tests/remote it is `remote_home`, and in tests/suite `mail` is a site that good mail is sent through.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from queue_base.home import Home
from support.inject.injectors import shared_home
from support.local.mailboxes import MailHome, mail_home
from support.processes.remote_daemon import RemoteHome
from support.queues.home import make_home
from support.site import Site, mail_site

# Nobody in tests needs longer to answer, but for those who are slow on purpose.
_PATIENCE = {"timeoutconnect": "5", "timeoutremote": "20"}


@contextmanager
def _fresh(path: Path, split: int) -> Iterator[Home]:
    yield make_home(path / "home", split=split)


@contextmanager
def _remote(path: Path) -> Iterator[RemoteHome]:
    yield RemoteHome(path, **_PATIENCE)


# Every user can reach a shared one, whose queue/ belongs to an account of its own; that of "ours" to who runs tests.
KINDS: dict[str, Callable[[Path], AbstractContextManager[Home | RemoteHome]]] = {
    "remote": _remote,
    "shared": lambda path: shared_home(),
    "ours": lambda path: shared_home(0),
}


def controls(request: pytest.FixtureRequest) -> dict[str, str | None]:
    """Return name and text of the control files that the marks of a test name."""
    found: dict[str, str | None] = {}
    for mark in request.node.iter_markers("home"):
        found = {**mark.kwargs, **found}
    return found


def _write(control: Path, request: pytest.FixtureRequest) -> None:
    for name, text in controls(request).items():
        if text is None:
            (control / name).unlink(missing_ok=True)
        else:
            (control / name).write_text(f"{text}\n")


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home | RemoteHome]:
    """Yield a fresh home with three buckets, or as many as the mark's first argument says, or of the kind it names."""
    mark = request.node.get_closest_marker("home")
    kind = mark.args[0] if mark and mark.args else 3
    with _fresh(tmp_path, kind) if isinstance(kind, int) else KINDS[kind](tmp_path) as made:
        _write(Path(made.control) if isinstance(made, Home) else made.path / "control", request)
        yield made


@pytest.fixture
def remote_home(request: pytest.FixtureRequest, tmp_path: Path) -> RemoteHome:
    """Return a home with no more than queue-remote looks at, and short time limits."""
    made = RemoteHome(tmp_path, **_PATIENCE)
    _write(tmp_path / "control", request)
    return made


@pytest.fixture
def mail(request: pytest.FixtureRequest) -> Iterator[MailHome]:
    """Yield a home whose alias/ is a mailbox that everybody can walk to."""
    with mail_home() as made:
        _write(Path(made.home.control), request)
        yield made


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Yield a home in memory with a maildir behind every local address."""
    with mail_site() as made:
        _write(Path(made.home.control), request)
        yield made
