"""The commands of README.md and of pages of docs/ are run as they stand there, by root, on a machine of their own."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.pages.machine import Machine
from support.pages.page import Page, Walk, table_commands
from support.tools import need

pytestmark = pytest.mark.long
NO_PACKAGES = "the machine has no network; what it would install is there"
IN_SYSTEMD = "there is no systemd; test_systemd_parts.py has one"
# The relay, in whose place the pages have an example.
RELAY = "127.0.0.1:2500"
# pip and the network are left out: the libraries are those that run the tests.
QUICK = {
    "bin/setup-suite /opt/queue-suite": r"""
        python3 -m venv --without-pip /opt/queue-suite.1
        packages=$(echo /opt/queue-suite.1/lib/python3*/site-packages)
        cp -rp queue_* $packages
        printf '%s\n' /libraries/* >$packages/libraries.pth
        bin/setup-programs /opt/queue-suite.1/bin
        ln -s queue-suite.1 /opt/queue-suite
        """,
}
START_RUNIT = "mkdir -p /etc/runit/runsvdir/current; (runsvdir -P /etc/service >/run/runsvdir 2>&1 &)"
UP = "until grep -q ' status: local 0/10' /var/log/queue/current; do sleep 0.1; done"
SINK = f"(smtp-sink -u nobody {RELAY} 1000 >/run/sink 2>&1 & echo $! >/run/sink.pid)"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Machine(tmp_path) as running:
        running.must("useradd -u 1500 -m ann; useradd -u 1001 web; useradd -u 1002 joe")
        yield running


# Messages of a user: `send USER NUMBER`.
SEND = """send() {
    for number in $(seq "$2"); do
        printf 'From %s\\nTo: you@example.net\\nSubject: %d\\n\\nbuy\\n\\n' "$1" "$number"
    done | su "$1" -c '/opt/queue-suite/programs/queue-inject --batch mbox' >/run/batch
}
"""
FIRST_HOUR = Page(
    "docs/first-hour.md",
    left={
        "apt-get ": NO_PACKAGES,
        "PATH=/opt/queue-suite/programs:$PATH": "the package was not installed",
        "systemctl daemon-reload": IN_SYSTEMD,
        "systemctl enable": IN_SYSTEMD,
        "systemctl status": IN_SYSTEMD,
        "systemctl start": IN_SYSTEMD,
    },
    replaced={
        **QUICK,
        "relay.example.net:25": RELAY,
        "systemctl stop queue-suite": "sv -w 60 down queue-suite >/run/down",
    },
    before={
        "queuectl config check": SINK,
        "ln -s /etc/queue-suite": START_RUNIT,
        # The relay is slow, and 30 messages wait that queue-pickup has not taken yet.
        "queuectl top": f"""{SEND}
            kill $(cat /run/sink.pid)
            (smtp-sink -u nobody -w 2 {RELAY} 1000 >/run/sink 2>&1 & echo $! >/run/sink.pid)
            send web 120
            send joe 10""",
        "queuectl maildrop remove": f"""{SEND}
            pickup=$(queuectl stat | sed -n 's/^queue-pickup: pid \\([0-9]*\\),.*/\\1/p')
            kill -STOP $pickup
            mv queue/intake/socket queue/intake/other
            send web 30
            mv queue/intake/other queue/intake/socket""",
        "queuectl delete --uid": "kill -CONT $pickup",
        "queuectl copy": f"""{SEND}
            until [ "$(queuectl stat | head -n 1)" = "messages in queue: 0" ]; do sleep 0.1; done
            kill $(cat /run/sink.pid)
            send joe 30""",
        # The disk is lost.
        "cp -a /backup": "cd / && rm -r /var/queue",
        # The start that is to fail.
        "queuectl repair --dry-run": """queue-start --home /var/queue >/run/start 2>&1 && exit
            grep 'it was copied or restored' /run/start""",
        "queuectl flush": f"""{SINK}
            sv up queue-suite
            until queuectl stat; do sleep 0.1; done""",
    },
    after={
        "ln -s /etc/queue-suite": UP,
        "cat /var/log": "[ $(ls ~ann/Maildir/new | wc -l) = 1 ]",
        "queuectl flush": "until [ \"$(queuectl stat | head -n 1)\" = 'messages in queue: 0' ]; do sleep 0.1; done",
    },
    codes={"queuectl list --uid": 1},
    awaited=("sv status", "cat /var/log/queue/current", "queuectl stat", "queuectl list --uid"),
)


# queue-smtpd listens, with a certificate, and this host is a stranger to it.
SMTPD = """cd /var/queue
    printf '*:25 mx\\n*:209 qmtp\\n*:587 submission\\n' >control/smtpd
    openssl req -x509 -newkey rsa:2048 -nodes -days 9 -subj /CN=mx.example.org \\
        -addext subjectAltName=DNS:mx.example.org -keyout control/key.pem -out control/cert.pem 2>/run/openssl
    cat control/key.pem >>control/cert.pem
    mv control/cert.pem control/mx.pem
    rm control/key.pem
    chmod 600 control/mx.pem
    echo :mx.pem >control/smtpdcert
    touch control/relayclients
    echo 192.0.2.1 >control/proxyclients
    echo 127.0.0.1 mx.example.org mx.example.org. >>/etc/hosts"""
SMTP_SERVER = Page(
    "docs/smtp-server.md",
    texts={
        "550 5.7.1 Your address": "a reply, not a command; tests/smtpd/test_dnslists.py looks at it",
        '{"process"': "JSON, shortened; tests/smtpd/test_smtpd_status.py looks at it",
        '{"session"': "JSON; tests/smtpd/test_smtpd_status.py looks at it",
        "[queue-smtpd]": "a jail of fail2ban; tests/peers/test_fail2ban.py runs it",
        "smtp start": "lines of the log; tests/spark/match/test_smtp_log.py looks at them",
    },
    controls={
        "*:25 mx": "smtpd",
        ":/etc/letsencrypt": "smtpdcert",
        "/usr/local/bin/checkpassword": "checkpassword",
        "joe@example.org:": "submitters",
        "127.0.0.0/8": "relayclients",
        "connections 60": "smtpdlimits",
        "zen.spamhaus.org": "dnslists",
        "delay 5m": "greylist",
        "inet:127.0.0.1:8891": "milters",
    },
    scripts={"#!/bin/sh": "/run/tcpserver"},
    left={
        "systemctl": IN_SYSTEMD,
        "queuectl init /var/queue --smtpd-service /etc/systemd/system": IN_SYSTEMD,
        "fail2ban-regex": "fail2ban is not installed everywhere; tests/peers/test_fail2ban.py runs it",
    },
    replaced={
        "| less": "",
        "queuectl passwd joe@example.org": "echo secret | queuectl passwd joe@example.org",
        "--user joe@example.org": "--cacert control/mx.pem --user joe@example.org:secret",
        "--auth-user joe@example.org": "--auth-user joe@example.org --auth-password secret",
        "0 25 /opt": "127.0.0.1 2525 /opt",
        "/etc/letsencrypt/live/mx.example.org/fullchain.pem /etc/letsencrypt/live/mx.example.org/privkey.pem": "mx.pem",
        "mail.example.com.pem": "mx.pem",
        "/usr/local/bin/checkpassword": "/bin/true",
    },
    before={
        "ln -s /etc/queue-smtpd": SMTPD,
        "printf '127.": "mkdir /etc/smtp",
        "curl": "printf 'Subject: hi\\n\\nhello\\n' >mail",
        "queuectl postman list": "echo hello >queue/postman/2663293_no-date",
    },
    after={
        "ln -s /etc/queue-smtpd": "until nc -z 127.0.0.1 587; do sleep 0.1; done",
        "printf '127.": """(/run/tcpserver >/run/log &)
            until nc -z 127.0.0.1 2525; do sleep 0.1; done
            swaks --server 127.0.0.1:2525 --from me@example.net --to joe@example.com""",
        # The file of users is read within two seconds.
        "queuectl passwd": """until swaks --server mx.example.org:587 --tls --quit-after EHLO | grep AUTH
            do sleep 0.1; done""",
        "queuectl postman remove": "[ -z \"$(ls queue/postman)\" ]",
    },
    codes={"swaks --server mx.example.org:25 --from me@example.net --to joe@example.com": 24},
)


MAKE_MAILDIR = "/opt/queue-suite/programs/maildirmake ~/Maildir"
README = Page(
    "README.md",
    texts={"queue-inject": "a picture"},
    left={
        "bin/demo": "tests/suite/test_demo.py runs it",
        "bin/demo-report": "tests/spark/demo/ runs what it does",
        "tests/run": "this is one of its tests",
    },
    replaced={
        **QUICK,
        "relay.example.net:25": RELAY,
        MAKE_MAILDIR: f"su - ann -c '{MAKE_MAILDIR}'",
        "queue-start --home /var/queue": """
            (exec env --default-signal=INT queue-start --home /var/queue >/run/log 2>&1) &
            until grep -q 'status: local 0/10' /run/log; do sleep 0.1; done
            kill -INT $!
            wait $!""",
        "tail -F": "tail -n 20",
        "queuectl show ID": "queuectl show $(queuectl list | head -n 1 | cut -d ' ' -f 1)",
    },
    before={
        "ln -s /etc/queue-suite": f"{SINK}; {START_RUNIT}",
        # Something that is not delivered.
        "queuectl list": """
            until [ "$(queuectl stat | head -n 1)" = "messages in queue: 0" ]; do sleep 0.1; done
            kill $(cat /run/sink.pid)
            echo hello | queue-inject you@example.net""",
    },
    after={"ln -s /etc/queue-suite": UP},
    awaited=("queuectl list",),
)


def test_the_commands_of_the_readme_make_a_queue_that_delivers_its_first_mails(machine: Machine) -> None:
    for command in ("smtp-sink", "runsvdir", "multilog", "tai64nlocal"):
        need(command)
    Walk(README, machine).run()
    machine.must("""echo hello | queue-inject postmaster@example.org postmaster@mail.example.org
        echo hello | queue-inject -f ann@mail.example.org no-such-user@example.org
        until [ $(ls alias/Maildir/new | wc -l) = 2 ]; do sleep 0.1; done
        until grep -q no-such-user@example.org ~ann/Maildir/new/*; do sleep 0.1; done
        [ $(ls ~ann/Maildir/new | wc -l) = 2 ]""")


FROM_QMAIL = Page(
    "docs/from-qmail.md",
    scripts={"exec /opt/queue-suite/programs/queue-enqueue": "/var/qmail/bin/qmail-queue"},
    # A home with mail, and qmail's accounts.
    before={
        "queuectl adopt /var/qmail": """
            groupadd -g 60020 qmail
            number=60010
            for account in qmailq qmails qmailr alias; do
                useradd -u $number -g qmail $account
                number=$((number + 1))
            done
            PYTHONPATH=$(echo /src/tests:/src $(echo /libraries/*) | tr ' ' :) python3 -c '
from pathlib import Path
from support.inject.qmail_queue import QmailQueue
QmailQueue(Path("/var/qmail")).fill()'"""
    },
    after={"queuectl adopt --undo": "queuectl adopt /var/qmail && mkdir /var/qmail/bin"},
)


def test_the_commands_of_from_qmail_take_a_home_over_give_it_back_and_put_a_script_in_place_of_qmail_queue(
    machine: Machine,
) -> None:
    install(machine)
    Walk(FROM_QMAIL, machine).run()
    machine.must("""queuectl --home /var/qmail list | wc -l >/tmp/before
        printf 'Fme@example.org\\0Tyou@example.net\\0\\0' >/tmp/envelope
        echo hello | sh /var/qmail/bin/qmail-queue 1</tmp/envelope
        [ $(queuectl --home /var/qmail list | wc -l) = $(($(cat /tmp/before) + 1)) ]""")


INSTALL = Page(
    "docs/install.md",
    texts={"queue-suite 0.1.0, compiled": "what queuectl version prints; tests/tools/test_compiled.py has it"},
    left={
        "apt-get ": NO_PACKAGES,
        "packaging/deb": "tests/tools/test_deb.py makes and installs the package",
        "QUEUE_SUITE_COMPILE=1": "it takes minutes, and a compiler; tests/run --compiled",
        "queuectl init /var/queue --service /etc/systemd/system": IN_SYSTEMD,
        "systemctl": IN_SYSTEMD,
        "MANPATH=": "not every machine has man; tests/tools/test_manual.py reads the pages",
        "svc -dx": "it is for daemontools alone",
        "for file in /usr/sbin/sendmail": "/usr is read-only",
        "[ -e /usr/lib/sendmail ]": "/usr is read-only",
        "bin/setup-suite /opt/queue-suite spark report": NO_PACKAGES,
    },
    replaced=QUICK,
    before={
        "ln -s /etc/queue-suite": START_RUNIT,
        "queuectl init /var/queue --service /run/service": "mkdir /run/service",  # s6-svscan's.
        # What is removed at the end: the services of both, as smtp-server.md makes them.
        "rm /etc/service": """queuectl init /var/queue --smtpd-service /etc/queue-smtpd --kind runit
            ln -s /etc/queue-smtpd /etc/service/queue-smtpd
            until [ -e /var/log/queue-smtpd/current ]; do sleep 0.1; done""",
    },
    after={
        "ln -s /etc/queue-suite": UP,
        # runsvdir looks every five seconds.
        "rm /etc/service": "until ! grep -qzx runsv /proc/[0-9]*/cmdline 2>/dev/null; do sleep 0.1; done",
    },
)


