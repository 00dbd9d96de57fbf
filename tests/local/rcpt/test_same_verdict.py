"""The recipient checker refuses exactly what queue-local bounces, whatever the users, homes and files are."""

import os
import shutil
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queue_admin.users.users_cdb import build_users
from queue_local.local_delivery import deliver
from queue_local.qmailfile import NO_MAILBOX
from queue_local.rcpt.recipient_check import check_recipient
from queue_local.result import Outcome
from queue_wire.pipes.job import Job
from support.local.deliveries import run
from support.local.mailboxes import UID, MailHome, give

OTHER = 12346
PARTS = st.sampled_from(
    ["", "a", "b", "A", "a.b", "list", "default", "root", "daemon", "nobody", "\u00e9", "x" * 40, "/", "=", "a" * 300]
)
# So few that files and recipients often have the same.
FEW = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2).map("-".join)
NAMES = FEW | st.lists(PARTS, min_size=1, max_size=4).map("-".join)
EXTENSIONS = NAMES | FEW.map(lambda name: name + "-default") | st.just("default")
HOMES = st.sampled_from(["one", "two", "none", "file"])
FILE_MODES = st.sampled_from([0o600, 0o644, 0o000, 0o666, 0o755])
HOME_MODES = st.just(0o700) | st.sampled_from([0o700, 0o755, 0o711, 0o1755, 0o775, 0o000])
USERS = st.just(UID) | st.sampled_from([OTHER, 0])
ASSIGNED_HOMES = st.just("one") | HOMES
DASHES = st.sampled_from(["", "-", "+", "_"])
BEGINNINGS = st.sampled_from(["", "a", "list-"])
ASSIGNMENTS = st.tuples(st.sampled_from("=+"), FEW | NAMES, USERS, ASSIGNED_HOMES, DASHES, BEGINNINGS)
# Most are as they should be.
FILE_KINDS = st.just((0o644, False)) | st.tuples(FILE_MODES, st.booleans())
FILES = st.tuples(st.just("alias") | HOMES, st.just("-") | st.sampled_from(["", "+", "-owner"]), EXTENSIONS, FILE_KINDS)
SECONDS = 60


def lay_out(
    mail: MailHome,
    homes: dict[str, int],
    assignments: list[tuple[str, str, int, str, str, str]],
    files: list[tuple[str, str, str, tuple[int, bool]]],
) -> None:
    """Make homes of these modes, with these .qmail files, or directories of that name, and users/cdb."""
    for name in ("one", "two", "file", "alias", "users"):
        path = mail.path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for name in ("one", "two", "alias"):
        (mail.path / name).mkdir()
        give(mail.path / name)
    (mail.path / "file").write_text("")
    for home, dash, extension, (mode, directory) in files:
        path = mail.path / home / f".qmail{dash}{extension.replace('/', ':')}"
        if len(os.fsencode(path.name)) > 255 or not path.parent.is_dir() or path.exists():
            continue
        if directory:
            path.mkdir()
        else:
            path.write_text("# nothing is delivered\n")
        path.chmod(mode)
        give(path)
    for name, mode in homes.items():
        (mail.path / name).chmod(mode)
    lines = []
    for kind, local, uid, name, dash, extension in assignments:
        lines.append(f"{kind}{local}:user:{uid}:{uid}:{mail.path}/{name}:{dash}:{extension}:\n")
    users = Path(mail.home.users)
    users.mkdir(mode=0o755)
    (users / "assign").write_text("".join(lines) + ".\n")
    if assignments:
        build_users(mail.home)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.fixed_dictionaries(dict.fromkeys(("one", "two", "alias"), HOME_MODES)),
    st.lists(ASSIGNMENTS, max_size=3),
    st.lists(FILES, max_size=8),
    FEW | NAMES | FEW.map(lambda name: name + "-"),
    st.sampled_from(["@host.example", "@srs.example", ""]),
)
def test_the_verdict_is_that_of_a_delivery(
    mail: MailHome,
    homes: dict[str, int],
    assignments: list[tuple[str, str, int, str, str, str]],
    files: list[tuple[str, str, str, tuple[int, bool]]],
    local: str,
    domain: str,
) -> None:
    lay_out(mail, homes, assignments, files)
    recipient = os.fsencode(local + domain)
    message = mail.path / "message"
    message.write_text("Subject: x\n\n")
    job = Job(7, b"", b"from@far.example", recipient, [recipient])

    def check(descriptor: int) -> Outcome:
        check_recipient(mail.home, recipient)
        return Outcome("")

    delivered = run(lambda descriptor: deliver(mail.home, job, descriptor, b"# nothing\n"), message)
    checked = run(check, message)
    assert checked[0] == delivered[0], (checked, delivered)
    if delivered[0] != b"K":
        assert checked == delivered
    assert (checked[1].strip() == NO_MAILBOX.encode()) == (delivered[1].strip() == NO_MAILBOX.encode())
