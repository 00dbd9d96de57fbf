"""A lint rule: what root opens, makes, changes or removes, it reaches by a descriptor or by queue_base.safe_open.

A path may lead through a directory of another account, which may put a link there at any moment. So the modules below
call nothing that takes a whole path, but where a line of ALLOWED says why it may. The others of queue_admin work as the
owner of the queue (queue_admin.system_accounts.be_owner), for whom a link opens nothing that is not its own.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
# What runs as root before, or without, be_owner.
ROOT = (
    "queue_admin/aliases", "queue_admin/checks/home_copy.py", "queue_admin/checks/queue_stamp.py",
    "queue_admin/commands/home", "queue_admin/home", "queue_admin/restarts.py", "queue_admin/settings",
    "queue_admin/start.py", "queue_admin/system_accounts.py", "queue_admin/users", "queue_base/accounts.py",
    "queue_base/daemon/lock.py", "queue_base/safe_open.py", "queue_base/users.py", "queue_local/config.py",
    "queue_local/deliveries.py", "queue_local/jobs.py", "queue_local/main.py",
)  # fmt: skip
# Calls that take a path. Without one of DESCRIPTORS among the arguments, the path is a whole one.
TAKE_PATHS = {
    *(f"os.{name}" for name in ("open", "chmod", "chown", "lchown", "link", "makedirs", "mkdir", "mkfifo", "remove")),
    *(f"os.{name}" for name in ("rename", "replace", "rmdir", "symlink", "truncate", "unlink", "utime")),
    *(f"shutil.{name}" for name in ("chown", "copy", "copy2", "copyfile", "copymode", "copytree", "move", "rmtree")),
    *("read_file", "read_dated", "sync_path", "write_text", "write_bytes", "read_text", "read_bytes"),
}
# Steps of a Commit that take one; `contents` takes a descriptor, too.
STEPS = {"create", "written", "contents", "removed", "directory", "link", "rename", "unlink"}
DESCRIPTORS = {"dir_fd", "src_dir_fd", "dst_dir_fd"}
# By module and function: why it may.
_COPY = "queue_admin/checks/home_copy.py"
_OWN = "below the descriptor of HOME2.new, which root alone may enter until it is complete"
ALLOWED = {
    (_COPY, "copy_home"): "HOME2 is where its caller wants it",
    (_COPY, "_name_queues"): _OWN,
    (_COPY, "_copy"): _OWN,
    (_COPY, "_write"): _OWN,
    (_COPY, "copy_postman"): _OWN,
    (_COPY, "_new_file"): _OWN,
    ("queue_base/safe_open.py", "open_below"): "the top directory is trusted, as the module says",
    ("queue_base/users.py", "find_assigned"): "the file and its directory are looked at before anything is believed",
}


def calls(path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield the function, the line and the name of each call that takes a whole path."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, int, str]]:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, ast.FunctionDef) else function
            if isinstance(child, ast.Call) and (name := called(child)) is not None:
                yield inner, child.lineno, name
            yield from walk(child, inner)

    yield from walk(ast.parse(path.read_text()), "")


def called(call: ast.Call) -> str | None:
    """Return the name of a function of TAKE_PATHS, or a step of a Commit, that takes a whole path here, else None."""
    text = ast.unparse(call.func)
    of, _, step = text.rpartition(".")
    if of.rpartition(".")[2].endswith("commit") and step in STEPS:
        return None if step == "contents" and len(call.args) == 2 else text
    name = text if text in TAKE_PATHS else text.rpartition(".")[2] if not text.startswith("os.") else ""
    if name not in TAKE_PATHS or any(word.arg in DESCRIPTORS for word in call.keywords):
        return None
    first = ast.unparse(call.args[0]) if call.args else ""
    # A descriptor in the place of a path.
    return None if first in ("handle", "os.devnull", "'/'", "'/dev/null'") or "/proc/self/fd/" in first else name


def modules() -> list[Path]:
    found = [path for each in ROOT for path in ([TOP / each] if each.endswith(".py") else (TOP / each).rglob("*.py"))]
    assert all(path.exists() for path in found)
    return found


def test_what_root_opens_it_opens_by_a_descriptor_or_by_the_safe_opener() -> None:
    wrong, used = [], set()
    for path in modules():
        module = str(path.relative_to(TOP))
        for function, line, name in calls(path):
            used.add((module, function))
            if (module, function) not in ALLOWED:
                wrong.append(f"{module}:{line}: {name} in {function or 'the module'} takes a whole path")
    assert wrong == [], "use open_below or open_given of queue_base.safe_open, or say in ALLOWED why not"
    assert set(ALLOWED) <= used, "these are not needed any more"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("os.open(path, os.O_RDONLY)", True),
        ("os.open(name, os.O_RDONLY, dir_fd=here)", False),
        ("os.chmod(path, 0o600)", True),
        ("os.chown(f'/proc/self/fd/{handle}', 0, 0)", False),
        ("read_file(f'{top}/name')", True),
        ("Path(name).write_text('x')", True),
        ("open_below(top, name)", False),
        ("self.commit.removed(path)", True),
        ("maker.commit.contents(path)", True),
        ("maker.commit.contents(path, handle)", False),
    ],
)
def test_the_rule_tells_whole_paths_from_descriptors(text: str, found: bool) -> None:
    call = ast.parse(text).body[0]
    assert isinstance(call, ast.Expr) and isinstance(call.value, ast.Call)
    assert (called(call.value) is not None) == found
