"""docs/with-other-programs.md: its commands and files are run as they stand there, with Debian's packages."""

import shutil
from collections.abc import Iterator

import pytest

from pages.test_pages import NO_PACKAGES, QUICK, SINK
from support.pages.machine import Machine
from support.pages.page import Page, Walk
from support.tools import missing, need, need_file

# They share a machine; what one of them sets, the others do not need.
pytestmark = [pytest.mark.together, pytest.mark.long]
NAME = "docs/with-other-programs.md"
# The suite without a supervisor, and what the checks below use.
START = f"""PATH=/opt/queue-suite/programs:$PATH
    queuectl init /var/queue --me mail.example.org --local example.org
    cd /var/queue
    echo :127.0.0.1:2500 >control/smtproutes
    echo ./Maildir/ >alias/.qmail-postmaster
    install -d -o queuea -m 700 alias/Maildir/cur alias/Maildir/new alias/Maildir/tmp
    for user in ann bob; do su $user -c 'mkdir -p ~/Maildir/cur ~/Maildir/new ~/Maildir/tmp'; done
    chown queuea: alias/Maildir
    {SINK}
    mkdir -p /var/log/queue
    (exec queue-start --home /var/queue >/var/log/queue/current 2>&1) &
    (exec queue-smtpd --home /var/queue >>/var/log/queue/smtpd 2>&1) &
    until nc -z 127.0.0.1 25; do sleep 0.05; done
    log=/var/log/queue/current

    # A message. usage: send SENDER RECIPIENT SUBJECT
    send() {{
        printf 'From: <%s>\\nTo: %s\\nSubject: %s\\n\\nhello\\n' "${{1:-me@example.net}}" "$2" "$3" |
            queue-inject -f "$1" -- "$2"
    }}
    # Wait until a line of the log fits.
    await() {{ until grep -q -e "$1" $log; do sleep 0.05; done; }}
    # Wait for a message; show it. usage: mail DIRECTORY SUBJECT
    mail() {{
        until grep -lxr "Subject: $2" "$1/new" >/run/found 2>/run/error; do sleep 0.05; done
        cat $(cat /run/found)
    }}
    # The SMTP dialogue up to RCPT.
    rcpt() {{ swaks --server 127.0.0.1:25 --from me@example.net --to "$1" --quit-after RCPT; }}
    """


def checked(script: str) -> str:
    """Return the script so that each of its commands must succeed."""
    return f"(set -e\n{script}\n)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine on which the suite runs, with ann and bob."""
    for command in ("smtp-sink", "swaks", "nc"):
        need(command)
    with Machine(tmp_path_factory.mktemp("machine")) as machine:
        machine.must("useradd -u 1500 -m ann; useradd -u 1501 -m bob")
        machine.must("\n".join(QUICK.values()))
        machine.must(START)
        yield machine


# What Debian's package makes where the package ssl-cert is. The user must not need the key.
CERTIFICATE = """mkdir -p -m 700 /etc/dovecot/private
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=mail.example.org \\
        -keyout /etc/dovecot/private/dovecot.key -out /etc/dovecot/private/dovecot.pem 2>/run/openssl"""
DOVECOT = Page(
    NAME,
    "Dovecot",
    scripts={"mail_location": "/etc/dovecot/local.conf"},
    left={"apt-get ": NO_PACKAGES},
    replaced={
        "systemctl restart dovecot": "dovecot; until [ -S /run/dovecot/lmtp ]; do sleep 0.05; done",
        "~/.qmail": "~bob/.qmail",
    },
    before={
        "systemctl restart dovecot": CERTIFICATE,
        "echo '|preline": "queuectl config set --unset localroutes",
    },
    after={
        "queuectl config set localroutes": checked(r"""
            printf 'redirect :copy "you@far.example";\n' >~ann/.dovecot.sieve
            sed -i '1i require "copy";' ~ann/.dovecot.sieve
            chown ann: ~ann/.dovecot.sieve
            send me@example.net ann@example.org 'by LMTP'
            send '' ann@example.org 'a bounce'
            send me@example.net bob-news@example.org 'an extension'
            send me@example.net postmaster@example.org 'an alias'
            mail ~ann/Maildir 'by LMTP' >/run/ann
            grep -qx 'Return-Path: <me@example.net>' /run/ann
            grep -qx 'Delivered-To: ann@example.org' /run/ann
            mail ~bob/Maildir 'an extension'
            mail alias/Maildir 'an alias'
            # Sieve's redirect.
            await 'info msg .* from <ann@example.org> .* uid 1500$'
            await 'info msg .* from <> .* uid 1500$'
            await 'starting delivery .* to remote you@far.example$'
            rcpt no-such-user@example.org | grep '550 5.1.1'
            rcpt ann@example.org | grep '250 2.1.5'"""),
    },
)


