"""Whatever a server answers, no message and no empty message ever goes to the recipients of another one."""

from hypothesis import example, given
from hypothesis import strategies as st

from queue_remote.smtp.transaction import Transaction
from queue_smtp.client import ClientState
from queue_smtp.dotstuff import END
from support.servers.smtp.smtp_script import PIPELINING, PLAIN, ScriptedClient, ready

ANSWERS = [b"250 ok", b"550 no", b"450 later", b"354 go", b"503 bad sequence", b"221 bye", b"421 busy"]


class ForgetfulServer:
    """A server that answers as it is told, and forgets a recipient only after RSET or the end of a message that it
    accepted. `taken` has each message that it got, with the recipients that it had then.

    In the script an answer is for the next command; `extra` ones are said ahead of it, though nobody asked.
    """

    def __init__(self, answers: list[tuple[bytes, bool]]) -> None:
        self._answers = iter(answers)
        self._recipients: list[bytes] = []
        self._message: list[bytes] | None = None
        self._rest = b""
        self.taken: list[tuple[bytes, list[bytes]]] = []

    def feed(self, data: bytes) -> bytes:
        *lines, self._rest = (self._rest + data).split(b"\r\n")
        return b"".join([self._take(line) for line in lines])

    def _take(self, line: bytes) -> bytes:
        if self._message is not None and line != b".":
            self._message.append(line)
            return b""
        answer, extra = next(self._answers, (b"421 enough", False))
        said = b""
        if extra:
            said = answer + b"\r\n"
            answer, _ = next(self._answers, (b"421 enough", False))
        if self._message is not None:
            # What is taken is taken, whatever is said of it.
            self.taken.append((b"\n".join(self._message), list(self._recipients)))
            self._message = None
            if answer.startswith(b"2"):
                self._recipients.clear()
        elif line.startswith(b"RCPT TO:") and answer.startswith(b"2"):
            self._recipients.append(line[9:-1])
        elif line == b"RSET" and answer.startswith(b"2"):
            self._recipients.clear()
        elif line == b"DATA" and answer.startswith(b"354"):
            self._message = []
        return said + answer + b"\r\n"


def deliver(client: ScriptedClient, server: ForgetfulServer, number: int, recipients: int) -> None:
    """Carry one transaction as queue_remote.smtp.connection does, as far as it goes."""
    asked = Transaction(b"from@a.example", [b"%d-%d@b.example" % (number, to) for to in range(recipients)], 9)
    said = client.begin(asked)
    while said:
        heard = server.feed(said)
        said = client.feed(heard)
        if client.state is ClientState.MESSAGE:
            client.protocol.message_sent()
            said += b"message %d\r\n" % number + END


SCRIPT = st.lists(st.tuples(st.sampled_from(ANSWERS), st.booleans()), max_size=60)
HONEST = [b"550 no", b"250 ok", b"503 no", b"550 no", b"550 no", b"354 go", b"250 ok"]


@given(SCRIPT, st.lists(st.integers(1, 4), min_size=1, max_size=5), st.sampled_from([PIPELINING, PLAIN]))
@example([(answer, False) for answer in HONEST], [1, 1], PIPELINING)
@example([(b"250 ok", False), (b"250 ok", False), (b"354 go", False), (b"554 no", False)] * 3, [1, 1, 1], PIPELINING)
def test_a_message_goes_to_its_own_recipients_or_to_nobody(
    answers: list[tuple[bytes, bool]], transactions: list[int], greeting: bytes
) -> None:
    client, server = ready(greeting), ForgetfulServer(answers)
    for number, recipients in enumerate(transactions):
        if client.state is not ClientState.READY:
            break
        deliver(client, server, number, recipients)
    for message, owners in server.taken:
        assert message.startswith(b"message ")
        assert {owner.partition(b"-")[0] for owner in owners} <= {message.removeprefix(b"message ")}
