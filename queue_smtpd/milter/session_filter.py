"""The filters of one session: its milters in their order, and what is to become of a header that breaks RFC 5322.

A milter is asked from the first MAIL on, with what is known of the client then; what it says to the connection or to
EHLO is the reply to MAIL. Each stage asks all milters, until one refuses. At the end of a message each one gets the
message as those before it have changed it. None of the methods raises, whatever a milter does: one that cannot be asked
refuses for now, or is left out for the rest of the session (`default=accept`). The log has that of each session, and an
alert once in a while.

A milter that fails while it looks at a message has perhaps failed because of it: too slow, or not at all. So it is then
left out of nothing, and the message is refused for now, whatever the line says. A message that cannot be given to it is
refused.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import NamedTuple

from queue_base.errors import reason
from queue_smtp.path import pack_path, unpack_path
from queue_smtp.server_replies import HEADER_TOO_LARGE, MESSAGE_REFUSED, QUEUE_UNAVAILABLE, ServerReply
from queue_smtpd.milter.edited_message import (
    HEADER_MAX,
    EditedMessage,
    Found,
    Steps,
    field_name,
    field_value,
    find_header_fault,
    parse_header,
)
from queue_smtpd.milter.message_spool import MessageSpool, SpoolMemory
from queue_smtpd.milter.milter_client import (
    GO_ON,
    NEW_BODY_MAX,
    UNAVAILABLE,
    AnswerKind,
    Edit,
    FieldTooLong,
    HeaderEdit,
    MilterAnswer,
    QuarantineEdit,
    RecipientEdit,
    SenderEdit,
)
from queue_smtpd.milter.milter_link import MilterAlerts, MilterLink, MilterTrouble
from queue_smtpd.sessions import session_log
from queue_smtpd.sessions.client_facts import ClientFacts
from queue_wire.address import address_key
from queue_wire.control.milters import ACCEPT, HOLD, REFUSE, FilterSetup, MilterLine
from queue_wire.files.envelope import ADDRESS_MAX
from queue_wire.format_error import FormatError

# Of recipients, with those that milters add.
RECIPIENTS_MAX = 5000
# Seconds of work on one message before it is the turn of others.
TURN_SECONDS = 0.005

# Takes log lines.
LogLines = Callable[[list[bytes]], None]


class FilterPlace(NamedTuple):
    """Where a session is, for macros: this host's name, and the ports of both ends."""

    me: bytes
    client_port: int = 0
    server_port: int = 0


class FilterVerdict(NamedTuple):
    """What becomes of a message. `reply`: it is refused; `discards`: it is accepted and goes nowhere.

    `hold` and `copy` are the causes for queue-intake, empty for none.
    """

    sender: bytes
    recipients: list[bytes]
    reply: ServerReply | None = None
    discards: bool = False
    hold: bytes = b""
    copy: bytes = b""


class _AskedMilter:
    """A milter in this session. `passed`: it accepts the rest of the session; `takes`: it wants this message.

    `told`: the client as the milter knows it. `refusal`: what it has said to the connection.
    """

    __slots__ = ("begun", "line", "link", "passed", "refusal", "takes", "told")

    def __init__(self, line: MilterLine) -> None:
        self.line = line
        self.link: MilterLink | None = None
        self.told: ClientFacts | None = None
        self.refusal: ServerReply | None = None
        self.passed = self.takes = self.begun = False


