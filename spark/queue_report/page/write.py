"""Makes the page of a lake and puts it in its place as a whole: whoever looks meanwhile sees the one before."""

import os
import tempfile
import time
from pathlib import Path

from queue_base.errors import Temporary, reason
from queue_base.safe_open import resolve_given
from queue_report.page.document import make_page
from queue_report.page.gather import NANO, gather
from queue_report.page.scales import when
from queue_report.reports.engine import Engine
from queue_report.reports.report import View
from queue_report.runtime.progress import Progress


def write_page(engine: Engine, target: Path, view: View, progress: Progress) -> None:
    """Write the page of a lake to a file. Raises Permanent and Temporary, as the engine does and where it cannot."""
    data = gather(engine, view, time.time(), describe(view), progress.phase)
    progress.phase("writing the page")
    replace(target, make_page(data).encode())


def describe(view: View) -> str:
    """Return what a view is restricted to, in words; '' for nothing."""
    parts = [] if view.host is None else [f"host {view.host} only"]
    if view.domain is not None:
        parts.append(f"mail to {view.domain} only")
    if view.since is not None:
        parts.append(f"since {when(view.since / NANO)}")
    if view.until is not None:
        parts.append(f"until {when(view.until / NANO)}")
    return ", ".join(parts)


def replace(target: Path, content: bytes) -> None:
    """Give a file, or the one that a link leads to, its new content at once. Raises Temporary; then it is as it was.

    No link is followed that another account may have put there.
    """
    try:
        place = resolve_given(str(target))
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=os.path.dirname(place))
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                # As a file that was made without this detour: a web server must be able to read it.
                os.fchmod(file.fileno(), 0o666 & ~_umask())
                file.flush()
                os.fsync(file.fileno())
            os.rename(name, place)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise Temporary(f"unable to write {target}: {reason(error)}; it is as it was") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
