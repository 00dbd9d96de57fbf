"""queuectl prints what the transcripts in transcripts/ show; support/queues/transcript.py has their form."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.suite import program
from support.queues.transcript import ZONE, Player, Transcript, read_transcripts
from support.servers.dns.unbound import Unbound

TRANSCRIPTS = [
    pytest.param(each, id=f"{path.stem}: {each.name}")
    for path in sorted(Path(__file__).parent.glob("transcripts/*.txt"))
    for each in read_transcripts(path)
]
pytestmark = pytest.mark.filterwarnings("ignore:unclosed")


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unbound]:
    with Unbound(tmp_path_factory.mktemp("unbound"), {"example": ZONE}) as server:
        yield server


@pytest.mark.parametrize("transcript", TRANSCRIPTS)
def test_queuectl_prints_what_the_transcript_shows(
    transcript: Transcript,
    tmp_path: Path,
    usual_umask: None,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setattr(sys, "argv", program("queuectl")[-1:])
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    player = Player(tmp_path, transcript.home, capfd, lambda: request.getfixturevalue("resolver").address)
    for step in transcript.steps:
        player.play(step)


def test_a_difference_is_shown_with_the_placeholders_of_what_was_promised(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one.txt"
    path.write_text("A sentence\n    message one queued a@b c@d\n    $ echo <one> 5s x; echo more\n    <one> <age> y\n")
    (transcript,) = read_transcripts(path)
    player = Player(tmp_path, transcript.home, capfd, lambda: "")
    player.play(transcript.steps[0])
    with pytest.raises(AssertionError, match="echo <one> 5s x; echo more"):
        player.play(transcript.steps[1])
    path.write_text("A sentence\n    message one queued a@b c@d\n    $ echo <one> 5s x; echo more; false\n")
    path.write_text(path.read_text() + "    <one> <age> x\n    ...\n    [1]\n")
    for step in next(read_transcripts(path)).steps:
        player.play(step)
