"""Several processes of the daemon: a parent that starts them, passes on signals, and starts one again that has died."""

import os
import signal
import time
from collections.abc import Callable

from queue_base.errors import Failure
from queue_smtpd.processes.listening import ListeningSocket, stop_listening
from queue_smtpd.processes.log_writer import LogWriter
from queue_wire.logline import alert

# Seconds between two starts of the same process.
_PAUSE = 1.0


def run_workers(listening: list[list[ListeningSocket]], run: Callable[[int, int], None], log: LogWriter) -> None:
    """Run `run(0, life)`, `run(1, life)`, ... in processes of their own until TERM, and return when all have ended.

    `life` is a pipe that ends with this process. `listening` has the sockets of each process that nobody is to listen
    on when it has ended after TERM.
    """
    count = len(listening)
    life, kept = os.pipe()
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    places = {_start(place, run, life, kept, log): place for place in range(count)}
    started = dict.fromkeys(range(count), time.monotonic())
    stopping = False
    while places:
        number = signal.sigwait(signals)
        if number in (signal.SIGTERM, signal.SIGINT):
            stopping = True
        if number != signal.SIGCHLD:
            for pid in places:
                os.kill(pid, signal.SIGTERM if number == signal.SIGINT else number)
            continue
        while places:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            place = places.pop(pid, None)
            if place is None:
                # It is none of these, but that which reads the certificates as root.
                continue
            if stopping:
                # It may have ended before it could.
                stop_listening(listening[place])
                continue
            log.write([alert(f"process {pid} has ended ({_how(status)}); starting another one")])
            time.sleep(max(0.0, started[place] + _PAUSE - time.monotonic()))
            started[place] = time.monotonic()
            places[_start(place, run, life, kept, log)] = place


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _start(place: int, run: Callable[[int, int], None], life: int, kept: int, log: LogWriter) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.close(kept)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        run(place, life)
        code = 0
    except Failure as error:
        log.write([alert(str(error))])
    except Exception:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)
