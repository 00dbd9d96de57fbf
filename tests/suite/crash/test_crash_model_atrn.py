"""Mail that a host fetches with ATRN, under the crash model: the replies to each final dot, and the last one of all.

The whole suite runs under strace, and queue-smtpd beside it. A message may be missing from the store only if
queue-remote has reported the host's reply. It never comes back once the run of its domain has ended; after a kill, one
whose reply was reported comes once more at most.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.queue.layout import Layout
from queue_wire.files.cluster import link_name
from support.faults.crash.crash_checks import Message, broken, waiting_records
from support.faults.crash.crash_model import Crash, CrashModel
from support.faults.strace import strace_command
from support.local.good_mail import GoodMail
from support.plugins.saying import Say
from support.processes.suite import program, wait_until
from support.queues.queued import store_on_demand
from support.servers.smtp.sink import Sink
from support.smtpd.odmr_host import fetch, make_provider
from support.smtpd.smtpd_daemon import SmtpdDaemon

pytestmark = pytest.mark.one_way
SECONDS = 60.0
TEXT = b"Subject: hello\n\nhello\n"
# In the order in which they are sent: the host's first domain, and then the second one.
CUSTOMER = [b"%d@customer.example" % number for number in range(4)]
BRANCH = [b"a@branch.example"]
REPLY = re.compile(rb"\0m\0K127\.0\.0\.1")
ENDED = b"ondemand %s ended: delivered %d failed 0 deferred 0"


class RefusingSink(Sink):
    """Says nothing to the first final dot, as a host that is gone does."""

    def holds(self, session: object) -> bool:
        if len(self.taken) == 1:
            raise ConnectionAbortedError
        return False


def run_suite(model: CrashModel, mail: GoodMail, trace: Path) -> list[bytes]:
    """Have a host fetch its mail, in two conversations; return the recipients in the order of the messages that came.
    """
    model.restart()
    command = strace_command(trace, [*program("queue-start"), "--home", mail.home.path])
    with (
        SmtpdDaemon(mail.home, ["odmr"]) as smtpd,
        RefusingSink() as sink,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as strace,
    ):
        try:
            with pytest.raises(ConnectionAbortedError):
                wait_until(lambda: fetch(smtpd, sink) == 250, SECONDS, "the mail")
            wait_until(lambda: fetch(smtpd, sink) == 250, SECONDS, "the rest")
            wait_until(lambda: not os.listdir(f"{mail.home.queue}/ondemand"), SECONDS, "an empty store")
            children = Path(f"/proc/{strace.pid}/task/{strace.pid}/children").read_text().split()
            os.kill(int(children[0]), signal.SIGTERM)
            strace.communicate(timeout=SECONDS)
        except BaseException:
            strace.kill()
            raise
    model.load(trace)
    return [recipient for taken in sink.taken for recipient in taken.recipients]


def waiting(crash: Crash) -> list[bytes]:
    return [record.stored.recipient for _, _, record in waiting_records(crash)]


def replied(crash: Crash) -> int:
    """Return how many messages queue-remote has reported as taken."""
    return len(REPLY.findall(crash.said))


def kept(crash: Crash, found: dict[int, Message]) -> Iterator[str]:
    """What was not taken waits, with its message; what a run has ended with never comes back."""
    here = waiting(crash)
    for recipient in (CUSTOMER + BRANCH)[replied(crash) :]:
        if recipient not in here:
            yield f"{recipient.decode()} is lost after {replied(crash)} replies"
    for domain, number, record in waiting_records(crash):
        link = crash.files.get(f"ondemand/{domain}/mess/{link_name(number, record.stored.long_id)}")
        if link is None or link.content != TEXT:
            yield f"{record.stored.recipient.decode()} has no message"
    for name, recipients in ((b"customer.example", CUSTOMER), (b"branch.example", BRANCH)):
        if ENDED % (name, len(recipients)) in crash.said:
            yield from (f"{each.decode()} came back" for each in recipients if each in here)


def repeats_one(crash: Crash, found: dict[int, Message]) -> Iterator[str]:
    """After a kill one message whose reply is known comes once more, or none."""
    again = set(waiting(crash)) & set((CUSTOMER + BRANCH)[: replied(crash)])
    if len(again) > 1:
        yield f"{sorted(again)} come once more"


@pytest.mark.exhaustive
def test_no_power_cut_at_a_reply_to_a_message_loses_one_and_a_kill_repeats_one_at_most(
    mail: GoodMail, tmp_path: Path, say: Say
) -> None:
    make_provider(mail, tmp_path)
    for domain, recipients in ((b"customer.example", CUSTOMER), (b"branch.example", BRANCH)):
        store_on_demand(mail.home, domain, [[each] for each in recipients], data=TEXT)
    model, layout = CrashModel(Path(mail.home.queue)), Layout("", 23, False, False)

    assert run_suite(model, mail, tmp_path / "trace") == [CUSTOMER[0], *CUSTOMER, *BRANCH]
    looked, lines = broken(model, layout, kept)
    kills, more = broken(model, layout, kept, repeats_one, most=0)

    assert not lines + more, "\n".join(lines + more)
    assert looked > kills > 50
    last = list(model.crashes(0))[-1]
    assert replied(last) == len(CUSTOMER + BRANCH) and not waiting(last)
    say(f"{looked} disks after power cuts, {kills} after kills")
