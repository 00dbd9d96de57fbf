"""Messages that can be told apart and checked: each has a token, and a body that shows whether it is whole."""

from typing import NamedTuple

LINES = 30


class Letter(NamedTuple):
    """A message to inject: its token, and its envelope."""

    token: str
    sender: str
    recipients: list[str]

    def pack(self) -> str:
        """Return the letter as one line, without its newline."""
        return " ".join([self.token, self.sender, *self.recipients])


def unpack_letter(line: str) -> Letter:
    """Return the letter in a line of `pack`."""
    token, sender, *recipients = line.split()
    return Letter(token, sender, recipients)


def letter_text(token: str) -> bytes:
    """Return the message of a token. Its header is complete, so that no injector adds to it."""
    head = (
        f"X-Token: {token}\nDate: 20 Nov 2026 13:00:00 -0000\nMessage-ID: <{token}@me.example.org>\n"
        f"From: somebody@me.example.org\nTo: list@me.example.org\nSubject: {token}\n"
    )
    body = "".join(f".line {number} of {token}\n" for number in range(LINES))
    return f"{head}\n{body}end of {token}\n".encode()


def token_of(message: bytes) -> str:
    """Return the token in a message's header; empty where there is none."""
    for line in message.partition(b"\n\n")[0].split(b"\n"):
        if line.startswith(b"X-Token: "):
            return line[9:].decode()
    return ""


def delivered_to(message: bytes) -> str:
    """Return the address in the Delivered-To line that a local delivery puts on top."""
    line = message.split(b"\n")[1]
    assert line.startswith(b"Delivered-To: "), message[:200]
    return line[14:].decode()


def added_lines(message: bytes) -> list[bytes]:
    """Return the lines above the letter; fail where the letter is not there whole and unchanged."""
    text = letter_text(token_of(message))
    assert message.endswith(text), message
    return message[: -len(text)].splitlines()
