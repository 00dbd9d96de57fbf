"""What a test does about a tool or a right that is missing: it fails under CI, elsewhere it is skipped and says so.

And about time: an example of hypothesis has no limit of it.
"""

import os
import re
from pathlib import Path

import pytest
from hypothesis import settings

from support import tools


def test_a_tool_that_is_missing_is_a_skip_that_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(tools, "PACKAGES", {"no-such-command": "some-package"})
    with pytest.raises(pytest.skip.Exception, match="needs no-such-command: apt-get install some-package"):
        tools.need("no-such-command")


def test_under_ci_a_missing_tool_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needs no-such-command"):
        tools.need("no-such-command")


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_root_is_a_failure_under_ci_and_a_skip_elsewhere(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(outcome, match="needs root"):
        tools.need_root()


def test_a_tool_that_only_root_has_on_path_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "for-root"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setattr(tools, "_ALSO", str(tmp_path))
    assert tools.need("for-root") == str(tool)


def test_a_file_that_is_missing_is_a_skip_that_names_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CI", raising=False)
    pattern = f"{tmp_path}/*/file"
    monkeypatch.setattr(tools, "PACKAGES", {pattern: "some-package"})
    with pytest.raises(pytest.skip.Exception, match="apt-get install some-package"):
        tools.need_file(pattern)
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "file").touch()
    tools.need_file(pattern)


def test_each_command_that_a_test_needs_has_a_package_that_ci_installs() -> None:
    # Those of Debian packages with priority required, which every machine has.
    required = {"dpkg-deb", "mkdir", "mkfs.ext4", "mount", "usermod"}
    tests = Path(__file__).resolve().parents[1]
    asked = {
        (name, path.name)
        for path in tests.rglob("*.py")
        if path != Path(__file__).resolve()
        for name in re.findall(r'\bneed\("([^"]+)"\)', path.read_text())
    }
    assert len(asked) > 50
    assert [each for each in sorted(asked) if each[0] not in tools.PACKAGES and each[0] not in required] == []


def test_no_example_of_hypothesis_fails_for_its_time_in_a_run_of_one_process_either() -> None:
    assert settings.default is not None and settings.default.deadline is None
