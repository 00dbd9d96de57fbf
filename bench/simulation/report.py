"""The runs of bench/simulate and what it prints of them, with the goals of the scheduler beside."""

from array import array
from typing import NamedTuple

from queue_base.limits import Limits
from queue_send.scheduler.model import Settings
from simulation.bulk import BulkRun
from simulation.clock import Result, run, watches
from simulation.memory import measure
from simulation.ours import Ours
from simulation.plain import Plain
from simulation.traffic import Traffic, build_traffic, healthy_only, needs
from simulation.world import DEAD, HEALTHY, KINDS, Host, Shape, build_world, rates
from usage import Parser, amount, count, count_or_none

HOUR = 3600.0
DELAY_GOAL = 1.5
START_GOAL = 1.0  # Seconds until a normal message behind bulk mail is started, of 99 in 100.
NORMAL = 1000  # Normal messages behind bulk mail.
WASTE_GOAL = 1.0


class Pair(NamedTuple):
    """The same scheduler with the sick hosts and without."""

    sick: Result
    well: Result

    @property
    def ratio(self) -> float:
        """How much longer the slowest hundredth of the healthy hosts' mail takes because of the sick ones."""
        return percentile(self.sick.delays[HEALTHY], 99) / percentile(self.well.delays[HEALTHY], 99)


def percentile(ordered: "array[float]", percent: float) -> float:
    """Return the value that so many percent do not exceed (nearest rank)."""
    return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]


def main(text: str | None, argv: list[str]) -> int:
    """Run and print; `text` is what --help says. Returns 1 where a goal is missed."""
    parser = Parser(text)
    parser.add_argument("--messages", type=count, default=1_000_000)
    parser.add_argument("--destinations", type=count, default=20_000)
    parser.add_argument("--concurrency", type=count, default=250)
    parser.add_argument("--hours", type=amount, default=24.0, help="in which the mail comes in")
    parser.add_argument("--seed", type=count_or_none, default=1)
    parser.add_argument("--no-plain", action="store_true", help="leave the plain scheduler out")
    arguments = parser.parse_args(argv)
    shape = Shape(arguments.destinations, arguments.hours * HOUR, arguments.seed)

    def world() -> list[Host]:
        return build_world(shape, arguments.messages)

    everything = build_traffic(shape, world(), arguments.messages)
    well = healthy_only(everything, world())
    print(
        f"{len(everything):,} messages, {len(everything.hosts):,} recipients ({len(well.hosts):,} at healthy hosts), "
        f"{arguments.destinations:,} destinations, {arguments.hours:g} h, concurrency {arguments.concurrency}, "
        f"seed {arguments.seed}",
        flush=True,
    )
    show_needs("healthy mail", needs(well, world()))
    show_needs("all mail", needs(everything, world()))
    settings = Settings(arguments.concurrency, 20_000, Limits(), rates(world()))

    def ours(traffic: Traffic, on_demand: bool = False) -> Result:
        hosts, result = world(), Result()
        for host in hosts:
            host.on_demand = on_demand and host.kind == DEAD
        result.watches = watches(hosts, declares=True) if not on_demand else {}
        return run(Ours(traffic, hosts, settings, result.watches), traffic, hosts, result)

    def plain(traffic: Traffic) -> Result:
        hosts, result = world(), Result()
        result.watches = watches(hosts, declares=False)
        return run(Plain(traffic, arguments.concurrency), traffic, hosts, result)

    pair = Pair(ours(everything), ours(well))
    show("queue-send", pair)
    if not arguments.no_plain:
        show("plain FIFO", Pair(plain(everything), plain(well)))
    stored = ours(everything, on_demand=True)
    show_on_demand(stored)
    show_memory(settings, arguments.messages)
    bulk = BulkRun(settings, world(), arguments.messages, NORMAL, arguments.seed)
    bulk.run()
    print(f"\n{arguments.messages:,} bulk messages in front of normal ones")
    show_delays("first attempt, normal mail", array("d", sorted(bulk.delays)))
    show_delays("at hosts with full windows", array("d", sorted(bulk.delays_at_full_windows)))
    print(f"  bulk recipients in flight  at most {bulk.most_bulk} after a start while normal mail waited")
    return 0 if judge(pair, stored, bulk, settings) else 1