def test_dovecot_gets_mail_by_lmtp_or_from_a_qmail_file_and_sieve_sends_mail_on(site: Machine) -> None:
    need_file("/usr/lib/dovecot/lmtp")
    need_file("/usr/lib/dovecot/modules/lib90_sieve_plugin.so")
    need("dovecot")
    Walk(DOVECOT, site).run()
    stored = site.must(checked("""send me@example.net bob@example.org 'by deliver'
        mail ~bob/Maildir 'by deliver'"""))
    assert stored.startswith("Return-Path: <me@example.net>\nDelivered-To: bob@example.org\n")
    stored = site.must(checked("""send '' bob@example.org 'from nobody'
        mail ~bob/Maildir 'from nobody'"""))
    assert stored.startswith("Return-Path: <>\nDelivered-To: bob@example.org\n")
    site.must(checked(r"""printf 'require "copy";\nredirect :copy "bob@example.org";\n' >~bob/.dovecot.sieve
        send me@example.net bob@example.org 'a loop'
        await 'failure: This_message_is_looping'
        # What a quota refuses is the queue's bounce.
        printf 'mail_plugins = quota\nplugin {\n  quota = maildir:User\n  quota_rule = *:bytes=10\n}\n' >/run/quota
        cat /etc/dovecot/local.conf >>/run/quota
        cp /run/quota /etc/dovecot/local.conf
        send ann@example.org bob@example.org 'too much'
        await 'failure: .*Quota_exceeded'
        queuectl config set --unset localroutes
        rm ~bob/.qmail ~bob/.dovecot.sieve
        doveadm stop"""))


MLMMJ = Page(
    NAME,
    "mlmmj",
    controls={"talk@example.org:": "localroutes"},
    left={"apt-get ": NO_PACKAGES},
    before={"printf 'example.org": "mkdir /var/spool/mlmmj"},
)


def test_mlmmj_serves_a_list_whose_bounces_come_back_to_it(site: Machine) -> None:
    need("mlmmj-make-ml")
    Walk(MLMMJ, site).run()
    site.must(checked("""printf '%s\\n' example.org:lmtp:/run/none talk@example.org: 'talk-*@example.org:' >routes
        mv routes control/localroutes
        queuectl route talk-subscribe@example.org | grep alias/.qmail-talk-default
        rm control/localroutes
        send bob@example.org talk-subscribe@example.org 'let me in'
        confirm() { grep -rho 'talk-confsub-[^@ ]*@example.org' ~bob/Maildir | head -n 1; }
        until [ "$(confirm)" ]; do sleep 0.05; done
        send bob@example.org $(confirm) 'yes'
        until /usr/bin/mlmmj-list -L /var/spool/mlmmj/talk | grep -qx bob@example.org; do sleep 0.05; done"""))
    post = site.must(checked("""send joe@example.net talk@example.org 'to all'
        mail ~bob/Maildir 'to all'"""))
    assert post.startswith("Return-Path: <talk-bounces-1-bob=example.org@example.org>\n")
    # A subscriber whose mail bounces.
    site.must(checked("""await 'info msg .* from <talk-bounces-1-joe=example.net@example.org>'
        printf '|bouncesaying gone\\n' >~bob/.qmail
        send joe@example.net talk@example.org 'to all again'
        until grep -q '' '/var/spool/mlmmj/talk/bounce/bob=example.org'; do sleep 0.05; done
        rm ~bob/.qmail"""))


PROCMAIL = Page(
    NAME,
    "procmail",
    scripts={"DEFAULT=": "~bob/.procmailrc"},
    left={"apt-get ": NO_PACKAGES},
    replaced={"~/.qmail": "~bob/.qmail"},
)


def test_procmail_stores_forwards_and_refuses(site: Machine) -> None:
    need("procmail")
    Walk(PROCMAIL, site).run()
    stored = site.must(checked("""chown bob: ~bob/.procmailrc
        send me@example.net bob@example.org 'by procmail'
        send me@example.net bob@example.org 'your invoice'
        send ann@example.org bob@example.org 'unwanted'
        send '' bob@example.org 'invoice bounced'
        mail ~bob/Maildir 'by procmail'"""))
    assert stored.startswith("Return-Path: <me@example.net>\nDelivered-To: bob@example.org\n")
    site.must(checked("""await 'info msg .* from <me@example.net> .* uid 1501$'
        await 'info msg .* from <> .* uid 1501$'
        await 'to remote joe@example.net$'
        until grep -rl 'Program ended with exit code 77' ~ann/Maildir; do sleep 0.05; done"""))
    # A forward that fails is stored.
    site.must(checked("""mv queue/intake/socket queue/intake/other
        chmod 0 queue/maildrop
        send me@example.net bob@example.org 'invoice 2'
        mail ~bob/Maildir 'invoice 2'
        chmod 3733 queue/maildrop
        mv queue/intake/other queue/intake/socket
        rm ~bob/.qmail ~bob/.procmailrc"""))


