"""The failure that ends a batch."""

from queue_base.errors import Failure


class BatchFailure(Failure):
    """Not all messages of the batch are queued. `exit_code` is that of the program."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code
