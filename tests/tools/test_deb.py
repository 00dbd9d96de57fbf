"""The Debian package: what packaging/deb makes can be installed, used, upgraded and purged, and no mail is lost.

The machine's own system gets an overlay, in a mount namespace of its own, so nothing of it changes.
"""

import configparser
import subprocess
from pathlib import Path

import pytest

from support.processes.forked import BIN
from support.tools import missing, need, need_private_mounts

TOP = BIN.parent
pytestmark = pytest.mark.exhaustive
# The arguments are a directory, and the package.
IN_OVERLAY = r"""set -e
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root" || exit 77
mount -t proc proc "$1/root/proc"
mount --bind /dev "$1/root/dev"
cp "$2" "$1/root/suite.deb"
exec chroot "$1/root" sh -ec '
export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
dpkg -i --force-depends /suite.deb >/tmp/first 2>&1 || { cat /tmp/first; exit 1; }
getent passwd queue queuer queuea queued | cut -d: -f1,7
queuectl version
queuectl init /srv/a-home --me mail.example.org >/dev/null
printf "To: me@mail.example.org\n\nfirst\n" | queue-inject --home /srv/a-home
queuectl --home /srv/a-home list | wc -l
test -f /usr/share/man/man8/queuectl.8.gz
/opt/queue-suite/bin/maildirmake /tmp/Maildir
dpkg -i --force-depends /suite.deb >/tmp/second 2>&1 || { cat /tmp/second; exit 1; }
grep -o "restart the service" /tmp/second
queuectl --home /srv/a-home list | wc -l
dpkg --purge queue-suite 2>&1 | grep -o "accounts .* stay"
find /srv/a-home/queue/mess -type f | wc -l
test ! -e /opt/queue-suite && test ! -L /usr/sbin/queuectl
'
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the package of this checkout."""
    need("dpkg-deb")
    words = [TOP / "packaging/deb", tmp_path_factory.mktemp("package")]
    made = subprocess.run(words, capture_output=True, text=True, check=False, timeout=280)
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip())


def test_the_package_has_the_version_of_setup_cfg_and_only_links_outside_of_its_own_places(package: Path) -> None:
    settings = configparser.ConfigParser()
    settings.read(TOP / "setup.cfg")
    words = ["dpkg-deb", "--field", str(package), "Version"]
    version = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    assert version == f"{settings['metadata']['version']}-1"
    listing = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    lines = [line.split(maxsplit=5) for line in listing.splitlines()]
    # Nothing is set-uid, or may be written by others.
    assert {line[0][1:] for line in lines if line[0][0] != "l"} == {"rw-r--r--", "rwxr-xr-x"}
    assert {line[1] for line in lines} == {"root/root"}
    names = {line[5].partition(" -> ")[0]: line[5].partition(" -> ")[2] for line in lines}
    assert not [name for name in names if "__pycache__" in name]
    for name, target in names.items():
        assert (
            name.startswith(("./opt/queue-suite/", "./usr/share/")) or name.endswith("/") or target.startswith("/opt/")
        )
        if target.startswith("/opt/"):
            assert f".{target}" in names


def test_it_can_be_installed_used_upgraded_and_purged_and_mail_stays(package: Path, tmp_path: Path) -> None:
    need_private_mounts()
    words = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        IN_OVERLAY,
        "sh",
        f"{tmp_path}",
        f"{package}",
    ]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=280)
    if ran.returncode == 77:
        missing("a machine on which root may mount an overlay")
    assert (ran.returncode, ran.stderr) == (0, "")
    shell = "/usr/sbin/nologin"
    lines = ran.stdout.splitlines()
    assert lines[:4] == [f"queue:{shell}", f"queuer:{shell}", f"queuea:{shell}", f"queued:{shell}"]
    assert lines[4].startswith("queue-suite ")
    assert lines[5:] == [
        "1",
        "restart the service",
        "1",
        "accounts queue, queuer, queuea, queued stay",
        "1",
    ]
