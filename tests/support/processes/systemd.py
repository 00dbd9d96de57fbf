"""A real systemd as process 1 of namespaces of its own, on an overlay of this machine's files: nothing here changes.

It has processes, mounts, a loopback interface, users and cgroups of its own. The checkout and `/opt/queue-suite` of the
test are bound into it.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from support.processes.forked import BIN
from support.tools import missing, need, need_private_mounts

TOP = BIN.parent
CGROUPS = Path("/sys/fs/cgroup")
SECONDS = 60.0
# $1 is an empty directory, $2 whether this machine has one hierarchy of cgroups, the others what to show it of other
# file systems. Exit 77 says that this machine cannot do it.
BOOT = r"""set -e
place=$1 unified=$2
shift 2
mount -t tmpfs -o mode=755 none "$place"
mkdir "$place/upper" "$place/work" "$place/root"
root=$place/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" "$root" || exit 77
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
case $unified in
True) mount -t cgroup2 none "$root/sys/fs/cgroup" ;;
*)
    mount -t tmpfs none "$root/sys/fs/cgroup"
    mkdir "$root/sys/fs/cgroup/systemd"
    mount -t cgroup -o none,name=systemd none "$root/sys/fs/cgroup/systemd"
    ;;
esac || exit 77
for directory in run tmp var/tmp dev; do mount -t tmpfs none "$root/$directory"; done
chmod 1777 "$root/tmp" "$root/var/tmp"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t tmpfs -o mode=1777 none "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 none "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for shown; do
    mkdir -p "$root$shown"
    mount --bind "$shown" "$root$shown"
done
rm -f "$root"/etc/systemd/system/*.wants/*
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
mkdir -p "$root/mnt"
cd "$root"
pivot_root . mnt
exec chroot . sh -c 'umount -l /mnt; exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=basic.target --show-status=no </dev/null >/run/systemd.log 2>&1'
"""
# Some cgroups, such as those of cpuset, take no process before they are set up; systemd uses none of these.
JOIN = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || true; shift; done 2>/dev/null; shift; exec "$@"'
NAMESPACES = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
NAMESPACES += ["--uts", "--ipc", "--net", "--cgroup"]


class RunningSystemd:
    """It runs from `with` to its end. `shown` are directories on other file systems than the root that it is to see.

    `variables` are more of the environment of what is run.
    """

    def __init__(self, place: Path, *shown: Path) -> None:
        self.variables: Mapping[str, str] = {}
        need_private_mounts()
        for command in ("ip", "nsenter", "systemctl", "unshare"):
            need(command)
        unified = (CGROUPS / "cgroup.procs").exists()
        tops = [CGROUPS] if unified else [path.parent for path in CGROUPS.glob("*/cgroup.procs")]
        self._cgroups = [top / f"queue-suite-test-{os.getpid()}" for top in tops]
        try:
            for cgroup in self._cgroups:
                cgroup.mkdir()
        except OSError:
            missing("a machine whose cgroups root may use, as systemd does")
        words = ["sh", "-c", JOIN, "sh", *map(str, self._cgroups), "--", "unshare", *NAMESPACES]
        words += ["sh", "-c", BOOT, "sh", str(place), str(unified), str(TOP), *map(str, shown)]
        self._process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)

    def __enter__(self) -> "RunningSystemd":
        try:
            self._enter = ["nsenter", "-t", str(self._first()), "-m", "-p", "-u", "-i", "-n", "-r", "-w"]
            ran = self.run("ip link set lo up; systemctl is-system-running --wait", check=False)
            assert ran.stdout.strip() in ("running", "degraded"), ran.stdout + ran.stderr
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def run(self, script: str, *, check: bool = True, seconds: float = 280) -> subprocess.CompletedProcess[str]:
        """Run a script of sh as root, each command of which must succeed unless `check` is false."""
        words = [*self._enter, "env", "-i", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
        words += [f"{name}={value}" for name, value in self.variables.items()]
        done = subprocess.run(
            [*words, "sh", "-e" if check else "+e"],
            input=script,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        assert not check or done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done

    def _first(self) -> int:
        """Return systemd's process id here, once it is systemd that answers."""
        end = time.monotonic() + SECONDS
        while True:
            if self._process.poll() is not None:
                said = self._process.stderr.read() if self._process.stderr else ""
                if self._process.returncode == 77:
                    missing("a machine on which root may mount an overlay and cgroups")
                raise AssertionError(f"systemd was not started: {said}")
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
            for child in children:
                if Path(f"/proc/{child}/root/run/systemd/private").exists():
                    return int(child)
            assert time.monotonic() < end, "systemd does not answer"
            time.sleep(0.05)

    def _end(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate(timeout=SECONDS)
        end = time.monotonic() + SECONDS
        for cgroup in self._cgroups:
            while cgroup.exists() and time.monotonic() < end:
                for directory, _, _ in os.walk(cgroup, topdown=False):
                    try:
                        os.rmdir(directory)
                    except OSError:
                        time.sleep(0.05)  # Its processes are ending.
