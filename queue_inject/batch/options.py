"""The command line of a batch: `--batch FORMAT [--skip N]` before queue-inject's own options."""

from queue_base.errors import Usage
from queue_inject.options import Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue_inject.batch.format import BatchReader

FORMATS = ("mbox", "mboxo", "bsmtp", "netstring")
USAGE = (
    f"usage: queue-inject [--home HOME] --batch {'|'.join(FORMATS)} [--skip N] "
    "[-aAhH] [-f SENDER] [RECIPIENT ...] <messages"
)
_SKIP_DIGITS = 18


def is_batch(arguments: list[str]) -> bool:
    """Return whether the arguments ask for a batch."""
    return bool(arguments) and arguments[0].partition("=")[0] in ("--batch", "--skip")


class BatchOptions:
    """format: one of FORMATS; skip: how many messages come before the first that is sent; options: queue-inject's."""

    def __init__(self, arguments: list[str]) -> None:
        found: dict[str, str] = {}
        while is_batch(arguments):
            name, equals, value = arguments[0].partition("=")
            arguments = arguments[1:]
            if not equals:
                value, arguments = (arguments or [""])[0], arguments[1:]
            found[name] = value
        self.format = found.get("--batch", "")
        if self.format not in FORMATS:
            raise Usage(f"--batch needs a format, one of {', '.join(FORMATS)}; {USAGE}")
        skip = found.get("--skip", "0")
        if not (skip.isascii() and skip.isdigit() and len(skip) <= _SKIP_DIGITS):
            raise Usage(f"--skip needs a number of messages; {USAGE}")
        self.skip = int(skip)
        self.options = Options(arguments)
        if self.options.show:
            raise Usage(f"-n prints one message, and is not for batches; {USAGE}")
        if self.format in FORMATS[2:] and arguments:
            raise Usage(f"messages of {self.format} have their own sender and recipients; {USAGE}")

    def open_reader(self) -> "BatchReader":
        """Return the format's reader."""
        # Each is imported where it is needed.
        if self.format == "bsmtp":
            from queue_inject.batch.bsmtp import BsmtpReader

            return BsmtpReader()
        if self.format == "netstring":
            from queue_inject.batch.netstrings import NetstringBatchReader

            return NetstringBatchReader()
        from queue_inject.batch.mbox import MBOXO, MBOXRD, MboxReader

        return MboxReader(MBOXRD if self.format == "mbox" else MBOXO)