def show(name: str, pair: Pair) -> None:
    """Print the figures of one scheduler."""
    sick, well = pair
    seen = [watch for watch in sick.watches.values() if watch.was_dead]
    probes, wasted = sum(watch.probes for watch in seen), sum(watch.wasted for watch in seen)
    most = max(sick.watches.values(), key=lambda watch: watch.burst_jobs)
    starts = max(watch.burst_starts for watch in sick.watches.values())
    print(f"\n{name}")
    for label, result in (("with the sick", sick), ("without them", well)):
        show_delays(f"healthy mail {label}", result.delays[HEALTHY])
    print(f"  ratio of the p99            {pair.ratio:.2f}")
    for kind in KINDS[1:]:
        show_delays(f"mail for {kind} hosts", sick.delays[kind])
    print(f"  attempts                 {sick.attempts:,}, of them failed {sick.failures:,} "
          f"({sick.refused:,} over a host's rate); all done after {sick.last / HOUR:.1f} h")  # fmt: skip
    print(f"  hosts known to be dead   {len(seen):,}; then attempts in vain {wasted:,}, probes due {probes:,}, "
          f"in vain per probe {wasted / max(1, probes):.2f}")  # fmt: skip
    print(f"  revived, first minute    at most {most.burst_jobs} jobs at once (window {most.burst_window}), "
          f"{starts:,} attempts")  # fmt: skip
    print(f"  most recipients waiting  {sick.most_waiting:,}")
    print(f"  wall time                {sick.wall:.1f} s + {well.wall:.1f} s", flush=True)


def show_delays(label: str, delays: "array[float]") -> None:
    """Print the percentiles of some delays."""
    if delays:
        p50, p99 = percentile(delays, 50), percentile(delays, 99)
        print(f"  {label:26}  p50 {p50:9.2f} s   p99 {p99:9.2f} s   max {delays[-1]:9.2f} s")


def show_needs(label: str, places: "array[float]") -> None:
    """Print how many places some mail takes: the concurrency below which nothing helps."""
    print(
        f"  places that {label} needs: {sum(places) / len(places):.0f} on average, "
        f"{percentile(places, 50):.0f} in half of the minutes, {percentile(places, 99.5):.0f} in the busiest ones",
        flush=True,
    )


def show_memory(settings: Settings, count: int) -> None:
    """Print bytes a waiting message."""
    figures = measure(settings, count)
    print("\nmemory per waiting message  " + ", ".join(f"{name} {size:.1f} bytes" for name, size in figures.items()))


def show_on_demand(stored: Result) -> None:
    """Print the figures of the run in which the mail of dead hosts is stored on demand."""
    print("\nqueue-send, mail of dead hosts on demand")
    show_delays("healthy mail", stored.delays[HEALTHY])
    show_delays("delivered or stored", stored.delays[DEAD])
    print(f"  attempts                 {stored.attempts:,}, of them failed {stored.failures:,}")
    print(f"  most recipients waiting  {stored.most_waiting:,}")
    print(f"  wall time                {stored.wall:.1f} s", flush=True)


def judge(pair: Pair, stored: Result, bulk: BulkRun, settings: Settings) -> bool:
    """Print the goals, each with its figure; return whether all are met."""
    all_seen = pair.sick.watches.values()
    probes = sum(watch.probes for watch in all_seen)
    wasted = sum(watch.wasted for watch in all_seen) / max(1, probes)
    starts = array("d", sorted(bulk.delays))
    on_demand = percentile(stored.delays[HEALTHY], 99) / percentile(pair.well.delays[HEALTHY], 99)
    excess, over = sum(watch.excess for watch in all_seen), sum(watch.over_window for watch in all_seen)
    goals = [
        (pair.ratio <= DELAY_GOAL, f"healthy p99 within {DELAY_GOAL} x of the run without the sick: {pair.ratio:.2f}"),
        (on_demand <= DELAY_GOAL, f"the same with dead hosts on demand: {on_demand:.2f}"),
        (over == 0, f"no host sees more jobs than its window: {over} over it"),
        (wasted <= WASTE_GOAL and not excess,
         f"at most {WASTE_GOAL:g} attempt in vain per dead host and probe: {wasted:.2f}, besides probes {excess}"),
        (percentile(starts, 99) <= START_GOAL and bulk.most_bulk <= settings.lower_places,
         f"99 % of normal mail behind bulk is started within {START_GOAL:g} s: {percentile(starts, 99):.2f}; no bulk "
         f"over its {settings.lower_places} places meanwhile: {bulk.most_bulk}"),
    ]  # fmt: skip
    print("\ngoals")
    for met, text in goals:
        print(f"  {'met   ' if met else 'MISSED'}  {text}")
    return all(met for met, _ in goals)
