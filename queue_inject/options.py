"""queue-inject's command line (qmail-inject(8))."""

import os

from queue_base.errors import Usage

USAGE = "usage: queue-inject [--home HOME] [-aAhHnN] [-f SENDER] [RECIPIENT ...]"


class Options:
    """mode: one of the letters a, A, h and H, which say whose recipients count; show: print, do not queue."""

    def __init__(self, arguments: list[str]) -> None:
        self.mode = "A"
        self.show = False
        self.sender: bytes | None = None
        self.recipients = [os.fsencode(argument) for argument in self._parse(arguments)]

    def _parse(self, arguments: list[str]) -> list[str]:
        """Take the options as getopt does, letters together or apart; return the rest. Raises Usage."""
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
                self._letter(letters[0])
        return arguments[place:]

    def _letter(self, letter: str) -> None:
        if letter in "aAhH":
            self.mode = letter
        elif letter in "nN":
            self.show = letter == "n"
        else:
            raise Usage(f"-{letter} is not an option; {USAGE}")

    def choose(self, arguments: list[bytes], header: list[bytes]) -> list[bytes]:
        """Return the recipients that the message goes to, of those in the arguments and those in the header."""
        if self.mode == "A":
            return arguments or header
        return {"a": arguments, "h": header, "H": arguments + header}[self.mode]
