"""The Debian package: what packaging/deb makes can be installed, used, upgraded and purged, and no mail is lost.

It is installed in an overlay of this machine's system, under a systemd of its own, so nothing here changes.
"""

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from support.processes.forked import BIN
from support.processes.systemd import RunningSystemd
from support.tools import need

TOP = BIN.parent
pytestmark = pytest.mark.exhaustive
# SHOWN is a directory of the test with the package, as a package that needs an MTA.
# The machine's own MTA makes room, as apt would see to it.
LIFE = """
mta=$(dpkg-query -W -f '${Package} ${Provides}\\n' | awk '/ mail-transport-agent/ { print $1 }')
[ -z "$mta" ] || dpkg --remove --force-depends $mta >/dev/null 2>&1
dpkg -i --force-depends SHOWN/suite.deb >/tmp/first 2>&1 || { cat /tmp/first; exit 1; }
getent passwd queue queuer queuea queued | cut -d: -f1
queuectl version
queuectl init /var/queue --me mail.example.org >/dev/null
printf "To: ann@far.example\\n\\nfirst\\n" | queue-inject
queuectl list | wc -l
test -f /usr/share/man/man8/queuectl.8.gz
/opt/queue-suite/programs/maildirmake /tmp/Maildir
readlink -f /usr/sbin/sendmail /usr/lib/sendmail /usr/bin/mailq /usr/bin/newaliases
mailq | grep -c "in 1 Request"
apt-get install -s SHOWN/needs-an-mta.deb | grep "^Inst" | cut -d" " -f2
queuectl init /var/queue --service /etc/systemd/system --kind systemd >/dev/null
queuectl init /var/queue --smtpd-service /etc/systemd/system --kind systemd >/dev/null
systemctl daemon-reload
systemctl start queue-suite-log.socket queue-smtpd-log.socket queue-suite queue-smtpd
grep ExecStart= /etc/systemd/system/queue-suite.service
for unit in queue-suite queue-smtpd; do systemctl show -p MainPID --value $unit; done >/tmp/before
dpkg -i --force-depends SHOWN/suite.deb >/tmp/second 2>&1 || { cat /tmp/second; exit 1; }
end=$(($(date +%s) + 120))
for unit in queue-suite queue-smtpd; do
    until pid=$(systemctl show -p MainPID --value $unit) && [ "$pid" != 0 ] && ! grep -qx "$pid" /tmp/before; do
        [ "$(date +%s)" -lt "$end" ] || { echo "$unit was not started again"; exit 1; }
        sleep 0.1
    done
done
systemctl is-active --quiet queue-suite queue-smtpd && echo upgraded
queuectl list | wc -l
dpkg --purge --force-depends queue-suite 2>&1 | grep -o "accounts .* stay"
systemctl is-active queue-suite queue-smtpd || true
find /var/queue/queue/mess -type f | wc -l
test ! -e /opt/queue-suite && test ! -L /usr/sbin/queuectl && test ! -L /usr/sbin/sendmail
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the package of this checkout."""
    need("dpkg-deb")
    words = [TOP / "packaging/deb", tmp_path_factory.mktemp("package")]
    made = subprocess.run(words, capture_output=True, text=True, check=False, timeout=900)
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


def needs_an_mta(directory: Path) -> None:
    """Make a package that depends on an MTA as cron and others do."""
    control = "Package: needs-an-mta\nVersion: 1\nArchitecture: all\nMaintainer: A <a@b.example>\nDescription: it\n"
    (directory / "source/DEBIAN").mkdir(parents=True)
    (directory / "source/DEBIAN/control").write_text(f"{control}Depends: default-mta | mail-transport-agent\n")
    words = ["dpkg-deb", "--build", str(directory / "source"), str(directory / "needs-an-mta.deb")]
    subprocess.run(words, check=True, capture_output=True, timeout=60)


def test_it_can_be_installed_used_upgraded_and_purged_and_mail_stays(package: Path, tmp_path: Path) -> None:
    shown, place = tmp_path / "shown", tmp_path / "place"
    shown.mkdir()
    place.mkdir()
    needs_an_mta(shown)
    shutil.copy(package, shown / "suite.deb")
    with RunningSystemd(place, shown) as system:
        lines = system.run(LIFE.replace("SHOWN", str(shown)), seconds=900).stdout.splitlines()
    assert lines[:4] == ["queue", "queuer", "queuea", "queued"]
    assert lines[4].startswith("queue-suite ")
    assert lines[5:] == [
        "1",
        *["/opt/queue-suite/programs/sendmail"] * 4,
        "1",
        "needs-an-mta",
        "ExecStart=/opt/queue-suite/programs/queue-start --home /var/queue",
        "upgraded",
        "1",
        "accounts queue, queuer, queuea, queued stay",
        "inactive",
        "inactive",
        "1",
    ]


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    words = [TOP / "packaging/deb", tmp_path / "nowhere"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    said = f"deb: fatal: unable to write into {tmp_path}/nowhere: there is no such directory\n"
    assert (done.returncode, done.stderr) == (1, said)
