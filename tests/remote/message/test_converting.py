"""Other forms of a message: made once for all of its deliveries, by a process with limits, and gone with the last."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from queue_remote.message import conversions as conversions_module
from queue_remote.message.conversions import COPIES_MAX, Conversions, Later
from queue_remote.message.file import Message, open_message
from queue_wire.format_error import FormatError
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.smtp.smtp_sink import SmtpSink

TEXT = b"Subject: x\n\nZw\xc3\xb6lf\n"
# Each of its lines has to be compared with a boundary.
SLOW = b"Content-Type: multipart/mixed; boundary=b\n\n--b\n\n" + b"--\n" * 10_000_000 + b"\xe9\n"


@pytest.fixture
def conversions() -> Iterator[Conversions]:
    made = Conversions()
    yield made
    made.kill()
    assert made.bytes == 0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each conversion that a process was asked for."""
    found: list[int] = []
    convert = conversions_module._Converter.convert

    async def count(
        process: conversions_module._Converter, source: int, target: int, seven_bit: bool, short_lines: bool
    ) -> tuple[int, int]:
        found.append(os.fstat(source).st_size)
        return await convert(process, source, target, seven_bit, short_lines)

    monkeypatch.setattr(conversions_module._Converter, "convert", count)
    return found


def stored(path: Path, content: bytes) -> Message:
    path.write_bytes(content)
    return open_message(str(path))


def read(message: Message) -> bytes:
    found = b""
    while not message.ended:
        found += message.read()
    return found


def forms_open() -> set[str]:
    """The files without a name that are open."""
    names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    found = {os.readlink(name) for name in names if os.path.lexists(name)}
    return {name for name in found if name.endswith(" (deleted)")}


def test_all_deliveries_of_a_message_share_one_form_and_each_reads_all_of_it(
    tmp_path: Path, conversions: Conversions, asked: list[int]
) -> None:
    before = forms_open()

    async def run() -> None:
        message = stored(tmp_path / "message", TEXT.replace(b"lf", b"lf" * 100_000))
        forms = await asyncio.gather(*[conversions.convert(message, True, False) for _ in range(50)])
        forms.append(await conversions.convert(message, True, False))
        assert len(asked) == 1
        assert conversions.bytes == forms[0][0].size
        [content] = {read(form) for form, _ in forms}
        assert content.isascii()
        assert {size for _, size in forms} == {len(content.replace(b"\n", b"\r\n"))}
        for form, _ in forms[1:]:
            form.close()
        assert conversions.bytes == len(content)
        forms[0][0].close()
        assert conversions.bytes == 0
        assert forms_open() == before
        other, _ = await conversions.convert(message, True, True)
        assert len(asked) == 2
        other.close()
        message.close()

    asyncio.run(run())


def test_a_form_whose_last_line_does_not_end_counts_its_line_end(tmp_path: Path, conversions: Conversions) -> None:
    async def run() -> None:
        message = stored(tmp_path / "message", b"Subject: x\n\n\xe9 text")
        form, size = await conversions.convert(message, True, False)
        content = read(form)
        assert not content.endswith(b"\n")
        assert size == len(content.replace(b"\n", b"\r\n")) + 2
        form.close()
        message.close()

    asyncio.run(run())


@pytest.mark.parametrize(("limit", "most"), [("CPU_SECONDS", 1), ("MEMORY_MAX", 60_000_000), ("SECONDS_MAX", 0.5)])
def test_what_takes_too_much_is_deferred_and_the_next_time_it_fails(
    tmp_path: Path,
    conversions: Conversions,
    asked: list[int],
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    most: float,
) -> None:
    monkeypatch.setattr(conversions_module, limit, most)

    async def run() -> None:
        message = stored(tmp_path / "message", SLOW)
        small = stored(tmp_path / "small", TEXT)
        waiting = [asyncio.create_task(conversions.convert(message, True, False)) for _ in range(3)]
        if limit != "SECONDS_MAX":
            # It does not wait for the large one.
            form, _ = await conversions.convert(small, True, False)
            form.close()
        for found in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(found, Later)
            assert "it takes over " in str(found)
            assert "it is tried once more" in str(found)
        tries = len(asked)
        # Another destination's job comes a little later; this is no new attempt.
        with pytest.raises(Later):
            await conversions.convert(message, True, False)
        assert len(asked) == tries
        monkeypatch.setattr(conversions_module, "FAILED_SECONDS", 0.0)
        conversions._failed.clear()
        with pytest.raises(FormatError, match="it takes over "):
            await conversions.convert(message, True, False)
        assert len(asked) == tries + 1
        message.close()
        small.close()

    asyncio.run(run())


