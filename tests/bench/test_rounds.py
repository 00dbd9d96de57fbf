"""The order of the rounds of bench/run, and what of them counts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from side_by_side.experiment import MEMORY, SYNCS, Experiment, Ground, Measured
from side_by_side.figures import OURS, THEIRS, Figure
from side_by_side.rounds import Plan, run_experiment
from side_by_side.side import Side

RATE = Figure("rate", "a second", more_is_better=True)


class Recorder:
    """An experiment that starts nothing: each round gives the next number."""

    def __init__(self) -> None:
        self.rounds: list[tuple[str, int, bool, bool]] = []

    def run(self, ground: Ground, kind: type[Side], messages: int) -> Measured:
        self.rounds.append((kind.name, messages, ground.watches_memory, ground.traced))
        ground.peak, ground.syncs = 5_000_000, 2 * messages
        return Measured({RATE.name: float(len(self.rounds))}, (1.0, 2.0), (0.0, 0.1))

    def experiment(self, **more: int) -> Experiment:
        return Experiment("recorded", "nothing", 400, (RATE, SYNCS, MEMORY), self.run, **more)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Yield two directories, and fail where something is left in the first."""
    place, scratch = tmp_path / "place", tmp_path / "scratch"
    place.mkdir()
    scratch.mkdir()
    yield place, scratch
    assert list(place.iterdir()) == []


def test_the_side_that_begins_changes_and_the_warm_up_does_not_count(places: tuple[Path, Path]) -> None:
    recorder = Recorder()
    said: list[str] = []
    result = run_experiment(recorder.experiment(traced=50), "disk", *places, Plan(3, 0), said.append)
    timed = [(side, 400, False, False) for side in (OURS, THEIRS, THEIRS, OURS, OURS, THEIRS)]
    warm_up = [(OURS, 400, True, False), (THEIRS, 400, True, False)]
    counted = [(OURS, 50, False, True), (THEIRS, 50, False, True)]
    assert recorder.rounds == [*warm_up, *timed, *counted]
    assert result.values[OURS] == {"rate": [3.0, 6.0, 7.0], SYNCS.name: [2.0], MEMORY.name: [5.0]}
    assert result.values[THEIRS] == {"rate": [4.0, 5.0, 8.0], SYNCS.name: [2.0], MEMORY.name: [5.0]}
    assert len(said) == len(recorder.rounds)


def test_messages_change_in_proportion_but_not_below_what_an_experiment_needs() -> None:
    experiment = Recorder().experiment(least=20)
    assert Plan(1, 0).messages_of(experiment) == 400
    assert Plan(1, 10_000).messages_of(experiment) == 200
    assert Plan(1, 50).messages_of(experiment) == 20


def test_a_result_with_rates_has_a_plot_as_text_as_svg_and_in_its_json(places: tuple[Path, Path]) -> None:
    result = run_experiment(Recorder().experiment(), "tmpfs", *places, Plan(1, 0), lambda text: None)
    lines = result.lines()
    assert lines[0].startswith("recorded, tmpfs: nothing; 400 messages; took ")
    assert f"  {THEIRS}, deliveries each 100 ms, up to 2/s; the burst from 0.0 to 0.1 s" in lines
    assert lines[-1] == "    ▄█"
    assert result.svg().startswith("<svg ")
    assert result.as_json()["rates"][OURS] == {"each_s": 0.1, "values": [1.0, 2.0], "burst": [0.0, 0.1]}