class SessionFilter:
    """The filters of the session with this number. `log` takes lines. All sessions share `memory` and `alerts`."""

    def __init__(
        self,
        setup: FilterSetup,
        session: int,
        place: FilterPlace,
        memory: SpoolMemory,
        alerts: MilterAlerts,
        log: LogLines,
    ) -> None:
        self._setup = setup
        self._session = session
        self._place = place
        self._memory = memory
        self._alerts = alerts
        self._log = log
        self._milters = [_AskedMilter(line) for line in setup.milters]
        self._client = ClientFacts("")
        self._macros: dict[bytes, bytes] = {}
        self._smtputf8 = self._discards = False
        self._received = b""
        self._spool: MessageSpool | None = None
        self._message: EditedMessage | None = None

    @property
    def program(self) -> str:
        """The program that queues messages, empty for none."""
        return self._setup.program

    def environment(self, relays: bool) -> dict[bytes, bytes]:
        """Return what a program is told of the client, as by tcpserver; `relays`: it may send mail to everybody.

        Empty: the variable is not to be there.
        """
        client, place = self._client, self._place
        return {
            b"PROTO": b"TCP",
            b"TCPREMOTEIP": client.address.encode(),
            b"TCPREMOTEPORT": b"%d" % place.client_port,
            b"TCPREMOTEHOST": client.name,
            b"TCPREMOTEINFO": client.user,
            b"TCPLOCALIP": client.server.encode(),
            b"TCPLOCALPORT": b"%d" % place.server_port,
            b"SMTPAUTHUSER": client.user,
            b"RELAYCLIENT": b"1" if relays else b"",
        }

    def note_program(self, what: bytes) -> None:
        """Log what a program has said, or what went wrong with it."""
        self._note(os.fsencode(self._setup.program), what)

    # The envelope.

    async def ask_sender(
        self, client: ClientFacts, identity: bytes, sender: bytes, parameters: list[bytes]
    ) -> ServerReply | None:
        """Begin a message; return the reply if it is refused."""
        self._client = client
        self._discards = False
        self._smtputf8 = b"SMTPUTF8" in parameters
        self._macros = _macros(self._place, client, identity, sender)
        for each in self._milters:
            each.takes = not each.passed
        return await self._ask_all(lambda each: self._ask_sender(each, sender, parameters), b"MAIL")

    async def _ask_sender(self, each: _AskedMilter, sender: bytes, parameters: list[bytes]) -> MilterAnswer:
        answer = await self._introduce(each)
        link = each.link
        if answer.kind is not AnswerKind.CONTINUE or link is None:
            return answer
        each.begun = True
        link.client.sender(_path(sender), parameters, self._macros)
        return await self._exchange(each)

    async def _introduce(self, each: _AskedMilter) -> MilterAnswer:
        """Connect to a milter, and tell it of the client, if it does not know."""
        client = self._client
        if each.link is None:
            each.link, each.told, each.refusal, each.begun = MilterLink(each.line), None, None, False
            await each.link.open()
        if each.refusal is not None:
            return MilterAnswer(AnswerKind.REFUSE, each.refusal)
        if each.told is None:
            host = client.name or b"[%s]" % client.shown_address.encode()
            each.link.client.connect(host, client.address, self._place.client_port, self._macros)
            if self._keep(each, answer := await self._exchange(each)):
                return answer
        if each.begun:
            each.begun = False
            each.link.client.abort()
        # In QMTP nobody says EHLO.
        if client.hello and (each.told is None or (each.told.hello, each.told.tls) != (client.hello, client.tls)):
            each.link.client.hello(client.hello, self._macros)
            if self._keep(each, answer := await self._exchange(each)):
                return answer
        each.told = client
        return GO_ON

    def _keep(self, each: _AskedMilter, answer: MilterAnswer) -> bool:
        """Note an answer that is for the whole session; return whether it is one."""
        if answer.kind is AnswerKind.REFUSE:
            each.refusal = answer.reply
        elif answer.kind is AnswerKind.ACCEPT:
            each.passed = True
        return answer.kind in (AnswerKind.REFUSE, AnswerKind.ACCEPT)

    async def ask_recipient(self, recipient: bytes) -> ServerReply | None:
        """Ask about a recipient that the server takes; return the reply if it is refused."""
        macros = {**self._macros, b"{rcpt_addr}": recipient, b"{rcpt_host}": recipient.rpartition(b"@")[2]}
        macros[b"{rcpt_mailer}"] = b"queue"

        async def ask(each: _AskedMilter) -> MilterAnswer:
            assert each.link is not None
            each.link.client.recipient(_path(recipient), macros)
            return await self._exchange(each)

        return await self._ask_all(ask, b"RCPT")

    async def ask_data(self) -> ServerReply | None:
        """Ask whether the message may come; return the reply if it may not."""

        async def ask(each: _AskedMilter) -> MilterAnswer:
            assert each.link is not None
            each.link.client.begin_data(self._macros)
            return await self._exchange(each)

        return await self._ask_all(ask, b"DATA")

    # The message.

    def begin_message(self) -> None:
        """Begin to take a message. Its first text is the server's own field."""
        self.drop_message()
        self._spool = MessageSpool(self._memory)

    def add(self, text: bytes) -> None:
        """Take text of the message."""
        assert self._spool is not None
        if self._received:
            self._spool.add(text)
        else:
            self._received = text

    def drop_message(self) -> None:
        """Forget the message."""
        self._received = b""
        spool, self._spool = self._spool, None
        message, self._message = self._message, None
        if message is not None:
            message.close()
        if spool is not None:
            spool.close()

    async def ask_message(self, sender: bytes, recipients: list[bytes]) -> FilterVerdict:
        """Ask what becomes of the message, which is complete. `pieces` has it then, as it is changed."""
        verdict = FilterVerdict(sender, list(recipients))
        spool = self._spool
        if self._discards:
            return verdict._replace(discards=True)
        try:
            if spool is None or spool.failed:
                self._fail_spool("" if spool is None else spool.why)
                return verdict._replace(reply=QUEUE_UNAVAILABLE)
            header = await _in_turns(parse_header(spool.head(HEADER_MAX)))
            message = self._message = EditedMessage(self._received, header, spool)
        except OSError as error:
            self._fail_spool(reason(error))
            return verdict._replace(reply=QUEUE_UNAVAILABLE)
        if self._setup.headerfaults != ACCEPT:
            fault = await _in_turns(find_header_fault(header, spool.size, self._smtputf8))
            verdict = self._judge_header(fault, verdict) if fault else verdict
            if verdict.reply is not None:
                return verdict
        for each in self._milters:
            if each.takes and each.link is not None:
                verdict = await self._ask_one(each, message, verdict)
                if verdict.reply is not None or verdict.discards:
                    break
        return verdict

    def _judge_header(self, fault: bytes, verdict: FilterVerdict) -> FilterVerdict:
        """Log that the header breaks RFC 5322, and return the verdict with what control/headerfaults wants done."""
        if self._setup.headerfaults == REFUSE:
            self._note(b"header", b"refuses message: " + fault)
            text = b"Message header breaks RFC 5322: " + fault
            return verdict._replace(reply=MESSAGE_REFUSED._replace(text=text))
        if self._setup.headerfaults == HOLD:
            self._note(b"header", b"holds message: " + fault)
            return verdict._replace(hold=b"header: " + fault)
        self._note(b"header", b"copies message: " + fault)
        return verdict._replace(copy=fault)

    async def _ask_one(self, each: _AskedMilter, message: EditedMessage, verdict: FilterVerdict) -> FilterVerdict:
        """Give the message to a milter, and make its changes."""
        body = _NewBody(MessageSpool(self._memory, NEW_BODY_MAX))
        kept = False
        try:
            answer, edits = await self._pass_message(each, message, body)
            if answer.kind is AnswerKind.REFUSE:
                self._note_refusal(each, b"message", answer.reply)
                return verdict._replace(reply=answer.reply)
            if answer.kind is AnswerKind.DISCARD:
                self._note(each.line.name.encode(), b"discards message")
                return verdict._replace(discards=True)
            if body.spool.failed:
                raise MilterTrouble(f"unable to keep the new body: {body.spool.why}")
            changed = _change_envelope(verdict, edits)
            await _in_turns(message.edit_header([edit for edit in edits if isinstance(edit, HeaderEdit)]))
            if each.link is not None and each.link.client.replaces_body:
                message.replace_body(body.spool)
                kept = True
        except FieldTooLong as error:
            text = f"Field {error} of the message header is too large to be filtered"
            reply = HEADER_TOO_LARGE._replace(text=text.encode())
            self._note_refusal(each, b"message", reply)
            return verdict._replace(reply=reply)
        except MilterTrouble as error:
            return verdict._replace(reply=self._fail(each, error, False).reply)
        finally:
            if not kept:
                body.spool.close()
        if not changed.recipients:
            changed = changed._replace(discards=True)
            said = b"discards message: it has removed all recipients"
        elif changed.hold != verdict.hold:
            said = changed.hold.replace(b"milter: ", b"holds message: ", 1)
        else:
            said = b"accepts message"
        self._note(each.line.name.encode(), said)
        return changed

    async def _pass_message(
        self, each: _AskedMilter, message: EditedMessage, body: "_NewBody"
    ) -> tuple[MilterAnswer, list[Edit]]:
        """Send the message to a milter. Return its last answer and its changes; the new body is in `body`.

        Raises MilterTrouble, FieldTooLong.
        """
        link = each.link
        assert link is not None
        client = link.client
        until = time.monotonic() + each.line.content
        turn_ends = time.monotonic() + TURN_SECONDS
        async for _ in self._commands(each, message):
            answer = await link.exchange(until)
            if answer.kind not in (AnswerKind.CONTINUE, AnswerKind.SKIP):
                each.takes = False
                return answer, []
            if time.monotonic() >= turn_ends:
                # A command that is not sent, or whose answer is there, waits for nothing.
                await asyncio.sleep(0)
                turn_ends = time.monotonic() + TURN_SECONDS
        client.end_message(self._macros)
        answer = await link.exchange(until, body.add)
        each.begun = False
        return answer, client.take_edits()

    async def _commands(self, each: _AskedMilter, message: EditedMessage) -> AsyncIterator[None]:
        """Make the commands of a message, one after the other. Raises MilterTrouble, FieldTooLong."""
        assert each.link is not None
        client = each.link.client
        if client.wants_headers:
            for field in message.fields:
                client.header(field_name(field), field_value(field))
                yield
        client.end_headers(self._macros)
        yield
        try:
            for piece in message.body_pieces():
                if not client.wants_body:
                    break
                client.body(piece.replace(b"\n", b"\r\n"))
                yield
        except OSError as error:
            raise MilterTrouble(f"unable to read the message: {reason(error)}") from error

    def pieces(self) -> Iterator[bytes]:
        """Yield the message as it is changed. Raises OSError."""
        assert self._message is not None
        return self._message.pieces()

    def begin_anew(self, client_port: int, server_port: int) -> None:
        """Forget what the milters have said: another client is there."""
        self.close()
        self._place = self._place._replace(client_port=client_port, server_port=server_port)
        for each in self._milters:
            each.passed = False

    def close(self) -> None:
        """End: the session is over."""
        self.drop_message()
        for each in self._milters:
            self._drop_link(each)

    # One milter.

    def _note(self, name: bytes, what: bytes) -> None:
        self._log([session_log.filtered(self._session, name, what)])

    def _note_refusal(self, each: _AskedMilter, what: bytes, reply: ServerReply | None) -> None:
        """Log that a milter refuses a command or a message, perhaps for now, and with which words."""
        reply = reply or MESSAGE_REFUSED
        word = b"defers" if reply.code < 500 else b"refuses"
        text = b" ".join([part for part in (b"%d" % reply.code, reply.status, reply.text) if part])
        self._note(each.line.name.encode(), word + b" " + what + b": " + text)

    async def _ask_all(
        self, ask: Callable[[_AskedMilter], Awaitable[MilterAnswer]], stage: bytes
    ) -> ServerReply | None:
        """Ask the milters that want this message, until one refuses; return its reply."""
        for each in self._milters:
            if self._discards:
                break
            if not each.takes:
                continue
            try:
                answer = await ask(each)
            except MilterTrouble as error:
                answer = self._fail(each, error, each.line.accepts)
                if answer.kind is AnswerKind.REFUSE:
                    return answer.reply
            if answer.kind is AnswerKind.ACCEPT:
                each.takes = False
            elif answer.kind is AnswerKind.DISCARD:
                self._note(each.line.name.encode(), b"discards message")
                self._discards = True
            elif answer.kind is AnswerKind.REFUSE:
                self._note_refusal(each, stage, answer.reply)
                return answer.reply
        return None

    async def _exchange(self, each: _AskedMilter) -> MilterAnswer:
        assert each.link is not None
        return await each.link.exchange(time.monotonic() + each.line.command)

    def _fail(self, each: _AskedMilter, error: MilterTrouble, accepts: bool) -> MilterAnswer:
        """Return what counts in the place of an answer that there is not."""
        self._note(each.line.name.encode(), b"failed: " + str(error).encode("utf-8", "backslashreplace"))
        self._log(self._alerts.note(each.line, error, accepts, time.monotonic()))
        self._drop_link(each)
        if accepts:
            each.passed, each.takes = True, False
            return MilterAnswer(AnswerKind.ACCEPT)
        return MilterAnswer(AnswerKind.REFUSE, UNAVAILABLE)

    def _fail_spool(self, why: str) -> None:
        """Log that a message could not be kept until the filters have decided."""
        self._note(b"spool", b"failed: " + why.encode("utf-8", "backslashreplace"))
        self._log(self._alerts.note_spool(why, time.monotonic()))

    def _drop_link(self, each: _AskedMilter) -> None:
        link, each.link = each.link, None
        each.takes = False
        if link is not None:
            link.close()


