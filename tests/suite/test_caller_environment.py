"""What a caller's environment may not do to the programs that everybody runs: have code of its own run in them."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from queue_base.home import Home
from support.inject.qmail_queue import snapshot
from support.processes.forked import BIN
from support.processes.installed import FORMS, install
from support.processes.suite import program
from support.queues.home import make_home

ROOT = BIN.parent
MESSAGE = b"From: a@b.example\nTo: c@d.example\nSubject: hello\n\nbody\n"
PROGRAMS = {"queue-inject": ["-f", "a@b.example", "c@d.example"], "sendmail": ["c@d.example"], "queue-enqueue": []}
CALLER = 60003


@pytest.fixture(scope="module", params=[*FORMS, "setup-programs with a space"])
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    how = str(request.param)
    return install(tmp_path_factory.mktemp("a b" if "space" in how else "ab") / "venv", how)


def send(path: Path, home: Home, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Send a message with a program."""
    words: list[str | Path] = [path, "--home", home.path, *PROGRAMS[path.name]]
    named = {"PATH": os.defpath, **environment}
    if path.name != "queue-enqueue":
        return subprocess.run(words, input=MESSAGE, env=named, capture_output=True, check=False, timeout=60)
    with tempfile.TemporaryFile() as envelope:
        envelope.write(b"Fa@b.example\0Tc@d.example\0\0")
        envelope.seek(0)
        return subprocess.run(
            words, input=MESSAGE, env=named, stdout=envelope, stderr=subprocess.PIPE, check=False, timeout=60
        )


def queued(home: Home) -> int:
    """Return how many messages wait."""
    return sum(1 for path in Path(home.queue, "todo").glob("*/*"))


def trap(directory: Path, *names: str) -> Path:
    """Write modules and programs that leave `sprung` beside them when they are run; return where they are."""
    directory.mkdir(exist_ok=True)
    for name in names:
        path = directory / name
        if name.endswith(".py"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"open({str(directory / 'sprung')!r}, 'w').close()\n")
        else:
            path.write_text(f"#!/bin/sh\n: >'{directory}/sprung'\nexit 1\n")
            path.chmod(0o755)
    return directory


@pytest.mark.parametrize("name", PROGRAMS)
def test_modules_that_the_caller_names_are_not_imported(
    programs: Path, home: Home, tmp_path: Path, name: str
) -> None:
    place = trap(tmp_path / "trap", "sitecustomize.py", "queue_inject/__init__.py", "queue_base/__init__.py", "io.py")
    done = send(programs / name, home, PYTHONPATH=str(place), PYTHONSTARTUP=str(place / "io.py"))
    assert (done.returncode, queued(home)) == (0, 1), done.stderr
    assert not (place / "sprung").exists()


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_application_with_a_python_of_its_own_can_send(
    programs: Path, home: Home, tmp_path: Path, name: str
) -> None:
    done = send(programs / name, home, PYTHONHOME=str(tmp_path), PYTHONWARNINGS="error", PYTHONUTF8="9")
    assert (done.returncode, queued(home), done.stderr) == (0, 1, b"")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_interpreter_is_the_programs_own_also_by_links_to_it(
    programs: Path, home: Home, tmp_path: Path, name: str
) -> None:
    place = trap(tmp_path / "trap", "python3", "readlink", "env")
    (tmp_path / "elsewhere").symlink_to(programs)
    (tmp_path / "first").symlink_to(f"elsewhere/{name}")
    (place / name).symlink_to("../first")
    done = send(place / name, home, PATH=f"{place}:{os.defpath}")
    assert (done.returncode, queued(home)) == (0, 1), done.stderr
    assert not (place / "sprung").exists()