def test_an_old_message_that_takes_too_much_was_tried_before(
    tmp_path: Path, conversions: Conversions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversions_module, "MEMORY_MAX", 60_000_000)

    async def run() -> None:
        message = stored(tmp_path / "message", SLOW)
        os.utime(message.fileno(), (0, time.time() - conversions_module.OLD_SECONDS - 60))
        with pytest.raises(FormatError, match="it takes over "):
            await conversions.convert(message, True, False)
        message.close()

    asyncio.run(run())


def test_all_forms_together_are_bounded_and_what_is_over_is_deferred(
    tmp_path: Path, conversions: Conversions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversions_module, "COPIES_MAX", 8_000_000)

    async def run() -> None:
        first = stored(tmp_path / "first", TEXT + b"\xe9" * 1_000_000)
        second = stored(tmp_path / "second", TEXT + b"\xe9" * 1_000_000)
        large = stored(tmp_path / "large", TEXT + b"\xe9" * 2_000_000)
        forms = [await conversions.convert(message, True, False) for message in (first, second)]
        assert 2_000_000 < conversions.bytes < 8_000_000
        with pytest.raises(Later, match="too many converted messages"):
            await conversions.convert(large, True, False)
        for form, _ in forms:
            form.close()
        monkeypatch.setattr(conversions_module, "COPIES_MAX", COPIES_MAX)
        # Room is not a matter of the message: it is tried again at once.
        form, _ = await conversions.convert(large, True, False)
        assert form.size > 2_000_000
        form.close()
        for message in (first, second, large):
            message.close()

    asyncio.run(run())


def test_a_process_that_is_killed_is_replaced(tmp_path: Path, conversions: Conversions) -> None:
    async def run() -> None:
        message = stored(tmp_path / "message", SLOW)
        # Spark's, which other tests of this process have started.
        others = psutil.Process().children()
        waiting = asyncio.create_task(conversions.convert(message, True, False))
        child: list[psutil.Process] = []
        while not child:
            await asyncio.sleep(0.01)
            child = [each for each in psutil.Process().children() if each not in others and each.children()]
        child[0].send_signal(signal.SIGKILL)
        with pytest.raises(OSError, match="has ended"):
            await waiting
        message.close()
        message = stored(tmp_path / "message", TEXT + b"\xe9" * 2_000_000)
        form, _ = await conversions.convert(message, True, False)
        form.close()
        message.close()

    asyncio.run(run())


def test_a_conversion_that_somebody_kills_says_nothing_of_the_message(tmp_path: Path, conversions: Conversions) -> None:
    async def run() -> None:
        message = stored(tmp_path / "message", SLOW)
        os.utime(message.fileno(), (0, time.time() - conversions_module.OLD_SECONDS - 60))
        # Spark's, which other tests of this process have started.
        others = psutil.Process().children(recursive=True)
        for sign in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            waiting = asyncio.create_task(conversions.convert(message, True, False))
            working: list[psutil.Process] = []
            while not working:
                await asyncio.sleep(0.01)
                working = [each for child in psutil.Process().children() for each in child.children()]
                working = [each for each in working if each not in others]
            working[0].send_signal(sign)
            with pytest.raises(OSError, match="was ended by signal"):
                await waiting
        message.close()

    asyncio.run(run())


def test_what_cannot_be_converted_is_not_tried_again_for_each_destination(
    tmp_path: Path, conversions: Conversions, asked: list[int]
) -> None:
    async def run() -> None:
        message = stored(tmp_path / "message", b"Content-Type: multipart/signed\n\n\xe9")
        for _ in range(5):
            with pytest.raises(FormatError, match="signed"):
                await conversions.convert(message, True, False)
        message.close()

    asyncio.run(run())
    assert len(asked) == 1


def test_a_daemon_that_ends_leaves_no_process_behind(tmp_path: Path) -> None:
    home = RemoteHome(tmp_path)
    with SmtpSink("-8") as sink:
        home.route_all_to(sink.port)
        with RemoteDaemon(home) as daemon:
            assert daemon.deliver(home.message(TEXT), b"to@b.example").verdicts[0][0] == b"K"
            children = psutil.Process(daemon.process.pid).children(recursive=True)
            assert children
            assert daemon.end() == (0, b"")
            assert psutil.wait_procs(children, timeout=60)[1] == []
