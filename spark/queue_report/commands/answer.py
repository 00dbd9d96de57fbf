"""A question to a lake, and its rows on stdout: shared by `show` and `sql`."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from typing import TextIO

from queue_base.errors import Usage
from queue_report.commands.forms import print_result, terminal_width
from queue_report.reports.choice import choose_engine, open_engine
from queue_report.reports.engine import Engine, Result


def print_answer(
    lake: str,
    engine: str,
    cluster: tuple[str | None, Mapping[str, str]],
    name: str,
    ask: Callable[[Engine], Result],
    form: str,
    *,
    wide: bool,
    as_of: int | None = None,
    single: bool = False,
    spaced: Collection[str] = (),
) -> None:
    """Open the lake and print what `ask` asks it, in a form of forms.FORMATS.

    cluster: Spark's master and settings. name: what the progress bar says. Raises as open_engine and the engine do.
    """
    width = terminal_width(wide)
    if choose_engine(lake, engine) == "duckdb":
        if cluster[0] is not None or cluster[1]:
            raise Usage("--master and --conf are Spark's; they do not go with --engine duckdb")
        opened = open_engine(lake, "duckdb", version=as_of)
        try:
            print_result(ask(opened), form, sys.stdout, width=width, single=single, spaced=spaced)
        finally:
            opened.close()
        return
    from queue_report.runtime.progress import make_progress
    from queue_report.runtime.session import Sessions

    with ExitStack() as ends:
        # On a terminal the rows wait until the bar, which is on the same one, is gone.
        out: TextIO = ends.enter_context(tempfile.TemporaryFile("w+")) if sys.stdout.isatty() else sys.stdout
        with make_progress() as progress, Sessions(*cluster) as sessions:
            opened = open_engine(lake, engine, sessions, version=as_of, settings=cluster[1])
            progress.watch(sessions.get())
            progress.phase(name)
            print_result(ask(opened), form, out, width=width, single=single, spaced=spaced)
            progress.phase("ending")
        if out is not sys.stdout:
            out.seek(0)
            shutil.copyfileobj(out, sys.stdout)