def test_what_is_started_for_an_isolated_program_is_isolated_too(programs: Path, home: Home, tmp_path: Path) -> None:
    place = trap(tmp_path / "trap", "sitecustomize.py")
    if not (programs / "queuectl").exists():
        shutil.copy(BIN / "queuectl", programs)
    words: list[str | Path] = [programs / "sendmail", "--home", home.path, "-bp"]
    done = subprocess.run(words, env={"PYTHONPATH": str(place)}, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"Mail queue is empty\n"), done.stderr
    assert not (place / "sprung").exists()


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_of_the_callers_shell_are_not_run_where_sh_is_bash(home: Home, tmp_path: Path, name: str) -> None:
    bash = shutil.which("bash", path=os.defpath)
    assert bash, "bash is not installed"
    programs = install(tmp_path / "venv", "pip")
    (tmp_path / "sh").symlink_to(bash)
    text = (programs / name).read_text()
    (programs / name).write_text(text.replace("#!/bin/sh ", f"#!{tmp_path}/sh ", 1))
    (tmp_path / name).symlink_to(programs / name)
    spring = f"() {{ : >'{tmp_path}/sprung'; return 1; }}"
    names = ("[", "command", "exec", "unset", "readlink", ":")
    assert (programs / name).read_text().startswith(f"#!{tmp_path}/sh ")
    done = send(tmp_path / name, home, **{f"BASH_FUNC_{each}%%": spring for each in names}, SHELLOPTS="xtrace")
    assert not (tmp_path / "sprung").exists()
    assert (done.returncode, queued(home)) == (0, 1), done.stderr


def test_a_program_that_is_called_while_it_is_installed_anew_is_whole(tmp_path: Path) -> None:
    programs = install(tmp_path / "venv", "setup-programs")
    before = (programs / "sendmail").read_bytes()
    with (programs / "sendmail").open("rb") as called:
        subprocess.run([BIN / "setup-programs", programs], check=True, timeout=60)
        # Written in place, it would be empty for a moment, and an empty program exits 0.
        assert os.fstat(called.fileno()).st_nlink == 0
        assert called.read() == before
    assert (programs / "sendmail").read_bytes() == before
    assert not list(programs.glob(".*"))


def test_installing_replaces_a_link_and_leaves_what_it_leads_to(tmp_path: Path) -> None:
    programs = install(tmp_path / "venv", "setup-programs")
    written = (programs / "sendmail").read_bytes()
    copies = tmp_path / "checkout/bin"
    shutil.copytree(BIN, copies)
    before = snapshot(copies)
    for name in ("sendmail", "queue-send"):
        (programs / name).unlink()
        # As an administrator may have done it who ran the suite from a checkout so far.
        (programs / name).symlink_to(copies / name)
    subprocess.run([copies / "setup-programs", programs], check=True, timeout=60)
    assert snapshot(copies) == before
    assert (programs / "sendmail").read_bytes() == written
    assert os.readlink(programs / "queue-send") == "../programs/queue-send"


def test_programs_are_not_installed_over_themselves(tmp_path: Path) -> None:
    copies = tmp_path / "bin"
    shutil.copytree(BIN, copies)
    (copies / "python3").symlink_to(sys.executable)
    (tmp_path / "link").symlink_to("bin")
    before = snapshot(copies)
    for place in (copies, tmp_path / "link"):
        words = [copies / "setup-programs", place]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1
        assert done.stderr.startswith(f"setup-programs: fatal: unable to write into {place}: "), done.stderr
    assert snapshot(copies) == before


