"""Completion at TAB: the script for each shell, and what the programs answer to it."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from queue_admin.main import main
from queue_base.shell_completion import PROGRAMS, SHELLS
from queue_report.main import main as report_main
from support.processes.installed import install
from support.processes.suite import program


def answers(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what queuectl offers in place of the last word of a line, as `type,value`."""
    monkeypatch.setenv("_QUEUECTL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    assert main(["queuectl"]) == 0
    assert "_QUEUECTL_COMPLETE" not in os.environ
    return capsys.readouterr().out.split()


def test_commands_options_and_values_are_offered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def offered(line: str) -> list[str]:
        return answers(line, monkeypatch, capsys)

    assert offered("queuectl sh") == ["plain,shape", "plain,show"]
    assert offered("queuectl --home /srv/q li") == ["plain,list"]
    assert "plain,--state" in offered("queuectl list --s")
    assert "plain,held" in offered("queuectl list --state h")
    assert offered("queuectl list --sort = a") == ["plain,age"]  # As bash has --sort=a.
    assert offered("queuectl config set concurrencyr") == ["plain,concurrencyremote"]
    assert offered("queuectl maildrop re") == ["plain,release", "plain,remove"]
    assert offered("queuectl --home /srv") == ["dir,/srv"]
    assert offered("queuectl check /srv") == ["dir,/srv"]
    assert offered("queuectl init --service /srv") == offered("queuectl init --log /srv") == ["dir,/srv"]
    assert offered("queuectl import-aliases /etc") == offered("queuectl log --logs /etc") == ["file,/etc"]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_that_asks_the_program(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name, run in (("queuectl", main), ("queue-report", report_main)):
        assert run([name, "completion", shell]) == 0
        script = capsys.readouterr().out
        assert f"{PROGRAMS[name]}={shell}_complete" in script
        assert name in script


def test_bash_takes_its_script_and_completes_a_word(tmp_path: Path) -> None:
    (tmp_path / "queuectl").write_text(f'#!/bin/sh\nexec {shlex.join(program("queuectl"))} "$@"\n')
    (tmp_path / "queuectl").chmod(0o755)
    script = """
        eval "$(queuectl completion bash)"
        COMP_WORDS=(queuectl config sh) COMP_CWORD=2
        _queuectl_completion queuectl
        echo "${COMPREPLY[@]}"
    """
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", script], env=path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("show\n", "")


def test_the_installed_scripts_are_where_shells_look_and_bash_completes_by_them(tmp_path: Path) -> None:
    programs = install(tmp_path / "installed", "setup-programs")
    share = tmp_path / "installed" / "share"
    for name in PROGRAMS:
        for shell, place in (
            ("bash", f"bash-completion/completions/{name}"),
            ("zsh", f"zsh/site-functions/_{name}"),
            ("fish", f"fish/vendor_completions.d/{name}.fish"),
        ):
            assert f"{PROGRAMS[name]}={shell}_complete" in (share / place).read_text()
    assert not list(share.glob("**/*.new"))
    # As docs/install.md has it; bash-completion reads the file at the first TAB.
    local = tmp_path / "local"
    local.mkdir()
    subprocess.run(["cp", "-rsf", *(share / name for name in ("bash-completion", "zsh", "fish")), local], check=True)
    script = f"""
        . '{local}/bash-completion/completions/queuectl'
        complete -p queuectl
        COMP_WORDS=(queuectl config sh) COMP_CWORD=2
        _queuectl_completion queuectl
        echo "${{COMPREPLY[@]}}"
    """
    path = {"PATH": f"{programs}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", script], env=path, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines() == ["complete -o nosort -F _queuectl_completion queuectl", "show"], done.stderr


def test_a_shell_that_is_none_is_a_usage_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["queuectl", "completion", "tcsh"]) == 100
    assert capfd.readouterr().err.startswith("queuectl: fatal: ")
