"""The experiments of bench/run, one a module: each sets up a side, makes one round and returns its figures."""

from side_by_side.experiment import Experiment
from side_by_side.experiments import batch, big, burst, destinations, drain, end_to_end, inject, million, relay

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        drain.DRAIN,
        batch.BATCH,
        inject.ONE,
        inject.SIXTEEN,
        end_to_end.END_TO_END,
        relay.RELAY,
        burst.FULL,
        burst.PACED,
        destinations.DESTINATIONS,
        big.BIG,
        million.MILLION,
    )
}
