"""Signals as something to wait for: a handler only writes to a pipe, the loop does the rest."""

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Signals:
    """Catches the given signals; `descriptor` becomes readable when one has come."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self.descriptor, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, _noted)

    def take(self) -> set[int]:
        """Return the numbers of the signals that came since the last call."""
        try:
            return set(os.read(self.descriptor, 4096))
        except BlockingIOError:
            return set()


def _noted(number: int, frame: object) -> None:
    """Do nothing: the wakeup descriptor has the number already."""


# Python ignores these for itself, so that a system call fails instead.
_PYTHONS = {signal.SIGPIPE, signal.SIGXFSZ}


def reset_signals(blocked: "Iterable[signal.Signals]" = ()) -> None:
    """Ignore no signal and block none but these, whatever we were started with: both are inherited across exec."""
    for number in signal.valid_signals() - _PYTHONS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def keep_children() -> None:
    """Have children wait for us to ask how they ended: where SIGCHLD is ignored, nobody can tell a failure."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def ignore(*numbers: signal.Signals) -> None:
    """Ignore signals: the daemons behind queue-send stop when their pipe ends, and for nothing else."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
