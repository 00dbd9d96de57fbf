"""The process that makes messages 7-bit or short-lined; queue_remote.message.conversions starts it.

fd 0 is a SOCK_SEQPACKET socket. A packet is a job, `seven-bit short-lines seconds bytes`, with two descriptors: the
message, and the file for the result. The first two fields are 0 or 1, the others limits of CPU time and memory. Each
job runs in a child process with these limits, so that a message that exceeds them ends that child only. The answer is
one packet:

    K size newlines     done: bytes in the file, and how many of them are LF
    F reason            the message cannot be converted
    E reason            an error of the system: it may succeed later
    X reason            a limit was exceeded

The process exits at the end of fd 0.
"""

import os
import resource
import signal
import socket

from queue_remote.message.downgrade import Downgrade
from queue_smtp.dotstuff import normalize
from queue_wire.format_error import FormatError

CHUNK = 65536
_OUT_OF_MEMORY = 3
_REASON_MAX = 1000
# Signals from the kernel when memory is short, and from people. The limits that are set here do not send them.
_FROM_OUTSIDE = frozenset((signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP))


def most_written(size: int) -> int:
    """Return the largest result for a message of a size: quoted-printable makes three bytes of one."""
    return 4 * size + 2 * 1024 * 1024


def main() -> None:
    """Take jobs until the end of fd 0."""
    # If the starter of the suite ignored it, no child could be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.nice(5)
    jobs = socket.socket(fileno=0)
    while True:
        job, descriptors, _, _ = socket.recv_fds(jobs, 100, 2)
        if not job:
            return
        jobs.send(_run(job, descriptors))


def _run(job: bytes, descriptors: list[int]) -> bytes:
    """Run a job in a child process; return the answer."""
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        child = -1
        answer = b"E " + (error.strerror or "").encode()
    if child == 0:
        _run_in_child(job, descriptors, writing)
    os.close(writing)
    for descriptor in descriptors:
        os.close(descriptor)
    if child > 0:
        answer = os.read(reading, 2 * _REASON_MAX)
        _, status = os.waitpid(child, 0)
        answer = answer or _exceeded(os.waitstatus_to_exitcode(status), *job.split()[2:])
    os.close(reading)
    return answer


def _exceeded(code: int, seconds: bytes, memory: bytes) -> bytes:
    if code == -signal.SIGXCPU:
        return b"X it takes over %s seconds of CPU time" % seconds
    if code == _OUT_OF_MEMORY:
        return b"X it takes over %s bytes of memory" % memory
    if -code in _FROM_OUTSIDE:
        return b"E the process that converts was ended by signal %d" % -code
    return b"X the process that does it ended with %d" % code


def _run_in_child(job: bytes, descriptors: list[int], writing: int) -> None:
    """Run a job in this process, and exit."""
    try:
        # Otherwise the other end would wait for this process if its parent were killed.
        os.close(0)
        source, target = descriptors
        seven_bit, short_lines, seconds, memory = map(int, job.split())
        for kind, most in (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_CPU, seconds),
            (resource.RLIMIT_AS, memory),
            (resource.RLIMIT_FSIZE, most_written(os.fstat(source).st_size)),
        ):
            # At the soft limit of CPU time it gets SIGXCPU, at the hard one SIGKILL.
            resource.setrlimit(kind, (most, most + 5 if kind == resource.RLIMIT_CPU else most))
        os.write(writing, b"K %d %d" % _convert(source, target, bool(seven_bit), bool(short_lines)))
        os._exit(0)
    except FormatError as error:
        os.write(writing, b"F " + str(error).encode("utf-8", "backslashreplace")[:_REASON_MAX])
    except OSError as error:
        os.write(writing, b"E " + (error.strerror or type(error).__name__).encode())
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)
    except BaseException as error:
        os.write(writing, b"X " + f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace")[:_REASON_MAX])
    finally:
        os._exit(1)


def _convert(source: int, target: int, seven_bit: bool, short_lines: bool) -> tuple[int, int]:
    """Convert from one file to another; return the numbers of bytes and of LFs that were written."""
    size = newlines = 0
    with open(target, "wb", closefd=False) as file:

        def put(piece: bytes) -> None:
            nonlocal size, newlines
            size += len(piece)
            newlines += piece.count(b"\n")
            file.write(piece)

        Downgrade(_read(source), seven_bit, short_lines, put).run()
    return size, newlines


def _read(descriptor: int) -> bytes:
    """Return the message with LF line ends and no CR."""
    pieces = []
    offset = 0
    held = b""
    while chunk := os.pread(descriptor, CHUNK, offset):
        offset += len(chunk)
        data = held + chunk
        # The meaning of a CR at the end depends on the next chunk.
        held = b"\r" if data.endswith(b"\r") else b""
        pieces.append(normalize(data[:-1] if held else data))
    return b"".join([*pieces, normalize(held)])
