"""Programs of root that become account `queue`, where that account may not read their code: which path, and in time."""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import click
import pytest

from queue_admin.commands.home import init
from queue_admin.home.chosen import Choice
from queue_admin.home.daemon_accounts import DaemonAccounts
from queue_base.accounts import Owner
from queue_base.errors import Permanent
from queue_base.home import Home
from support.processes.forked import BIN
from support.processes.installed import copy_packages
from support.processes.suite import program
from support.queues.home import make_home
from support.queues.others import ACCOUNT, give

ROOT = BIN.parent
MESSAGE = b"From: a@b.example\nTo: c@d.example\nSubject: hello\n\nbody\n"


@pytest.fixture
def foreign(place: Path) -> Home:
    """A home whose queue/ is another account's."""
    home = make_home(place / "home", split=3)
    give(home.queue)
    return home


@pytest.fixture
def hidden(place: Path) -> Path:
    """An installation in a directory that only root may search, as /root is; return its bin/."""
    top = place / "private"
    venv.create(top / "venv", symlinks=True, with_pip=False)
    packages = next((top / "venv").glob("lib/python*/site-packages"))
    copy_packages(packages)
    subprocess.run([BIN / "setup-programs", top / "venv/bin"], check=True)
    top.chmod(0o700)
    return top / "venv/bin"


def waiting(home: Home) -> list[str]:
    """Return what there is below queue/, but for the lock."""
    return [path.name for path in Path(home.queue).glob("**/*") if path.is_file() and path.name != "sendmutex"]


BATCH = b"%d:%s," % (len(MESSAGE), MESSAGE)
CALLS = {
    "queue-inject": (["-f", "a@b.example", "c@d.example"], 111),
    "queue-enqueue": ([], 62),
    "sendmail": (["c@d.example"], 75),
    "queue-inject --batch": (["--batch", "mbox", "-f", "a@b.example"], 111),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_injector_names_what_hides_its_code_and_queues_nothing(foreign: Home, hidden: Path, name: str) -> None:
    words, code = CALLS[name]
    message = b"From a@b.example Thu Jan  1 00:00:00 1970\n" + MESSAGE
    with tempfile.TemporaryFile() as envelope:
        envelope.write(b"Fa@b.example\0Tc@d.example\0\0")
        envelope.seek(0)
        done = subprocess.run(
            [hidden / name.split()[0], "--home", foreign.path, *words],
            input=message,
            stdout=envelope,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    text = done.stderr.decode()
    assert done.returncode == code, text
    assert f"unable to read {hidden.parent.parent} as uid {ACCOUNT}: permission denied; install the suite" in text
    assert "bug" not in text and "Traceback" not in text and len(text.splitlines()) == 1
    assert waiting(foreign) == []


def test_where_the_code_can_be_read_root_s_mail_is_queued(foreign: Home, hidden: Path) -> None:
    hidden.parent.parent.chmod(0o755)
    done = subprocess.run(
        [hidden / "queue-inject", "--home", foreign.path, "c@d.example"], input=MESSAGE, check=False, timeout=60
    )
    assert done.returncode == 0
    assert len(list(Path(foreign.queue, "todo").glob("*/*"))) == 1


def test_nothing_is_imported_by_a_delivery_after_it_has_become_its_user(tmp_path: Path) -> None:
    # As a user who may read nothing of the code: what is needed is there before.
    code = (
        "import sys, os, builtins\n"
        "import queue_local.main\n"
        "before = set(sys.modules)\n"
        "from queue_local.local_delivery import deliver_as\n"
        "from queue_base.home import Home\n"
        "from queue_wire.mailbox import Account, Mailbox\n"
        "home, user = Home(sys.argv[1]), Account('me', os.getuid(), os.getgid(), sys.argv[2])\n"
        "for line in (b'./Maildir/', b'./mbox', b'|cat >/dev/null', b'&x@y.example', b'/dev/null'):\n"
        "    message = os.open(sys.argv[3], os.O_RDONLY)\n"
        "    box = Mailbox(user, b'', b'', 'passwd')\n"
        "    deliver_as(home, box, b'a@b.example', b'me@me.example', message, line + b'\\n', True)\n"
        "print(sorted(set(sys.modules) - before))\n"
    )
    home = make_home(tmp_path / "home", split=3)
    user = tmp_path / "user"
    for box in ("new", "cur", "tmp"):
        (user / "Maildir" / box).mkdir(parents=True)
    message = tmp_path / "message"
    message.write_bytes(MESSAGE)
    words = [sys.executable, "-c", code, home.path, str(user), str(message)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert (user / "mbox").exists() and len(list((user / "Maildir/new").iterdir())) == 1


def test_a_link_to_an_interpreter_that_is_hidden_is_followed_to_what_hides_it(place: Path) -> None:
    (place / "python/bin").mkdir(parents=True)
    (place / "python/bin/python3").write_text("")
    (place / "bin").mkdir()
    (place / "bin/python3").symlink_to("../python/bin/python3")
    (place / "python").chmod(0o700)
    code = (
        "import os, sys\n"
        "from queue_base.accounts import Owner, become, first_hidden\n"
        f"become(Owner({ACCOUNT}, {ACCOUNT}))\n"
        "print(first_hidden(sys.argv[1]))\n"
    )
    words = [sys.executable, "-c", code, str(place / "bin/python3")]
    assert subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout == f"{place}/python\n"


def test_init_makes_all_and_then_names_what_its_accounts_cannot_read(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = place / "private"
    hidden.mkdir(mode=0o700)
    monkeypatch.setattr(init, "choose_accounts", lambda home: DaemonAccounts(Owner(ACCOUNT, ACCOUNT), None))
    monkeypatch.setattr(sys, "executable", str(hidden / "python3"))
    context = click.Context(init.command, obj=Choice(None, None))
    with pytest.raises(Permanent, match=f"unable to read {hidden} as account queue: permission denied; install"):
        context.invoke(init.command, home=str(place / "home"), me="mail.example.org", as_me=True)
    assert (place / "home/queue/lock/trigger").exists()


def test_queue_start_names_a_library_of_the_interpreter_that_is_hidden(place: Path) -> None:
    words = program("queue-start")
    code = (
        "import os, sys\n"
        "from queue_admin.home import daemon_accounts\n"
        "from queue_base.accounts import Owner\n"
        f"os.__file__ = {str(place / 'lib/os.py')!r}\n"
        f"sys.argv[0] = {words[1]!r}\n"
        f"daemon_accounts.check_code(daemon_accounts.DaemonAccounts(Owner({ACCOUNT}, {ACCOUNT}), None))\n"
    )
    (place / "lib").mkdir(mode=0o700)
    (place / "lib/os.py").touch()
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert f"unable to read {place}/lib as account queue: permission denied" in done.stderr
