"""The units of systemd: the suite or its SMTP server, the logger of it, and the FIFO between them. Pure.

systemd adds no TAI64N stamps and cannot rotate files, so the log goes through a FIFO to multilog, svlogd or s6-log,
which write what queue-report reads. systemd keeps the FIFO open: lines wait in it while the logger is started again.

TERM goes to queue-send alone (KillMode=mixed), which finishes the deliveries in flight; or to queue-smtpd, which ends
the transactions that have begun.
"""

from collections.abc import Sequence
from typing import NamedTuple

# Seconds for the deliveries in flight at a stop. What is still in flight then may be delivered again.
STOP_SECONDS = 600
# Seconds for transactions that have begun; queue-smtpd ends them in a minute.
SMTPD_STOP_SECONDS = 90
# Since this version of systemd, `systemctl reload` waits until the control files have been reread.
NOTIFY_RELOAD = 253

_SUITE = """\
[Unit]
Description=queue-suite, the mail queue in {home}
Wants=network-online.target
Requires={name}-log.socket
After=network-online.target nss-lookup.target {name}-log.socket

[Service]
{type}
NotifyAccess=main
ExecStart={command}
StandardInput=null
StandardOutput=file:{fifo}
StandardError=inherit
# TERM goes to queue-send alone, which finishes the deliveries in flight.
KillMode=mixed
TimeoutStopSec={stop}
Restart=always
RestartSec=1
# 100: the queue cannot be used as it is, and `systemctl status` says why. Another start would not change that.
RestartPreventExitStatus=100
LimitNOFILE=65536
OOMPolicy=continue
{hardening}
[Install]
WantedBy={target}
"""
# queue-local becomes each recipient's user, writes to home directories, and runs the users' programs, which may be
# set-group-id: so there is no NoNewPrivileges and no ProtectHome, and only what no such program needs is filtered.
# queue-start opens the ports of control/intake, and control/locallimits may ask for more than root's own limits.
_SUITE_HARDENING = """\
CapabilityBoundingSet=CAP_SETUID CAP_SETGID CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID
CapabilityBoundingSet=CAP_KILL CAP_NET_BIND_SERVICE CAP_SYS_RESOURCE
KeyringMode=private
LockPersonality=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem=full
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
SystemCallArchitectures=native
SystemCallFilter=~@clock @cpu-emulation @module @obsolete @raw-io @reboot @swap
UMask=0027
"""
_SMTPD = """\
[Unit]
Description=The SMTP server of queue-suite, for the mail queue in {home}
Wants=network-online.target
Requires={name}-log.socket
After=network-online.target nss-lookup.target {name}-log.socket

[Service]
Type=notify
ExecReload={reload}kill -HUP $MAINPID
NotifyAccess=main
ExecStart={command}
StandardInput=null
StandardOutput=file:{fifo}
StandardError=inherit
# TERM goes to the first process alone, which ends the transactions that have begun.
KillMode=mixed
TimeoutStopSec={stop}
Restart=always
RestartSec=1
RestartPreventExitStatus=100
LimitNOFILE=65536
OOMPolicy=continue
{hardening}
[Install]
WantedBy={target}
"""
# As root it opens its ports, and then becomes account queued. It writes no file but its greylist, as that account: so a
# link in the place of its directory opens nothing. Without CAP_KILL root may not signal it, so ExecReload has `+`: all
# privileges.
_SMTPD_HARDENING = """\
CapabilityBoundingSet=CAP_NET_BIND_SERVICE CAP_SETUID CAP_SETGID
KeyringMode=private
LockPersonality=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem=strict
ReadWritePaths={greylist}
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
UMask=0027
"""
_LOGGER = """\
[Unit]
Description=The log of {what}, in {log}
Requires={name}-log.socket
After={name}-log.socket
Before={name}.service

[Service]
ExecStart={command}
StandardInput=socket
StandardOutput=journal
StandardError=journal
UMask=0027
Restart=always
RestartSec=1
{hardening}"""
_LOGGER_HARDENING = """\
User={account}
CapabilityBoundingSet=
LockPersonality=yes
MemoryDenyWriteExecute=yes
NoNewPrivileges=yes
PrivateDevices=yes
PrivateNetwork=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProtectSystem=strict
ReadWritePaths={log}
RestrictAddressFamilies=AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
"""
_SOCKET = """\
[Unit]
Description=The FIFO of the log of {what}

[Socket]
ListenFIFO={fifo}
SocketMode=0600
PipeSize=1M

[Install]
WantedBy=sockets.target
"""
_COMMAND = """\
[Unit]
Description=queuectl {name}, for the mail queue in {home}
After=network-online.target

[Service]
ExecStart={command}
Restart=always
RestartSec=1
RestartPreventExitStatus=100

[Install]
WantedBy={target}
"""