# What every spam filter refuses (spamassassin.apache.org/gtube).
GTUBE = "XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"
SPAMASSASSIN = Page(
    NAME,
    "SpamAssassin",
    scripts={":0 fw": "~bob/.procmailrc", "OPTIONS=": "/etc/default/spamass-milter"},
    left={"apt-get ": NO_PACKAGES},
    replaced={
        "~/.qmail": "~ann/.qmail",
        "systemctl restart spamass-milter": "/etc/init.d/spamass-milter start",
    },
    # Without DNS, which the machine does not have. spamd wants to know its clients' names.
    before={
        "echo '|condredirect": """echo ::1 localhost >>/etc/hosts
            spamd -d -L --max-children 2 -u nobody -r /run/spamd.pid
            su ann -c 'mkdir -p ~/spam/cur ~/spam/new ~/spam/tmp'""",
    },
)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_spamassassin_divides_a_user_s_mail_and_refuses_spam_at_smtp(site: Machine) -> None:
    for command in ("spamc", "spamd", "spamass-milter", "procmail"):
        need(command)
    Walk(SPAMASSASSIN, site).run()
    scan = "swaks --server 127.0.0.1:25 --local-interface 127.0.0.2 --from me@example.net --data @/run"
    site.must(checked(f"""sed -i '1i DEFAULT=$HOME/Maildir/' ~bob/.procmailrc
        chown bob: ~bob/.procmailrc
        echo '|preline procmail -p' >~bob/.qmail
        printf 'From: me@example.net\\nTo: ann@example.org\\nSubject: spam\\n\\n{GTUBE}\\n' >/run/spam
        queue-inject -f me@example.net ann@example.org bob@example.org </run/spam
        send me@example.net ann@example.org 'no spam'
        send me@example.net bob@example.org 'no spam at all'
        mail ~ann/spam spam
        mail ~ann/Maildir 'no spam'
        mail ~bob/Maildir 'no spam at all' | grep '^X-Spam-Status: No'
        mail ~bob/spam spam | grep '^X-Spam-Flag: YES'
        {scan}/spam --to ann@example.org | grep '550 5.7.1 Blocked by SpamAssassin'
        sed 's/XJS.*/hello/;s/: spam/: scanned/' /run/spam >/run/ham
        {scan}/ham --to bob@example.org
        mail ~bob/Maildir scanned | grep '^X-Spam-Status: No'
        rm ~ann/.qmail* ~bob/.qmail ~bob/.procmailrc
        queuectl config set --unset milters
        kill $(cat /run/spamd.pid)"""))


MAILMAN = Page(
    NAME,
    "Mailman 3",
    controls={"talk@example.org:": "localroutes"},
    left={"apt-get ": NO_PACKAGES},
    replaced={
        "systemctl restart mailman3": "su -s /bin/sh list -c 'mailman -C /etc/mailman3/mailman.cfg start --force'",
    },
    before={
        "systemctl restart mailman3": "install -d -o list /var/lib/mailman3 /var/log/mailman3 /run/mailman3",
    },
)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_mailman_takes_mail_of_a_list_by_lmtp_and_sends_it_by_smtp(site: Machine) -> None:
    # Its package brings 60 others, so CI does not install it.
    if not shutil.which("mailman-wrapper"):
        missing("mailman-wrapper: apt-get install mailman3")
    Walk(MAILMAN, site).run()
    # Its processes take their time to start; each step here has some.
    site.must(checked("""echo bob@example.org >/run/members
        mailman-wrapper addmembers /run/members talk.lists.example.org"""))
    site.must(checked("""until nc -z 127.0.0.1 8024; do sleep 0.1; done
        rcpt talk-bounces+bob=example.org@lists.example.org | grep '250 2.1.5'
        rcpt no-such-list@lists.example.org | grep '550 5.1.1'
        mail ~bob/Maildir '.*Welcome.*'"""))
    post = site.must(checked("""send bob@example.org talk@lists.example.org 'to Mailman'
        mail ~bob/Maildir '.*to Mailman'"""))
    assert post.startswith("Return-Path: <talk-bounces@lists.example.org>\n")
    site.must(checked("""su -s /bin/sh list -c 'mailman -C /etc/mailman3/mailman.cfg stop'
        queuectl config set --unset localroutes"""))