def call(words: list[str], ids: tuple[int, int, int, int], **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a program with real and effective uid and gid as a set-uid or set-gid program leaves them."""
    uid, effective_uid, gid, effective_gid = ids

    def take() -> None:
        os.setgroups([])
        os.setresgid(gid, effective_gid, effective_gid)
        os.setresuid(uid, effective_uid, effective_uid)

    environment = {**os.environ, **environment}
    return subprocess.run(
        words, input=MESSAGE, env=environment, capture_output=True, preexec_fn=take, check=False, timeout=60
    )


SET_UID = {"set-uid": (CALLER, 0, 0, 0), "set-gid": (0, 0, CALLER, 0)}


@pytest.mark.parametrize("ids", SET_UID.values(), ids=SET_UID)
@pytest.mark.parametrize("name", ["queue-inject", "sendmail"])
@pytest.mark.parametrize("variable", ["QUEUE_ENQUEUE", "QMAILQUEUE"])
def test_a_set_uid_program_runs_no_filter_of_its_caller(
    place: Path, name: str, variable: str, ids: tuple[int, int, int, int]
) -> None:
    home = make_home(place / "home", split=3)
    filters = trap(place / "trap", "filter")
    filters.chmod(0o777)
    words = [*program(name), "--home", home.path, *PROGRAMS[name]]
    done = call(words, ids, **{variable: str(filters / "filter")})
    assert (done.returncode, queued(home)) == (0, 1), done.stderr
    assert not (filters / "sprung").exists()
    # The same environment counts where nobody else's rights are used.
    call(words, (0, 0, 0, 0), **{variable: str(filters / "filter")})
    assert (filters / "sprung").exists()


@pytest.mark.parametrize("name", ["queue-inject", "sendmail"])
def test_root_that_acts_for_a_user_runs_no_filter_of_theirs_through_the_shell(place: Path, name: str) -> None:
    home = make_home(place / "home", split=3)
    Path(home.queue).chmod(0o755)
    Path(home.queue, "maildrop").chmod(0o3733)
    filters = trap(place / "trap", "filter")
    filters.chmod(0o777)
    programs = install(place / "venv", "pip")
    words = [str(programs / name), "--home", home.path, *PROGRAMS[name]]
    # A daemon with seteuid(user). sh would become root again, and what the user names would run as root.
    done = call(words, (0, CALLER, 0, CALLER), QUEUE_ENQUEUE=str(filters / "filter"))
    assert not (filters / "sprung").exists(), done.stderr


@pytest.mark.parametrize("ids", SET_UID.values(), ids=SET_UID)
def test_a_set_uid_program_uses_no_home_of_its_caller(place: Path, ids: tuple[int, int, int, int]) -> None:
    home = make_home(place / "home", split=3)
    before = snapshot(place)
    # It names what it has made of the message by this host's name, which control/me says.
    done = call([*program("queue-inject"), "-n", "c"], ids, QUEUE_HOME=home.path)
    assert b"me.example.org" not in done.stdout
    assert snapshot(place) == before
    done = call([*program("queue-inject"), "-n", "c"], (0, 0, 0, 0), QUEUE_HOME=home.path)
    assert b"@me.example.org" in done.stdout, done.stderr


def test_a_set_uid_program_reads_no_file_that_its_caller_names(place: Path) -> None:
    home = make_home(place / "home", split=3)
    (place / "lists").write_bytes(b"c@d.example\n")
    words = [*program("queue-inject"), "--home", home.path, "-n", "c@d.example"]
    done = call(words, SET_UID["set-uid"], QUEUE_MFTFILE=str(place / "lists"), QMAILMFTFILE=str(place / "lists"))
    assert done.returncode == 0 and b"Mail-Followup-To" not in done.stdout, done
    done = call(words, (0, 0, 0, 0), QUEUE_MFTFILE=str(place / "lists"))
    assert b"Mail-Followup-To" in done.stdout, done.stderr


def test_the_daemons_are_isolated_where_queue_start_is(home: Home, tmp_path: Path) -> None:
    place = trap(tmp_path / "trap", "sitecustomize.py")
    line = "import sys; from queue_base.home import Home; from queue_base.daemon.processes import command; "
    line += f"sys.argv[0] = {str(BIN / 'queue-start')!r}; print(command('queue-send', Home('/h'))[1:3])"
    for options, expected in ((["-I"], "-I"), ([], str(BIN / "queue-send"))):
        done = subprocess.run(
            [sys.executable, *options, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {line}"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.startswith(f"['{expected}'")
    assert not (place / "sprung").exists()
