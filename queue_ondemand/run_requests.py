"""The socket on which queue-smtpd and queuectl ask for the mail of a domain, and the limits on ETRN.

Root and the owner of the queue may ask for everything, queue-smtpd's account for ETRN and ATRN; a connection of another
user is closed. ETRN for one domain has an effect once in etrninterval seconds, and a client has REQUESTS_MAX requests
in that time. A connection that breaks the format, or says nothing for IDLE seconds, is closed; one that has asked with
ATRN waits for its second answer as long as it takes.
"""

import os
import select
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

from queue_base.accounts import queue_owner, trusted_users
from queue_base.daemon.pipes import OutPipe, PeerLost
from queue_base.daemon.unix_sockets import accept_with_uid, is_stream, listen_at, receive_with_descriptors
from queue_base.home import Home
from queue_wire.admin.ondemand_socket import (
    ATRN,
    COMMANDS,
    ETRN,
    REQUEST_MAX,
    SOCKET,
    STARTED,
    WANTED,
    RunAnswer,
    RunRequest,
    pack_run_answer,
    unpack_run_request,
)
from queue_wire.control.networks import counted_networks
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader

CONNECTIONS_MAX = 128
IDLE = 300.0
READ_MAX = 16384
REQUESTS_MAX = 20
REMEMBERED_MAX = 10_000


class EtrnLimits:
    """When ETRN was last heeded for each domain, and how often each client asked. The longest ago are forgotten."""

    def __init__(self) -> None:
        self._domains: OrderedDict[bytes, float] = OrderedDict()
        self._clients: OrderedDict[bytes, tuple[float, int]] = OrderedDict()

    def allows_client(self, client: bytes, interval: float, now: float) -> bool:
        """Count a request; return whether the client, or another one in its network of IPv6, has not made too many."""
        client = counted_networks(client.decode("ascii", "replace"))[0].encode("ascii", "replace")
        begun, count = self._clients.pop(client, (now, 0))
        if now - begun >= interval:
            begun, count = now, 0
        self._clients[client] = begun, count + 1
        if len(self._clients) > REMEMBERED_MAX:
            self._clients.popitem(last=False)
        return count < REQUESTS_MAX

    def allows_domain(self, domain: bytes, interval: float, now: float) -> bool:
        """Return whether a run may start now; if so, the next one may start after the interval."""
        last = self._domains.get(domain)
        if last is not None and now - last < interval:
            return False
        self._domains.pop(domain, None)
        self._domains[domain] = now
        if len(self._domains) > REMEMBERED_MAX:
            self._domains.popitem(last=False)
        return True


