"""Completion of a command line in bash, zsh and fish, by click.

`queuectl completion bash` prints a script for the shell. At each TAB the script runs the program with the words so far
in its environment, and `answer_shell` prints what may come next. Nothing of the queue is read for that.
"""

import os

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

# click's own script completes nothing at the second TAB, when zsh calls the function that it has loaded from this file;
# and it puts the value in the place of the whole word --option=value.
_ZSH_SCRIPT = """#compdef %(prog_name)s

%(complete_func)s() {
    local -a plain described response
    local type key description
    (( $+commands[%(prog_name)s] )) || return 1

    response=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) %(complete_var)s=zsh_complete \
        %(prog_name)s)}")
    # Of --option=value, the value is completed.
    [[ $PREFIX == --*=* ]] && compset -P 1 '*='
    for type key description in $response; do
        case $type in
            (plain) if [[ $description == _ ]]; then plain+=("$key"); else described+=("$key:$description"); fi ;;
            (dir) _path_files -/ ;;
            (file) _path_files -f ;;
        esac
    done
    (( $#described )) && _describe -V unsorted described
    (( $#plain )) && compadd -V unsorted -a plain
}

compdef %(complete_func)s %(prog_name)s
# At the first TAB zsh loads this file from fpath, as a function, and wants it to complete.
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
fi
"""


class _Bash(BashComplete):
    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the last, and the last; bash has `=` as a word of its own."""
        words, begun = super().get_completion_args()
        return [word for at, word in enumerate(words) if word != "=" or not words[at - 1].startswith("--")], begun


class _Zsh(ZshComplete):
    source_template = _ZSH_SCRIPT


class _Fish(FishComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return what may come; fish wants the whole word --option=value."""
        found = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if equals and option.startswith("--"):
            for item in found:
                item.value = f"{option}={item.value}"
        return found


SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}
# Below share/.
PLACES = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/site-functions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}
PROGRAMS = {"queuectl": "_QUEUECTL_COMPLETE", "queue-report": "_QUEUE_REPORT_COMPLETE"}


def completion_script(program: str, shell: str) -> str:
    """Return the script for one of SHELLS. It does not depend on the program's commands."""
    # Not its source(), which runs bash to ask for its version.
    complete = SHELLS[shell](click.Group(), {}, program, PROGRAMS[program])
    return f"{complete.source_template % complete.source_vars()}\n"


def write_scripts(share: str) -> None:
    """Write the scripts of all PROGRAMS for all shells below a share/, where each shell looks. Raises OSError."""
    for program in PROGRAMS:
        for shell, place in PLACES.items():
            path = os.path.join(share, place.format(program))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            # Renamed when it is whole: a shell may read it meanwhile.
            with open(f"{path}.new", "w", encoding="ascii") as file:
                file.write(completion_script(program, shell))
            os.rename(f"{path}.new", path)


def completion_command(program: str) -> click.Command:
    """Return the subcommand that prints the scripts."""

    @click.command("completion")
    @click.argument("shell", type=click.Choice(list(SHELLS)))
    def command(shell: str) -> None:
        print(completion_script(program, shell), end="")

    command.help = f"""Print a script that lets a shell complete commands, options and their values at TAB.

    bash (4.4 or later) needs the package bash-completion. {program} must be on PATH.

    \b
    Examples:
      {program} completion bash >/usr/share/bash-completion/completions/{program}
      {program} completion zsh >/usr/local/share/zsh/site-functions/_{program}
      {program} completion fish >/usr/share/fish/vendor_completions.d/{program}.fish
    """
    return command


def answer_shell(program: str, group: click.Group) -> int | None:
    """Answer the script of a shell, if it asks; return the exit code, None if nobody asks."""
    variable = PROGRAMS.get(program, "")
    asked = os.environ.pop(variable, "")
    if not asked:
        return None
    shell = asked.removesuffix("_complete")
    if shell not in SHELLS:
        return 1
    print(SHELLS[shell](group, {}, program, variable).complete())
    return 0


def complete_directory(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Have the shell complete a directory."""
    return [CompletionItem(begun, type="dir")]


def complete_file(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Have the shell complete a file, or a directory."""
    return [CompletionItem(begun, type="file")]
