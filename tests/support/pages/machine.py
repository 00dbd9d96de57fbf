"""A machine of its own for a test: root's shell as process 1 of namespaces, on a root of its own, read-only below /usr.

/etc is a copy of this machine's, without the accounts of its users and of the suite, and what is made there goes with
it. /var, /opt, /home, /root, /run and the
like are empty, the network is the loopback interface alone, and at the end every process is killed. The checkout is
`/src`, and the libraries of the Python that runs the tests are in `/libraries`.
"""

import os
import re
import selectors
import shlex
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from support.processes.forked import BIN
from support.tools import need, need_private_mounts, need_shared_python

SECONDS = 120.0
_MARK = "\x01"
# $1 is an empty directory, $2 the checkout, $3 where the Python is installed, the others directories with libraries.
_BOOT = r"""set -e
root=$1 checkout=$2 python=$3
shift 3
mount -t tmpfs -o mode=755 none "$root"
cd "$root"
for path in /*; do
    name=${path#/}
    if [ -L "$path" ]; then
        cp -P "$path" .
        continue
    fi
    case $name in
    bin | lib* | sbin | usr)
        mkdir "$name"
        mount --bind "$path" "$name"
        mount -o remount,bind,ro "$name"
        ;;
    esac
done
cp -a /etc etc
mkdir -p -m 755 dev proc sys libraries src opt home root run backup usr/local/share srv
mkdir -p var/lib var/log var/spool var/cache var/mail
mkdir -m 1777 tmp var/tmp
mount -t tmpfs none usr/local/share
mount --rbind /dev dev
mount -t proc proc proc
mount --bind "$checkout" src
mount -o remount,bind,ro src
if [ ! -d "./$python" ]; then
    mkdir -p -m 755 "./$python"
    mount --bind "$python" "./$python"
fi
for library; do
    place=$(mktemp -d libraries/XXXXXX)
    chmod 755 "$place"
    mount --bind "$library" "$place"
done
ln -s ../run var/run
for user in queuer queue queuea queued $(awk -F: '$3 >= 1000 && $3 < 65000 {print $1}' etc/passwd); do
    chroot . userdel "$user" || true
done >userdel 2>&1
rm userdel
ip link set lo up
hostname mail.example.org
: >etc/resolv.conf
exec env -i HOME=/root USER=root LANG=C.UTF-8 TZ=UTC \
    PATH=$python/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 chroot . bash --noprofile --norc
"""
_NAMESPACES = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--uts", "--net"]


class Ran(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    text: str


class Machine:
    """It runs from `with` to its end; `place` is an empty directory."""

    def __init__(self, place: Path) -> None:
        need_private_mounts()
        need_shared_python()
        libraries = [path for path in sys.path if path.endswith("-packages")]
        words = [need("unshare"), *_NAMESPACES, "bash", "-c", _BOOT, "bash"]
        words += [str(place), str(BIN.parent), sys.base_prefix, *libraries]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
        )
        need("ip")

    def __enter__(self) -> Self:
        ran = self.run("cd /src")
        assert ran == (0, ""), ran.text
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate(timeout=SECONDS)

    def run(self, command: str, seconds: float = SECONDS) -> Ran:
        """Run a command in the shell, where a change of directory or of a variable stays."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"eval {shlex.quote(command)} </dev/null\nprintf '{_MARK}%s{_MARK}' $?\n".encode())
        return self._read(command, time.monotonic() + seconds)

    def must(self, command: str) -> str:
        """Run a command that has to succeed; return what it printed."""
        ran = self.run(command)
        assert ran.code == 0, f"{command}\n{ran.text}"
        return ran.text

    def _read(self, command: str, end: float) -> Ran:
        out = self._process.stdout
        assert out is not None
        said = b""
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while True:
                left = end - time.monotonic()
                more = os.read(out.fileno(), 65536) if left > 0 and selector.select(left) else b""
                said += more
                found = re.fullmatch(rf"(.*){_MARK}(\d+){_MARK}", said.decode(errors="replace"), re.DOTALL)
                if found:
                    return Ran(int(found[2]), found[1])
                assert more, f"the shell ended, or did not come back from: {command}\n{said.decode(errors='replace')}"
