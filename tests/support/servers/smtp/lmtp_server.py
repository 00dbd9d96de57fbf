"""An LMTP server that keeps what it takes, and answers for each recipient as a test says."""

from typing import NamedTuple

from support.servers.smtp.raw_server import Peer, RawServer

EXTENSIONS = (b"PIPELINING", b"8BITMIME", b"SMTPUTF8", b"ENHANCEDSTATUSCODES")


class Delivered(NamedTuple):
    """A message as it came: the argument of MAIL, those of RCPT that were accepted, the content to its dot."""

    mail: bytes
    recipients: list[bytes]
    content: bytes


class LmtpServer(RawServer):
    """Listens at a Unix socket, or on loopback. `taken` are the messages; `commands` are all that came, in order.

    `at_rcpt` and `after_data` have answers by the local part of the recipient. Once `most` answers were given to the
    data of a message the connection is closed; `more` replies are sent behind them.
    """

    def __init__(self, path: str = "", extensions: tuple[bytes, ...] = EXTENSIONS) -> None:
        super().__init__(self._serve_session, path=path)
        self.taken: list[Delivered] = []
        self.commands: list[bytes] = []
        self.at_rcpt: dict[bytes, bytes] = {}
        self.after_data: dict[bytes, bytes] = {}
        self.most: int | None = None
        self.more: list[bytes] = []
        self._extensions = extensions

    def _serve_session(self, peer: Peer) -> None:
        peer.say(b"220 lmtp.example LMTP")
        mail, recipients = b"", list[bytes]()
        while line := peer.hear():
            self.commands.append(line)
            verb, _, rest = line.partition(b" ")
            if verb == b"LHLO":
                names = [b"lmtp.example", *self._extensions]
                peer.say(*[b"250-" + name for name in names[:-1]], b"250 " + names[-1])
            elif verb == b"MAIL":
                mail, recipients = rest, []
                peer.say(b"250 2.1.0 OK")
            elif verb == b"RCPT":
                answer = self.at_rcpt.get(_user(rest), b"250 2.1.5 OK")
                if answer.startswith(b"2"):
                    recipients.append(rest)
                peer.say(answer)
            elif verb == b"DATA" and not recipients:
                peer.say(b"503 5.5.1 no recipients")
            elif verb == b"DATA":
                peer.say(b"354 go")
                self.taken.append(Delivered(mail, recipients, peer.hear_message()))
                answers = [self.after_data.get(_user(each), b"250 2.0.0 %s saved" % _user(each)) for each in recipients]
                # In one piece, so that what is too much comes with the rest.
                peer.say(*answers[: self.most], *self.more)
                if self.most is not None:
                    return
            elif verb in (b"RSET", b"NOOP"):
                peer.say(b"250 OK")
            elif verb == b"QUIT":
                peer.say(b"221 bye")
                return
            else:
                peer.say(b"500 5.5.1 what")


def _user(path: bytes) -> bytes:
    """Return the local part of the argument of RCPT."""
    return path.partition(b"<")[2].rpartition(b"@")[0]