def test_the_commands_of_install_up_to_the_removal(machine: Machine) -> None:
    for command in ("runsvdir", "svlogd", "s6-log"):
        need(command)
    Walk(INSTALL, machine).run()


# The suite's commands in tables: what their placeholders stand for, and those that are not run.
PLACEHOLDERS = {
    "ID": "$ID",
    "DOMAIN": "example.net",
    "ADDRESS": "ann@example.org",
    "NAME VALUE": "queuelifetime 86400",
    "NAME": "queuelifetime",
    "--service DIR --log DIR": "--service /srv/service --log /srv/log",
}
_NO_WHOLE = "names a command; others of the tables, or of other pages, are with what it takes"
LEFT = {
    **dict.fromkeys(
        (
            "queuectl --home", "queuectl bounce", "queuectl config set", "queuectl delete", "queuectl flush --domain",
            "queuectl hold", "queuectl import-aliases", "queuectl init", "queuectl init --split", "queuectl show",
            "sendmail", "queuectl init --me NAME",
        ),
        _NO_WHOLE,
    ),
    "queuectl web": "it serves until it is ended; tests/admin/web/ has its tests",
    "queuectl repair": "the suite must not run; docs/first-hour.md has it",
}  # fmt: skip


def test_the_commands_that_come_in_the_place_of_postfix_s_and_qmail_s(machine: Machine) -> None:
    for command in ("runsvdir", "svlogd"):
        need(command)
    install(machine)
    machine.must("""kill $(cat /run/sink.pid)
        printf '=kim:kim:1500:1500:/home/ann:::\\n.\\n' >/var/queue/users/assign
        echo 'lee: ann' >/etc/aliases
        ln -s sendmail /opt/queue-suite/programs/mailq""")
    found = {text for name in ("docs/from-qmail.md", "docs/from-postfix.md") for text in table_commands(name)}
    assert len(found) > 40 and set(LEFT) < found
    failed = []
    for text in sorted(found - set(LEFT)):
        whole = re.sub("|".join(PLACEHOLDERS), lambda match: PLACEHOLDERS[match[0]], text)
        # One more, since the one before may be deleted, or bounce.
        if re.search("ID|DOMAIN| -$", text):
            machine.must("""echo hello | queue-inject you@example.net
                ID=
                until [ "$ID" ]; do ID=$(queuectl list --recipient you@example.net | sed 's/ .*//;q'); done""")
        ran = machine.run(f"echo $ID | ({whole})")
        failed += [f"{whole}: {ran.code}: {ran.text}"] if ran.code else []
    assert not failed, "\n".join(failed)