class _RunConnection:
    """A connection. `commands`: what its user may ask. `descriptor`: that of the connection for ATRN, if it has come.

    `turned`: ATRN has started, and its end was not reported. `waiting`: its last request was not answered yet, and no
    other one is read.
    """

    def __init__(self, connection: socket.socket, commands: Sequence[bytes]) -> None:
        self.connection = connection
        self.commands = commands
        self.reader = NetstringReader(REQUEST_MAX)
        self.out = OutPipe(connection.fileno())
        self.until = time.monotonic() + IDLE
        self.descriptor: int | None = None
        self.turned = False
        self.waiting = False

    def read(self) -> bytes:
        """Return what has come. Raises PeerLost at the end."""
        try:
            data, descriptors = receive_with_descriptors(self.connection, READ_MAX)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise PeerLost(str(error)) from error
        for descriptor in descriptors:
            if self.descriptor is None:
                self.descriptor = descriptor
            else:
                os.close(descriptor)
        if not data:
            raise PeerLost("end of file")
        return data

    def take_descriptor(self) -> int:
        """Return the descriptor that has come. Raises FormatError."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is None:
            raise FormatError("on-demand request: atrn without a connection")
        if not is_stream(descriptor):
            os.close(descriptor)
            raise FormatError("on-demand request: atrn with something that is no connection")
        return descriptor

    def close(self) -> None:
        """Close it, and the descriptor that nobody has taken."""
        self.connection.close()
        if self.descriptor is not None:
            os.close(self.descriptor)


# What answers all other requests, at once, or later by calling the function.
Answer = Callable[[RunRequest, Callable[[RunAnswer], None]], RunAnswer | None]
# What starts the delivery over a connection, whose descriptor it closes in any case. The function is called with the
# second answer if the first one is `started`, and with WANTED before.
Turn = Callable[[RunRequest, int, Callable[[RunAnswer], None]], RunAnswer]


class RunRequests:
    """A part of the loop that listens from the start on. Raises OSError or Temporary if it cannot."""

    def __init__(self, home: Home, answer: Answer, turn: Turn) -> None:
        """`answer` is called with each request, `turn` with ATRN."""
        self._answer = answer
        self._turn = turn
        self._askers: dict[int, _RunConnection] = {}
        owner = queue_owner(home)
        self._trusted = trusted_users(owner) | {os.geteuid()}
        self._masters = frozenset((0, owner.uid, os.geteuid()))
        self._listener = listen_at(f"{home.queue}/{SOCKET}", 64)

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Register the sockets; return the seconds to wait at most. `now` is monotonic."""
        if len(self._askers) < CONNECTIONS_MAX:
            poll.register(self._listener, select.POLLIN)
        wait = 3600.0
        for descriptor, asker in self._askers.items():
            wanted = 0 if asker.waiting else select.POLLIN
            poll.register(descriptor, select.POLLOUT if asker.out.unwritten else wanted)
            wait = min(wait, asker.until - now)
        return max(0.0, wait)

    def run(self, ready: dict[int, int], now: float) -> None:
        """Accept connections, and answer requests."""
        if self._listener.fileno() in ready:
            self._accept()
        for descriptor, asker in list(self._askers.items()):
            try:
                if descriptor in ready:
                    self._serve(asker, now)
            except (PeerLost, FormatError):
                self._close(descriptor)
                continue
            if now >= asker.until:
                self._close(descriptor)

    def close(self) -> None:
        """Close all."""
        self._listener.close()
        for descriptor in list(self._askers):
            self._close(descriptor)

    def _accept(self) -> None:
        try:
            connection, uid = accept_with_uid(self._listener)
        except OSError:
            return
        if uid in self._trusted:
            commands = COMMANDS if uid in self._masters else (ETRN, ATRN)
            self._askers[connection.fileno()] = _RunConnection(connection, commands)
        else:
            connection.close()

    def _serve(self, asker: _RunConnection, now: float) -> None:
        """Answer what a connection asks. While it does not read its answers, nothing more is read of it."""
        if not asker.out.unwritten and not asker.waiting:
            asker.reader.feed(asker.read())
            if not asker.turned:
                asker.until = now + IDLE
            self._answer_read(asker)
        asker.out.flush()

    def _answer_read(self, asker: _RunConnection) -> None:
        """Answer the requests that have come, up to one that is answered later. Raises FormatError."""
        while not asker.waiting and (payload := asker.reader.next()) is not None:
            request = unpack_run_request(payload)
            if request.command not in asker.commands or asker.turned:
                raise FormatError("on-demand request: not for this user, or not now")
            answer = self._answer_one(asker, request)
            if answer is None:
                asker.waiting = True
            else:
                asker.out.put(pack_run_answer(answer))

    def _answer_one(self, asker: _RunConnection, request: RunRequest) -> RunAnswer | None:
        if request.command != ATRN:
            return self._answer(request, partial(self._answer_later, asker))
        answer = self._turn(request, asker.take_descriptor(), partial(self._end_turn, asker))
        if answer.word == STARTED:
            asker.turned = True
            asker.until = float("inf")
        return answer

    def _answer_later(self, asker: _RunConnection, answer: RunAnswer) -> None:
        """Give the answer that a connection waits for, if it is still there, and go on with its requests."""
        descriptor = asker.connection.fileno()
        if self._askers.get(descriptor) is asker:
            asker.waiting = False
            asker.out.put(pack_run_answer(answer))
            try:
                self._answer_read(asker)
                asker.out.flush()
            except (PeerLost, FormatError):
                self._close(descriptor)

    def _end_turn(self, asker: _RunConnection, answer: RunAnswer) -> None:
        """Report the end of a delivery, or WANTED, to who has asked for it, if that is still there."""
        if asker.turned and self._askers.get(asker.connection.fileno()) is asker:
            if answer.word != WANTED:
                asker.turned = False
                asker.until = time.monotonic() + IDLE
            asker.out.put(pack_run_answer(answer))

    def _close(self, descriptor: int) -> None:
        self._askers.pop(descriptor).close()
