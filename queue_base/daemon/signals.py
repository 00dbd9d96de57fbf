"""Signals that a poll loop can wait for: the handler only writes to a pipe, the loop does the rest."""

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Signals:
    """Catches the given signals; `descriptor` becomes readable when one arrives."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self.descriptor, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, _noted)

    def take(self) -> set[int]:
        """Return the numbers of the signals that arrived since the last call."""
        try:
            return set(os.read(self.descriptor, 4096))
        except BlockingIOError:
            return set()


def _noted(number: int, frame: object) -> None:
    """Do nothing: the number has been written to the wakeup descriptor."""


# Python ignores these itself, so that the system call fails instead.
_PYTHONS = {signal.SIGPIPE, signal.SIGXFSZ}


def reset_signals(blocked: "Iterable[signal.Signals]" = ()) -> None:
    """Restore the default of ignored signals, and block only these: both are inherited across exec."""
    for number in signal.valid_signals() - _PYTHONS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def keep_children() -> None:
    """Restore SIGCHLD: while it is ignored, the exit status of children is lost."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def ignore(*numbers: signal.Signals) -> None:
    """Ignore signals: the daemons that queue-send talks to stop only at the end of their pipe."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