class UnitFacts(NamedTuple):
    """What the units need. `account` is the logger's, None in a user's own systemd. `version` is systemd's.

    `smtpd` says that they are for queue-smtpd, and not for queue-start. `options` are those of queue-start where a home
    has several queues.
    """

    name: str
    home: str
    start: str
    logger: Sequence[str]
    log: str
    account: str | None
    version: int
    smtpd: bool = False
    options: Sequence[str] = ()


def units(facts: UnitFacts) -> dict[str, bytes]:
    """Return {file name: contents} of the units."""
    name, system = facts.name, facts.account is not None
    fifo = f"{'/run' if system else '%t'}/{name}.log"
    reload = "Type=notify-reload" if facts.version >= NOTIFY_RELOAD else "Type=notify\nExecReload=kill -HUP $MAINPID"
    if "--intake" in facts.options:
        # It says nothing to systemd.
        reload = "Type=exec\nExecReload=kill -HUP $MAINPID"
    what = "the SMTP server of queue-suite" if facts.smtpd else "queue-suite"
    hardening = _SUITE_HARDENING
    if facts.smtpd:
        hardening = _SMTPD_HARDENING.format(greylist=_quoted(f"-{facts.home}/greylist"))
    texts = {
        f"{name}.service": (_SMTPD if facts.smtpd else _SUITE).format(
            home=_escaped(facts.home), name=name, type=reload,
            command=_command([facts.start, "--home", facts.home, *facts.options]),
            fifo=fifo, stop=SMTPD_STOP_SECONDS if facts.smtpd else STOP_SECONDS, reload="+" if system else "",
            hardening=hardening if system else "", target="multi-user.target" if system else "default.target",
        ),
        f"{name}-log.service": _LOGGER.format(
            what=what, log=_escaped(facts.log), name=name, command=_command(facts.logger),
            hardening=_LOGGER_HARDENING.format(account=facts.account, log=_quoted(facts.log)) if system else "",
        ),
        f"{name}-log.socket": _SOCKET.format(what=what, fifo=fifo),
    }  # fmt: skip
    return {file: text.encode("utf-8", "surrogateescape") for file, text in texts.items()}


def command_unit(name: str, home: str, part: str, command: Sequence[str], system: bool) -> tuple[str, bytes]:
    """Return the file name and contents of the unit of a command of queuectl; `system`: not a user's own."""
    text = _COMMAND.format(
        name=name, home=_escaped(home), command=_command(command),
        target="multi-user.target" if system else "default.target",
    )  # fmt: skip
    unit = unit_name(home).replace("queue-suite", f"queue-{name}", 1) + (f"-{part}" if part else "")
    return f"{unit}.service", text.encode("utf-8", "surrogateescape")


def unit_name(home: str, smtpd: bool = False) -> str:
    """Return the name of the units: `queue-suite` or `queue-smtpd`, with that of the home unless that is `queue`."""
    word = "".join(one if one.isascii() and (one.isalnum() or one in "-_.") else "_" for one in home.rpartition("/")[2])
    name = "queue-smtpd" if smtpd else "queue-suite"
    return name if word in ("", "queue") else f"{name}-{word}"


def _command(words: Sequence[str]) -> str:
    return " ".join([_quoted(word) for word in words])


def _quoted(word: str) -> str:
    """Return one word for a unit file: systemd.unit(5) expands %, and systemd.service(5) expands $ and takes quotes."""
    word = _escaped(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{word}"' if any(one in word for one in " \t'\"\\;") else word


def _escaped(text: str) -> str:
    return text.replace("%", "%%")
