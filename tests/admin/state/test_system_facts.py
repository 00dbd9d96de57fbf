"""What the operating system tells of processes: what it does not tell is left out."""

import os
from collections.abc import Callable

import psutil
import pytest

from queue_admin.metrics.system_facts import find_processes


@pytest.mark.parametrize("method", ["children", "cmdline", "create_time", "memory_info"])
@pytest.mark.parametrize(
    "failure", [OSError(5, "Input/output error"), psutil.AccessDenied(1), RuntimeError("line 'btime' not found")]
)
def test_a_process_that_cannot_be_examined_is_left_out(
    monkeypatch: pytest.MonkeyPatch, method: str, failure: Exception
) -> None:
    monkeypatch.setattr("queue_admin.metrics.system_facts.DAEMONS", ("queue-send",))
    monkeypatch.setattr("queue_admin.metrics.system_facts._program", lambda words: "queue-send")
    # Other tests of the process may have left children.
    assert os.getpid() in [found.pid for found in find_processes(os.getpid())]
    monkeypatch.setattr(psutil.Process, method, _raiser(failure))
    assert find_processes(os.getpid()) == []


def _raiser(failure: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise failure

    return fail
