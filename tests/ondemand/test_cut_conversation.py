"""A conversation after ATRN is cut at each byte, pure: no message is lost, and at most one comes twice.

Both sides are the real ones without their I/O: a run of the domain, the transaction and the SMTP client; the SMTP
server as the host that has asked. Bytes go over one by one. After each of them a copy of the client learns that the
connection has ended, and what would be recorded then is compared with what the host has taken.
"""

import copy
from collections.abc import Iterator

import pytest

from queue_ondemand.domain_run import DomainRun
from queue_remote.smtp.transaction import Transaction
from queue_smtp.client import ClientState, Event, Session, SmtpClient
from queue_smtp.dotstuff import stuff
from queue_smtp.server_session import ServerState
from queue_wire.files.cluster import (
    DONE,
    ClusterRecord,
    StoredRecipient,
    pack_cluster_header,
    pack_stored,
    unpack_cluster,
)
from queue_wire.pipes.report import SUCCESS
from support.plugins.amount import amount
from support.plugins.saying import Say
from support.servers.session import SETTINGS, ScriptedSession

pytestmark = pytest.mark.pure("copies objects of compiled classes")
MESSAGES = amount(4, 500)
DOMAIN = b"example.org"
SEED = 7


def pack_store(messages: int) -> bytearray:
    """Return a cluster with so many messages, each for one recipient."""
    stored = [StoredRecipient(number + 1, 1, 9, b"a@example.net", b"joe@" + DOMAIN) for number in range(messages)]
    return bytearray(pack_cluster_header(SEED) + b"".join([pack_stored(each, SEED) for each in stored]))


class Provider:
    """The side that delivers. `store` is the cluster, of which `recorded` records are marked as done by this run."""

    def __init__(self, store: bytearray, pipelining: bool) -> None:
        self.store = store
        self.recorded = 0
        self.client = SmtpClient(Session(b"192.0.2.1", b"mx.example.net", pipelining=pipelining))
        self.transaction: Transaction | None = None
        self._run = DomainRun(DOMAIN, b"atrn", [1], lambda birth: False)
        self._run.next_cluster()
        self._run.load(unpack_cluster(bytes(store)).pending)
        self._group: list[ClusterRecord] = []

    def feed(self, data: bytes) -> bytes:
        """Take what the host says; return what is said to it."""
        self._take(self.client.feed(data))
        return self._speak()

    def _speak(self) -> bytes:
        said = self.client.data_to_send()
        if self.client.state is ClientState.READY:
            self._end_group()
            said += self._begin_group()
        elif self.client.state is ClientState.MESSAGE:
            said += stuff(b"%d\n" % self._group[0].stored.message)
            self.client.message_sent()
        return said

    def _take(self, events: list[Event]) -> None:
        for event in events:
            assert self.transaction is not None, event
            self.transaction.take(event, self.client)

    def _end_group(self) -> None:
        if self.transaction is not None:
            assert self.transaction.verdicts()[0][0] == SUCCESS
            self.store[self._group[0].offset : self._group[0].offset + 1] = DONE
            self.recorded += 1
            self.transaction = None

    def _begin_group(self) -> bytes:
        """Return the next envelope, or QUIT, which queue-smtpd says behind the last one."""
        self._group = self._run.next_group()
        if not self._group:
            self.client.quit()
            return self.client.data_to_send()
        self.transaction = Transaction(b"a@example.net", [b"joe@" + DOMAIN], 0)
        self._take(self.client.begin(self.transaction.start(self.client.session.peer)))
        return self.client.data_to_send()

    def succeeds_if_cut(self) -> bool:
        """Return whether the message under way would be recorded as delivered if the connection ended here."""
        if self.transaction is None:
            return False
        client, transaction = copy.deepcopy((self.client, self.transaction))
        for event in client.lost():
            transaction.take(event, client)
        return transaction.done and transaction.verdicts()[0][0] == SUCCESS


def converse(provider: Provider, host: ScriptedSession, eager: bool) -> Iterator[None]:
    """Carry a conversation byte by byte. `eager`: what the host says arrives before the next byte goes to it."""
    to_host, to_provider = b"", host.said
    host.said = b""
    yield
    while to_host or to_provider:
        if to_provider and (eager or not to_host):
            to_host += provider.feed(to_provider[:1])
            to_provider = to_provider[1:]
        else:
            to_provider += host.feed(to_host[:1])
            to_host = to_host[1:]
        yield


@pytest.mark.parametrize("eager", [True, False], ids=["prompt", "late"])
@pytest.mark.parametrize("pipelining", [True, False], ids=["pipelining", "one by one"])
def test_a_cut_at_any_byte_loses_no_message_and_repeats_one_at_most(pipelining: bool, eager: bool, say: Say) -> None:
    store = pack_store(MESSAGES)
    provider, host = Provider(store, pipelining), ScriptedSession(SETTINGS._replace(tls=False, mechanisms=()))
    offsets = [record.offset for record in unpack_cluster(bytes(store)).pending]
    cuts = repeats = 0
    known = -1
    for _ in converse(provider, host, eager):
        recorded = provider.recorded + provider.succeeds_if_cut()
        assert recorded <= len(host.messages) <= recorded + 1
        cuts, repeats = cuts + 1, repeats + len(host.messages) - recorded
        if known != provider.recorded:
            # The next run takes the rest, in order.
            known = provider.recorded
            assert [record.offset for record in unpack_cluster(bytes(store)).pending] == offsets[known:]
    assert [taken.content for taken in host.messages] == [b"%d\n" % (number + 1) for number in range(MESSAGES)]
    assert known == MESSAGES and host.server.state is ServerState.CLOSED
    # From the final dot on, up to the end of the reply to it, a cut repeats the message.
    assert 0 < repeats < cuts / 2
    say(f"{MESSAGES} messages, {cuts} cuts: after {repeats} of them one message comes twice")
