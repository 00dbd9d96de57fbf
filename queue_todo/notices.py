"""The pipe to queue-send: notices, and lines for its log (queue_wire.pipes.notice)."""

from queue_base.daemon.pipes import OutPipe
from queue_wire import logline
from queue_wire.pipes.notice import pack_log


class NoticePipe(OutPipe):
    """An OutPipe with the records that carry a line of the log. Nothing here waits: `flush` writes."""

    def log(self, line: bytes) -> None:
        """Send a line for the log."""
        self.put(pack_log(line))

    def alert(self, text: str) -> None:
        """Send an alert: something that needs a person."""
        self.log(logline.alert(f"queue-todo: {text}"))

    def warn(self, text: str) -> None:
        """Send a warning: something that will be tried again."""
        self.log(logline.warning(f"queue-todo: {text}"))

    def end(self) -> None:
        """Write everything, however long that takes, and close it. Raises PeerLost."""
        self.finish()
        # The reader waits for end of file, and a thread that hangs in a sync keeps the process from exiting.
        self.close()
