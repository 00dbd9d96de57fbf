"""Readings as families of metrics. Pure. docs/monitoring.md has a table of them.

Where there are several queues, what is known of each has the label `queue`; queue-smtpd and queue-intake are those of
all.

Their number is bounded: the only labels with names from outside are the nexthops of the few destinations that
queue-send names.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from queue_admin.metrics.oldest_walk import StoredTotals
from queue_admin.metrics.reading import Reading, SharedReading
from queue_admin.metrics.system_facts import ProcessFacts
from queue_admin.printable import visible
from queue_wire.admin.figure import COLUMNS, FIGURES, Figure
from queue_wire.admin.smtpd_status import ENDS, STATES, VERBS, VERDICTS, ProcessStatus

# Figures that are gauges: the name of the metric, and what it is.
GAUGES = {
    b"started": ("queue_start_time_seconds", "When queue-send started, in seconds since the epoch"),
    b"read": ("queue_backlog_read", "1 if queue-send has read its backlog"),
    b"messages": ("queue_messages", "Messages of a channel: active, new, on-disk (no room), deferred"),
    b"marked": ("queue_messages_marked", "Messages: held, corrupt, announced, bouncing, removing"),
    b"removal-wait": ("queue_removal_wait_seconds", "Time that the oldest finished message has waited for its removal"),
    b"running": ("queue_deliveries_in_flight", "Recipients in delivery"),
    b"running-limit": ("queue_deliveries_limit", "The most recipients in delivery at once"),
    b"active-limit": ("queue_active_limit", "The most active messages"),
    b"destinations": ("queue_destinations", "Destinations in memory"),
    b"dead": ("queue_destinations_dead", "Dead destinations"),
    b"suspended": ("queue_destination_suspended_recipients", "Recipients deferred since it is dead, of the worst ones"),
    b"window": ("queue_destination_window", "The present limit of jobs, of those and the busiest destinations"),
    b"in-flight": ("queue_destination_in_flight", "Jobs in flight, of these"),
    b"waiting": ("queue_destination_waiting", "Messages that wait for room, of these"),
    b"turn-worst": ("queue_turn_worst_seconds", "The longest turn of the loop since the start"),
    b"turn-recent": ("queue_turn_recent_worst_seconds", "The longest turn of the last minute or two"),
    b"disk-work-worst": ("queue_disk_work_worst_seconds", "The longest of these since the start"),
    b"log-unwritten": ("queue_log_unwritten_bytes", "Log lines that the logger has not taken"),
}
COUNTERS = {
    b"arrived": ("queue_messages_arrived", "New messages"),
    b"ended": ("queue_messages_ended", "Messages that have ended"),
    b"results": ("queue_deliveries", "Recipients by the result of their delivery, and the subject of its status code"),
    b"turns": ("queue_turns", "Turns of queue-send's loop"),
    b"turn-seconds": ("queue_turn_seconds", "The work of all turns"),
    b"disk-work": ("queue_disk_work", "Pieces of work of the disk thread: commits, results that are kept"),
    b"disk-work-seconds": ("queue_disk_work_seconds", "The time that this took"),
    b"syncs": ("queue_syncs", "Commits of queue-send, each of which syncs one or more files"),
    b"sync-seconds": ("queue_sync_seconds", "The time that these took"),
}
# With the seconds of one unit of the columns.
HISTOGRAMS = {
    b"delivery": ("queue_delivery_seconds", "Time from the start of a delivery to its report, by recipient", 0.001),
    b"age": ("queue_time_in_queue_seconds", "Time from the birth of a message to the success of a recipient", 1.0),
    b"wait": ("queue_todo_wait_seconds", "Time from the birth of a message until queue-send knows it", 0.001),
}


class ReadingCollector(Collector):
    """Collects the families of a reading of each queue, by the names of the queues: that of the only one is empty."""

    def __init__(self, readings: Mapping[str, Reading], shared: SharedReading, version: str) -> None:
        self._readings = readings
        self._shared = shared
        self._version = version

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        found: dict[str, Metric] = {}
        for name, reading in self._readings.items():
            for family in self._of_queue(reading):
                if name:
                    family.samples = [one._replace(labels={"queue": name, **one.labels}) for one in family.samples]
                # The samples of a family stand together.
                if family.name in found:
                    found[family.name].samples += family.samples
                else:
                    found[family.name] = family
        shared = self._shared
        if shared.intake is not None:
            for family in _of_processes([shared.intake], shared.at):
                found.setdefault(family.name, family)
                if found[family.name] is not family:
                    found[family.name].samples += family.samples
        yield from found.values()
        if shared.several:
            text = "1 if the queue-intake in front of several queues listens"
            yield _gauge("queue_intake_up", text, int(shared.listening))
        yield InfoMetricFamily("queue_exporter", "The program that answers", {"version": self._version})
        if shared.smtpd is not None:
            yield from _of_smtpd(shared.smtpd)

    def _of_queue(self, reading: Reading) -> Iterator[Metric]:
        yield _gauge("queue_up", "1 if queue-send answers", 1 if reading.figures else 0)
        yield from _of_machine(reading)
        if not reading.figures:
            return
        by_name: dict[bytes, list[Figure]] = {}
        for figure in reading.figures:
            by_name.setdefault(figure.name, []).append(figure)
        for key, (name, text) in GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=FIGURES[key])
            for figure in by_name.get(key, ()):
                gauge.add_metric(_labels(figure), figure.number)
            yield gauge
        for key, (name, text) in COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=FIGURES[key])
            for figure in by_name.get(key, ()):
                counter.add_metric(_labels(figure), figure.number)
            yield counter
        for key, (name, text, unit) in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(name, text, labels=FIGURES[key][:-1])
            for sums in by_name.get(key + b"-seconds", ()):
                columns = [each for each in by_name.get(key, ()) if each.labels[:-1] == sums.labels]
                histogram.add_metric(_labels(sums), _buckets(columns, unit), sums.number)
            yield histogram


def _labels(figure: Figure) -> list[str]:
    return [visible(label) for label in figure.labels]


def _buckets(columns: list[Figure], unit: float) -> list[tuple[str, float]]:
    """Return (upper end, number of values up to it) of each bucket."""
    counts = {int(each.labels[-1]): each.number for each in columns}
    found, total = [], 0.0
    for column in range(COLUMNS):
        total += counts.get(column, 0)
        found.append(("+Inf" if column == COLUMNS - 1 else f"{unit * 2**column:g}", total))
    return found


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _of_machine(reading: Reading) -> Iterator[Metric]:
    """Yield what is known without queue-send."""
    if not reading.only_counts:
        yield _inflow(reading)
    if reading.disk is not None:
        yield _gauge("queue_disk_free_bytes", "Free space of the queue's disk", reading.disk.free)
        yield _gauge("queue_disk_bytes", "All space of the queue's disk", reading.disk.total)
    if reading.walked is not None:
        walked = reading.walked
        age = 0.0 if walked.oldest is None else max(0.0, reading.at - walked.oldest)
        text = "Age of the oldest message that is neither on hold nor parked, by the last walk"
        yield _gauge("queue_oldest_message_age_seconds", text, age)
        yield _gauge("queue_unclassified_messages", "Messages in todo/, by the last walk", walked.unclassified)
        yield _gauge("queue_walk_timestamp_seconds", "When the last walk over the queue ended", walked.at)
        yield from _of_stored(walked.stored, reading.at)
    yield from _of_processes(reading.processes, reading.at)


def _inflow(reading: Reading) -> Metric:
    inflow = GaugeMetricFamily("queue_inflow", "1 if injectors wait, are refused", labels=["state"])
    inflow.add_metric(["slow"], int(reading.slow))
    inflow.add_metric(["refused"], int(reading.refused))
    return inflow


def _of_stored(stored: Mapping[str, StoredTotals], at: float) -> Iterator[Metric]:
    """Yield what is stored on demand, by the method of its domains. There may be very many domains."""
    labels = ["method"]
    domains = GaugeMetricFamily("queue_stored_domains", "Domains with mail stored on demand", labels=labels)
    recipients = GaugeMetricFamily("queue_stored_recipients", "Recipients of this mail", labels=labels)
    size = GaugeMetricFamily("queue_stored_bytes", "Bytes of its messages", labels=labels)
    oldest = GaugeMetricFamily("queue_stored_oldest_age_seconds", "Age of the oldest of them", labels=labels)
    for method, totals in stored.items():
        domains.add_metric([method], totals.domains)
        recipients.add_metric([method], totals.recipients)
        size.add_metric([method], totals.bytes)
        oldest.add_metric([method], 0.0 if totals.oldest is None else max(0.0, at - totals.oldest))
    yield from (domains, recipients, size, oldest)


def _of_processes(processes: Sequence[ProcessFacts], at: float) -> Iterator[Metric]:
    labels = ["program", "number"]
    memory = GaugeMetricFamily("queue_process_resident_bytes", "Resident memory of a daemon", labels=labels)
    cpu = CounterMetricFamily("queue_process_cpu_seconds", "CPU time of a daemon", labels=labels)
    begun = GaugeMetricFamily("queue_process_start_time_seconds", "When a daemon started", labels=labels)
    numbers: Counter[str] = Counter()
    for process in processes:
        names = [process.program, str(numbers[process.program])]
        numbers[process.program] += 1
        memory.add_metric(names, process.memory)
        cpu.add_metric(names, process.cpu)
        begun.add_metric(names, at - process.age)
    yield from (memory, cpu, begun)


# Counters of queue-smtpd without further labels: the name of the metric, and what it is.
_SMTPD = {
    "connections": ("queue_smtpd_connections", "Connections"),
    "messages": ("queue_smtpd_messages", "Messages that were queued"),
    "recipients": ("queue_smtpd_recipients", "Their recipients"),
    "bytes": ("queue_smtpd_bytes", "Their bytes"),
    "discarded": ("queue_smtpd_messages_discarded", "Messages that filters discarded"),
    "dropped": ("queue_smtpd_transactions_dropped", "Transactions that ended without a message"),
}


def _of_smtpd(smtpd: Sequence[ProcessStatus]) -> Iterator[Metric]:
    """Yield what queue-smtpd counts, by the place of its processes, which stays when one is started again."""
    yield _gauge("queue_smtpd_processes", "Processes of queue-smtpd that answer", len(smtpd))
    if not smtpd:
        return
    begun = GaugeMetricFamily("queue_smtpd_start_time_seconds", "When it started", labels=["process"])
    limit = GaugeMetricFamily("queue_smtpd_connections_limit", "The most connections", labels=["process"])
    now = GaugeMetricFamily("queue_smtpd_sessions", "Connections now, by what they do", labels=["process", "state"])
    counters = {
        key: CounterMetricFamily(name, text, labels=["process"]) for key, (name, text) in _SMTPD.items()
    }
    refused = CounterMetricFamily(
        "queue_smtpd_refusals", "Refusals by command and first digit of the reply", labels=["process", "verb", "reply"]
    )
    tls = CounterMetricFamily("queue_smtpd_tls", "TLS handshakes", labels=["process", "result"])
    auth = CounterMetricFamily("queue_smtpd_auth", "AUTH commands", labels=["process", "result"])
    ended = CounterMetricFamily("queue_smtpd_sessions_ended", "Sessions by their end", labels=["process", "end"])
    filters = CounterMetricFamily("queue_smtpd_filters", "What filters have said", labels=["process", "verdict"])
    # Of two services, or while one replaces another, two have the same place.
    for place, process in {str(each.place): each for each in smtpd}.items():
        counted = process.counters.get
        begun.add_metric([place], process.started)
        limit.add_metric([place], process.limit)
        for state in STATES:
            now.add_metric([place, state], process.states.get(state, 0))
        for key, family in counters.items():
            family.add_metric([place], counted(key, 0))
        for verb in VERBS:
            for digit in "45":
                refused.add_metric([place, verb.replace(" ", "-"), f"{digit}xx"], counted(f"refused-{verb}-{digit}", 0))
        for family, key in ((tls, "tls"), (auth, "auth")):
            family.add_metric([place, "ok"], counted(key, 0))
            family.add_metric([place, "failed"], counted(f"{key}-failed", 0))
        for end in ENDS:
            ended.add_metric([place, end.replace(" ", "-")], counted(f"end-{end}", 0))
        for verdict in VERDICTS:
            filters.add_metric([place, verdict], counted(f"filter-{verdict}", 0))
    yield from (begun, limit, now, *counters.values(), refused, tls, auth, ended, filters)
