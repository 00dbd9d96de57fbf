"""The logger of a service directory for daemontools' supervise or runit's runsv: log/run and svlogd's config.

queuectl and queue-report write the same.
"""

import shlex

# As multilog's arguments in log/run: 20 files of 1 MB.
SVLOGD_CONFIG = b"s1000000\nn20\n"


def log_script(account: str | None) -> bytes:
    """Return the script `log/run`, which execs multilog if it is on PATH, else svlogd; under `account` if not None.

    Both add a TAI64N stamp to each line. svlogd gets a buffer that is larger than the longest line, so that it does
    not split lines.
    """
    name = shlex.quote(account) if account else ""
    own = f" && chown {name} ./main" if account else ""
    as_account = (f"setuidgid {name} ", f"chpst -u {name} ") if account else ("", "")
    return f"""#!/bin/sh
exec 2>&1
mkdir -p ./main{own} || exit 111
if command -v multilog >/dev/null; then
  exec {as_account[0]}multilog t s1000000 n20 ./main
fi
if command -v svlogd >/dev/null; then
  exec {as_account[1]}svlogd -t -l 2000 -b 8192 ./main
fi
echo 'log: fatal: neither multilog (daemontools) nor svlogd (runit) is on PATH'
sleep 10
exit 111
""".encode()
