"""One run of a program: started in a session of its own, watched by the event loop, ended whatever it does."""

import asyncio
import contextlib
import os
import signal
import subprocess
from typing import IO

# Far above what the reports on a thousand recipients take.
OUTPUT_MOST = 256 * 1024
# What is kept of stderr, for the alert.
ERRORS_MOST = 300
# Of what is read at the end: as much as a pipe holds, twice. Something that it has left behind may write for ever.
LAST_MOST = 2 * 65536
# From TERM to KILL, for a program over its time.
GRACE_SECONDS = 5.0


class Run:
    """One program that runs; `output` and `errors` are what it has said so far."""

    def __init__(self, process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop) -> None:
        """Watch a program. Raises OSError; then it is gone."""
        assert process.stdout is not None and process.stderr is not None
        self.output = bytearray()
        self.errors = bytearray()
        self._process = process
        self._loop = loop
        self._late = self._flooding = False
        self._ended: asyncio.Future[None] = loop.create_future()
        self._pipes: dict[IO[bytes], tuple[bytearray, int]] = {
            process.stdout: (self.output, OUTPUT_MOST + 1),
            process.stderr: (self.errors, ERRORS_MOST),
        }
        try:
            self._pidfd = os.pidfd_open(process.pid)
        except OSError:
            self.kill(signal.SIGKILL)
            process.wait()
            process.stdout.close()
            process.stderr.close()
            raise
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
            loop.add_reader(pipe.fileno(), self._read, pipe)
        loop.add_reader(self._pidfd, self._exited)

    async def wait(self, seconds: float) -> None:
        """Wait until the program has exited, by itself or because its time is over."""
        timer = self._loop.call_later(seconds, self._overdue)
        last = self._loop.call_later(seconds + GRACE_SECONDS, self.kill, signal.SIGKILL)
        try:
            await self._ended
        finally:
            timer.cancel()
            last.cancel()

    def fault(self) -> str | None:
        """Return why its reports do not count, None where they do."""
        code = self._process.returncode
        if self._late:
            return "it took too long"
        if self._flooding:
            return f"it said more than {OUTPUT_MOST} bytes"
        if code is not None and code < 0:
            return f"it was killed by signal {-code}"
        return f"it exited {code}" if code else None

    def kill(self, number: int) -> None:
        """Send a signal to the program's whole session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def end(self) -> None:
        """Let go of it, and of what it may have left behind."""
        self.kill(signal.SIGKILL)
        self._process.wait()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        for pipe in list(self._pipes):
            self._close(pipe)

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._process.poll()
        # What it said last is still in the pipes; a child of its own may keep them open for ever.
        for pipe in list(self._pipes):
            left = LAST_MOST
            while left > 0 and pipe in self._pipes and (count := self._read(pipe)):
                left -= count
        if not self._ended.done():
            self._ended.set_result(None)

    def _overdue(self) -> None:
        self._late = True
        self.kill(signal.SIGTERM)

    def _read(self, pipe: IO[bytes]) -> int:
        """Keep what there is to read, as far as it is wanted; return how many bytes that was, 0 where no more comes."""
        kept, most = self._pipes[pipe]
        try:
            data = os.read(pipe.fileno(), 65536)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self._close(pipe)
            return 0
        kept += data[: most - len(kept)]
        if len(self.output) > OUTPUT_MOST:
            self._flooding = True
            self.kill(signal.SIGKILL)
            return 0
        return len(data)

    def _close(self, pipe: IO[bytes]) -> None:
        del self._pipes[pipe]
        self._loop.remove_reader(pipe.fileno())
        pipe.close()