def install(machine: Machine) -> None:
    """Install the suite, make a home, and run it under runit."""
    machine.must("\n".join(QUICK.values()))
    machine.must(f"""PATH=/opt/queue-suite/programs:$PATH
        queuectl init /var/queue --me mail.example.org --local example.org
        echo :{RELAY} >/var/queue/control/smtproutes
        su - ann -c '/opt/queue-suite/programs/maildirmake ~/Maildir'
        queuectl init /var/queue --service /etc/queue-suite --kind runit
        {SINK}
        {START_RUNIT}
        ln -s /etc/queue-suite /etc/service/queue-suite
        {UP}""")


def test_the_commands_of_the_smtp_server(machine: Machine) -> None:
    for command in ("smtp-sink", "runsvdir", "svlogd", "swaks", "curl", "openssl", "tcpserver", "nc"):
        need(command)
    install(machine)
    Walk(SMTP_SERVER, machine).run()
    machine.must("until [ $(ls ~ann/Maildir/new | wc -l) = 3 ]; do sleep 0.1; done")


def test_the_commands_of_the_first_hour(machine: Machine) -> None:
    for command in ("smtp-sink", "runsvdir", "multilog", "svlogd"):
        need(command)
    Walk(FIRST_HOUR, machine).run()


def test_the_image_runs_with_a_read_only_root_as_process_one_and_starts_again_on_its_volume(machine: Machine) -> None:
    """docs/container.md: its Dockerfile, without what only docker can do."""
    for command in ("unshare", "nsenter"):
        need(command)
    dockerfile, *others = Page("docs/container.md").read()
    steps = [line.partition(" ")[::2] for line in dockerfile if line]
    # What else the page has is for docker.
    assert [lines[0].split()[0] for lines in others] == ["docker", "docker"]
    start = ""
    for word, rest in steps:
        if word == "RUN" and not rest.startswith("apt-get "):
            machine.must(next((new for old, new in QUICK.items() if rest.startswith(old)), rest))
        elif word == "ENV":
            machine.must(f"export {rest}")
        elif word == "CMD":
            start = rest
    assert ("VOLUME", "/var/queue") in steps and ("STOPSIGNAL", "SIGTERM") in steps
    health = dict(steps)["HEALTHCHECK"].removeprefix("CMD ")
    machine.must(f"""mkdir /var/queue
        mount -t tmpfs none /var/queue
        mount -t tmpfs none /tmp
        cat >/tmp/start <<'END'
mount -o remount,bind,ro / && ! touch /written 2>/dev/null || exit 1
export MAIL_NAME=mail.example.org MAIL_DOMAIN=example.org
{start}
END""")
    for log in ("/tmp/first", "/tmp/second"):
        machine.must(f"""(unshare --mount --propagation private --pid --fork --kill-child --mount-proc sh /tmp/start \
                >{log} 2>&1
            echo $? >/tmp/code) &
            until grep -q 'status: local 0/' {log} || [ -e /tmp/code ]; do sleep 0.1; done""")
        shown = machine.must(f"cat {log}; [ ! -e /tmp/code ]")
        assert ("made " in shown) == (log == "/tmp/first") and "warning" not in shown
        machine.must(f"""init=$(queuectl stat | sed -n 's/^queue-send: pid \\([0-9]*\\),.*/\\1/p')
            nsenter -t $init -m -p sh -c {health!r}
            kill $init
            until [ -s /tmp/code ]; do sleep 0.1; done
            [ "$(cat /tmp/code)" = 0 ]
            rm /tmp/code""")