class _NewBody:
    """Takes a new body as a milter sends it: its pieces may divide a CR from its LF."""

    __slots__ = ("_held", "spool")

    def __init__(self, spool: MessageSpool) -> None:
        self.spool = spool
        self._held = b""

    def add(self, data: bytes) -> None:
        data = self._held + data
        self._held = b"\r" if data.endswith(b"\r") else b""
        self.spool.add(data.removesuffix(b"\r").replace(b"\r\n", b"\n"))


async def _in_turns(steps: Steps[Found]) -> Found:
    """Do all the work of some steps, and let other connections have their turns."""
    turn_ends = time.monotonic() + TURN_SECONDS
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found
        if time.monotonic() >= turn_ends:
            await asyncio.sleep(0)
            turn_ends = time.monotonic() + TURN_SECONDS


def _macros(place: FilterPlace, client: ClientFacts, identity: bytes, sender: bytes) -> dict[bytes, bytes]:
    """Return the macros of a message, by the names that Postfix and Sendmail have for them."""
    address = b"unknown" if client.hidden else client.address.encode()
    name = client.name or b"unknown"
    found = {
        b"j": place.me,
        b"v": b"queue-smtpd",
        b"_": b"%s [%s]" % (name, address),
        b"i": identity,
        b"{daemon_name}": place.me,
        b"{daemon_addr}": client.server.encode(),
        b"{daemon_port}": b"%d" % place.server_port,
        b"{client_addr}": address,
        b"{client_name}": name,
        b"{client_ptr}": name,
        b"{client_port}": b"%d" % place.client_port,
        b"{mail_addr}": sender,
        b"{mail_host}": sender.rpartition(b"@")[2],
        b"{mail_mailer}": b"queue",
    }
    if client.tls is not None:
        found[b"{tls_version}"] = client.tls.version
        found[b"{cipher}"] = client.tls.cipher
    if client.user:
        found[b"{auth_authen}"] = client.user
        found[b"{auth_type}"] = client.mechanism
    return found


