"""The log of a suite whose processes are killed, under multilog: its tables agree with everybody who saw the mail."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from queue_report.reports.choice import open_engine
from support.plugins.saying import Say
from support.spark.lake_rows import ask
from support.spark.logs.log_account import Account
from support.spark.logs.log_lake import Lake
from support.spark.logs.log_rows import agree
from support.spark.logs.logged_run import LoggedRun


def check(run: LoggedRun, place: Path) -> str:
    """Fail where the tables or the report of conservation do not agree with what happened; return what that was."""
    truth = Lake(place).truth()
    tables = open_engine(str(place))
    account = Account(run, truth)
    assert account.wrong() == []
    assert truth.quarantine == []
    assert ask("conservation-messages", tables) == []
    names = ("recipients", "delivered", "failed", "pending", "deleted", "difference", "problems", "waiting")
    [found] = ask("conservation", tables, None, *names)
    recipients, delivered, failed, pending, *others = found
    assert recipients == delivered + failed + pending and others == [0, 0, 0, len(truth.waiting)]
    return account.tell()


def test_the_tables_of_a_suite_that_is_killed_agree_with_injectors_receivers_and_queue(
    tmp_path: Path, say: Say
) -> None:
    run = LoggedRun(tmp_path / "logs" / "mx1" / "main", seed=1, count=150, rounds=1)
    run.go()
    names = [path.name for path in run.logs.iterdir()]
    assert sum(name.endswith(".s") for name in names) > 10 and any(name.endswith(".u") for name in names)
    Lake(tmp_path / "lake").feed(tmp_path / "logs")
    say(check(run, tmp_path / "lake"))


def has_lines(log: Path) -> bool:
    """Return whether a log is there and not empty; multilog renames it at any time."""
    try:
        return log.stat().st_size > 0
    except FileNotFoundError:
        return False


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [2, 3])
def test_the_tables_agree_after_a_minute_whose_log_is_read_while_it_grows(
    tmp_path: Path, seed: int, say: Say
) -> None:
    logs, growing, whole = tmp_path / "logs", tmp_path / "growing", tmp_path / "whole"
    run = LoggedRun(logs / "mx1" / "main", seed, count=2500, rounds=10)
    batches = 0
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(run.go)
        while not work.done():
            if has_lines(run.logs / "current"):
                Lake(growing).feed(logs)
                batches += 1
        work.result()
    Lake(growing).feed(logs)
    say(f"{batches + 1} batches; " + check(run, growing))
    Lake(whole).feed(logs)
    agree(Lake(whole).truth(), Lake(growing).truth())
