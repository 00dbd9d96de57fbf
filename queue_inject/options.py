"""The command line of queue-inject (qmail-inject(8))."""

import os

from queue_base.errors import Usage

USAGE = "usage: queue-inject [--home HOME] [-aAhHnN] [-f SENDER] [RECIPIENT ...]"


class Options:
    """mode: a, A, h or H, which says whose recipients count; show: print the message and do not queue it."""

    def __init__(self, arguments: list[str]) -> None:
        self.mode = "A"
        self.show = False
        self.sender: bytes | None = None
        self.recipients = [os.fsencode(argument) for argument in self._parse(arguments)]

    def _parse(self, arguments: list[str]) -> list[str]:
        """Parse options as getopt(3) does, letters together or apart. Return the other arguments. Raises Usage."""
        place = 0
        while place < len(arguments):
            letters = arguments[place]
            if letters[:1] != "-" or letters == "-":
                break
            place += 1
            if letters == "--":
                break
            while letters := letters[1:]:
                if letters[0] == "f":
                    if letters == "f":
                        place += 1
                        if place > len(arguments):
                            raise Usage(f"-f needs a sender; {USAGE}")
                    self.sender = os.fsencode(letters[1:] or arguments[place - 1])
                    break
                self._set_letter(letters[0])
        return arguments[place:]

    def _set_letter(self, letter: str) -> None:
        if letter in "aAhH":
            self.mode = letter
        elif letter in "nN":
            self.show = letter == "n"
        else:
            raise Usage(f"-{letter} is not an option; {USAGE}")

    def choose(self, arguments: list[bytes], header: list[bytes]) -> list[bytes]:
        """Return the recipients of the message, given those of the arguments and those of the header."""
        if self.mode == "A":
            return arguments or header
        return {"a": arguments, "h": header, "H": arguments + header}[self.mode]