def _path(address: bytes) -> bytes:
    """Return an address as a path in brackets."""
    try:
        return pack_path(address)
    except FormatError:
        # With UTF-8, or too long for a command of ours.
        return b"<" + address + b">"


def _unpack_address(path: bytes) -> bytes:
    """Return the address in a path that a milter has sent, with or without brackets. Raises MilterTrouble."""
    text = path.strip()
    try:
        address, rest = unpack_path(text if text.startswith(b"<") else b"<" + text + b">")
    except FormatError as error:
        raise MilterTrouble(f"not an address: {error}") from error
    if rest.strip() or len(address) > ADDRESS_MAX:
        raise MilterTrouble("not an address: it is too long, or something follows it")
    return address


def _change_envelope(
    verdict: FilterVerdict, edits: list[Edit]
) -> FilterVerdict:
    """Return the verdict with a milter's changes of sender and recipients, and its quarantine. Raises MilterTrouble."""
    sender, recipients, hold = verdict.sender, list(verdict.recipients), verdict.hold
    for edit in edits:
        if isinstance(edit, SenderEdit):
            sender = _unpack_address(edit.path)
        elif isinstance(edit, RecipientEdit):
            address = _unpack_address(edit.path)
            if not edit.adds:
                recipients = [each for each in recipients if address_key(each) != address_key(address)]
            elif not address or len(recipients) >= RECIPIENTS_MAX:
                raise MilterTrouble("no recipient, or too many of them")
            elif address not in recipients:
                recipients.append(address)
        elif isinstance(edit, QuarantineEdit):
            hold = hold or b"milter: " + edit.reason
    return verdict._replace(sender=sender, recipients=recipients, hold=hold)
