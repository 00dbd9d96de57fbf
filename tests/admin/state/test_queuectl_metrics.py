"""queuectl metrics: what a scrape has, that the dashboard and the alerts ask for nothing else, and the server."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import promql_parser
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from queue_admin import metrics
from queue_admin.metrics import exporter
from queue_admin.metrics.exporter import expose
from queue_admin.metrics.oldest_walk import Background, OldestWalk, StoredTotals, Walked
from queue_admin.metrics.reading import Reading, SharedReading, take_reading, take_shared
from queue_admin.metrics.system_facts import DiskSpace, ProcessFacts
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.admin.figure import FIGURES, Figure
from queue_wire.admin.smtpd_status import COUNTED, STATES, ProcessStatus
from support.intake.intake_daemon import IntakeDaemon
from support.processes.suite import Suite, program
from support.queues.home import make_several
from support.queues.listed_queue import BIRTH, Queue
from support.queues.queued import classified_message, store_on_demand
from support.send.scripted_send import ScriptedSend

PROMTOOL = shutil.which("promtool")
Samples = dict[tuple[str, ...], float]
LABELS = {"channel": b"remote", "state": b"active", "result": b"success", "class": b"none", "column": b"3"}


def full_reading() -> Reading:
    """A reading that has every figure and everything else."""
    figures = [
        Figure(name, 7, tuple(LABELS.get(label, b"evil\"\\\n{}.example\xff") for label in labels))
        for name, labels in FIGURES.items()
    ]
    processes = [ProcessFacts("queue-remote", pid, 60.0, 10**7, 1.5) for pid in (5, 6)]
    totals = StoredTotals()
    totals.domains, totals.recipients, totals.bytes, totals.oldest = 2, 5, 700, 4000.0
    walked = Walked(1000.0, 3, 2000.0, {"etrn": totals, "atrn": StoredTotals(), "none": StoredTotals()})
    return Reading(5000.0, figures, "", processes, DiskSpace(10, 100), True, False, walked)


def shown(is_open: bool, *names: str) -> bytes:
    """Expose a full reading of each of these queues, by default of the only one, and one queue-smtpd."""
    smtpd = ProcessStatus(9, 2, 2, 4000.0, 100, 21, dict.fromkeys(STATES, 3), dict.fromkeys(COUNTED, 7))
    intake = ProcessFacts("queue-intake", 8, 60.0, 10**7, 2.5) if names else None
    shared = SharedReading(5000.0, [smtpd], bool(names), bool(names), intake)
    return expose(dict.fromkeys(names or ("",), full_reading()), shared, "1.2", is_open)


def samples(text: str) -> Samples:
    """Return each sample by its name and the values of its labels, in the order of their names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_is_openmetrics_and_has_everything_that_a_reading_has() -> None:
    text = shown(True).decode()
    assert text.endswith("# EOF\n")
    found = samples(text)
    assert found["queue_up",] == 1
    assert found["queue_exporter_info", "1.2"] == 1
    assert found["queue_messages", "remote", "active"] == 7
    assert found["queue_deliveries_total", "remote", "none", "success"] == 7
    assert found["queue_destination_waiting", "remote", "evil\"\\\\n{}.example\\xff"] == 7
    assert found["queue_oldest_message_age_seconds",] == 4000
    assert found["queue_inflow", "slow"] == 1
    assert found["queue_stored_domains", "etrn"] == 2 and found["queue_stored_domains", "atrn"] == 0
    assert found["queue_stored_recipients", "etrn"] == 5 and found["queue_stored_bytes", "etrn"] == 700
    assert found["queue_stored_oldest_age_seconds", "etrn"] == 1000
    assert ("queue_intake_up",) not in found
    assert found["queue_process_cpu_seconds_total", "1", "queue-remote"] == 1.5
    assert found["queue_smtpd_sessions", "2", "queueing"] == 3
    assert found["queue_smtpd_refusals_total", "2", "5xx", "RCPT"] == 7
    assert found["queue_smtpd_filters_total", "2", "holds"] == 7
    # Seven recipients took less than 8 ms, and none less than 4.
    assert found["queue_delivery_seconds_bucket", "remote", "0.004"] == 0
    assert found["queue_delivery_seconds_bucket", "remote", "0.008"] == 7
    assert found["queue_delivery_seconds_bucket", "remote", "+Inf"] == 7
    assert found["queue_delivery_seconds_sum", "remote"] == 7
    assert found["queue_time_in_queue_seconds_bucket", "remote", "8"] == 7
    # Also in the older format.
    old = shown(False).decode()
    assert "\nqueue_up 1.0\n" in old
    assert "# EOF" not in old


def test_of_several_queues_each_sample_has_the_name_of_its_queue_and_queue_smtpd_is_that_of_all() -> None:
    text = shown(True, "a", "b").decode()
    assert text.count("# TYPE queue_messages gauge") == 1
    for family in text_string_to_metric_families(text):
        queues = [sample.labels.get("queue") for sample in family.samples]
        if family.name.startswith("queue_process_"):
            # That of queue-intake, which is in front of all.
            (own,) = [sample for sample in family.samples if sample.labels["program"] == "queue-intake"]
            assert own.labels.get("queue") is None
            queues.remove(None)
        common = family.name.startswith("queue_smtpd_") or family.name in ("queue_exporter", "queue_intake_up")
        assert set(queues) == ({None} if common else {"a", "b"}), family.name
        assert len({(sample.name, *sorted(sample.labels.items())) for sample in family.samples}) == len(family.samples)
    assert b'queue_up{queue="b"} 1.0\n' in shown(False, "a", "b")


def test_a_queue_whose_disk_is_not_there_is_down_and_the_others_are_shown(tmp_path: Path) -> None:
    home = make_several(tmp_path / "home", "a", "b")
    os.rename(home.queues["a"], home.queues["a"] + ".out")
    done = subprocess.run(
        [*program("queuectl"), "--home", home.path, "metrics", "--format", "openmetrics"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = samples(done.stdout)
    assert found["queue_up", "a"] == found["queue_up", "b"] == 0
    assert found["queue_unclassified_messages", "b"] == 0 and ("queue_unclassified_messages", "a") not in found
    assert found["queue_disk_free_bytes", "b"] > 0 and ("queue_disk_free_bytes", "a") not in found
    with listening(home, "metrics") as url, urllib.request.urlopen(url, timeout=60) as answer:
        assert '\nqueue_up{queue="b"} 0.0\n' in answer.read().decode()


def test_a_queue_that_hangs_keeps_no_scrape_from_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_several(tmp_path / "home", "a", "b")
    answers = threading.Event()

    def read(one: Home, walked: Walked | None) -> Reading:
        if one.name == "a":
            answers.wait(30)
        return full_reading()

    monkeypatch.setattr(exporter, "take_reading", read)
    monkeypatch.setattr(exporter, "PATIENCE", 0.2)
    scraped = exporter.Exporter(home, "1")
    found = samples(scraped.answer("/metrics", "application/openmetrics-text").body.decode())
    assert found["queue_up", "a"] == 0 and found["queue_up", "b"] == 1
    answers.set()


def test_without_queue_send_the_queue_is_down_and_the_rest_is_left_out(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "home")
    done = subprocess.run(
        [*program("queuectl"), "--home", queue.home.path, "metrics", "--format", "openmetrics"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    found = samples(done.stdout)
    assert found["queue_up",] == 0
    assert found["queue_oldest_message_age_seconds",] == 0
    assert found["queue_smtpd_processes",] == 0
    assert ("queue_turns_total",) not in found
    assert found["queue_disk_free_bytes",] > 0


def test_a_running_queue_send_is_up_and_told_of(home: Home, send: ScriptedSend) -> None:
    send.todo.classified(classified_message(home, remote=[b"a@b.example"], birth=int(time.time()) - 1000))
    send.remote.job()
    walked = OldestWalk(open_layout(home.queue)).finish_within(60)
    found = samples(expose({"": take_reading(home, walked)}, SharedReading(0.0), "1", True).decode())
    assert found["queue_up",] == 1
    assert found["queue_deliveries_in_flight", "remote"] == 1
    assert found["queue_messages", "remote", "active"] == 1
    assert 1000 <= found["queue_oldest_message_age_seconds",] < 1100
    assert found["queue_destination_in_flight", "remote", "b.example"] == 1


def found_by(queue: Queue) -> tuple[float | None, int]:
    found = OldestWalk(queue.layout).finish_within(60)
    assert found is not None
    assert abs(found.at - time.time()) < 60
    return found.oldest, found.unclassified


def test_the_walk_finds_the_oldest_and_what_is_not_classified(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "home")
    assert found_by(queue) == (None, 0)
    queue.put(queue.layout.hashed("info", queue.classified()), b"Fa@b\0", 1_600_000_000)
    queue.queued()
    held = queue.classified()
    queue.put(queue.layout.hashed("info", held), b"Fa@b\0", 1_500_000_000)
    queue.put(queue.layout.hashed("hold", held), b"why\n")
    queue.put(f"{queue.home.queue}/info/0/stray", b"", 5)
    assert found_by(queue) == (1_600_000_000, 1)
    background = Background(queue.home)
    background.start()
    try:
        end = time.monotonic() + 60
        while background.found is None and time.monotonic() < end:
            threading.Event().wait(0.01)
    finally:
        background.stop()
    assert background.found is not None
    assert background.found.oldest == 1_600_000_000
    assert BIRTH > 1_600_000_000 * 10**6


def test_the_walk_counts_what_is_stored_on_demand_by_the_method_of_its_domain(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "home")
    home = queue.home

    def stored() -> dict[str, tuple[int, int, int, bool]]:
        found = OldestWalk(queue.layout, home).finish_within(60)
        assert found is not None
        return {
            method: (each.domains, each.recipients, each.bytes, each.oldest is not None)
            for method, each in found.stored.items()
        }

    assert stored() == {}
    Path(home.control, "ondemand").write_text("a.example:etrn\nb.example:etrn\nc.example:atrn\nd.example:atrn\n")
    nothing = (0, 0, 0, False)
    assert stored() == {"etrn": nothing, "atrn": nothing, "none": nothing}
    for name in (b"a.example", b"b.example", b"c.example", b"gone.example"):
        store_on_demand(home, name, [[b"x@" + name, b"y@" + name], [b"z@" + name]], data=b"12345\n")
    assert stored() == {"etrn": (2, 6, 24, True), "atrn": (1, 3, 12, True), "none": (1, 3, 12, True)}
    # What the order of an administrator takes is left out, and what cannot be read.
    Path(home.queue, "ondemand/c.example/1.cluster").write_bytes(b"")
    assert stored()["atrn"][:2] == (0, 0)


def test_the_queue_intake_of_several_queues_is_found_by_its_socket(tmp_path: Path) -> None:
    # The path of a socket has at most 107 bytes.
    home = make_several(tmp_path / ("home" * 25), "a", "b")
    assert take_shared(home).several and take_shared(home).intake is None
    with IntakeDaemon(home) as daemon:
        assert take_shared(home).listening
        intake = take_shared(home).intake
        assert intake is not None and intake.program == "queue-intake" and intake.pid == daemon.process.pid
        assert intake.memory > 10**6
    found = samples(expose({}, take_shared(home), "1", True).decode())
    assert found["queue_intake_up",] == 0
    hidden = SharedReading(1.0, several=True, listening=True)
    assert samples(expose({}, hidden, "1", True).decode())["queue_intake_up",] == 1


def names_in(expression: str) -> set[str]:
    """Return the metrics that an expression of PromQL reads; fail if it is none."""
    filled = re.sub(r"\$__rate_interval", "5m", expression).replace("$instance", "x")
    parsed = promql_parser.parse(filled)
    return set(re.findall(r"\b(?:queue_\w+|up)\b", str(parsed)))


def test_dashboard_and_alerts_read_only_metrics_that_a_scrape_has() -> None:
    text = shown(True, "a", "b").decode()
    known = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples} | {"up"}
    rules = [rule for group in yaml.safe_load(part("alerts.yml"))["groups"] for rule in group["rules"]]
    panels = json.loads(part("grafana.json"))["panels"]
    expressions = [rule["expr"] for rule in rules] + [one["expr"] for panel in panels for one in panel["targets"]]
    assert len(expressions) > 30
    for expression in expressions:
        assert names_in(expression), expression
        assert names_in(expression) <= known, expression
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules)
    assert len({rule["alert"] for rule in rules}) == len(rules)
    assert len({panel["id"] for panel in panels}) == len(panels)
    documented = (Path(__file__).resolve().parents[3] / "docs/monitoring.md").read_text()
    families = {family.name for family in text_string_to_metric_families(text)}
    assert [name for name in sorted(families) if f"`{name}" not in documented] == []
    assert [rule["alert"] for rule in rules if f"`{rule['alert']}`" not in documented] == []


def test_the_format_is_that_which_promtool_and_node_exporter_read_unless_another_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Queue(tmp_path / "home").run("metrics") == 0
    text = capsys.readouterr().out
    assert "# EOF" not in text
    found = {family.name: family.samples for family in text_families(text)}
    assert found["queue_up"][0].value == 0


# Debian's package prometheus takes 332 MB, so CI has none.
@pytest.mark.skipif(PROMTOOL is None, reason="promtool, of the package prometheus, is not there")
def test_promtool_takes_the_rules_and_a_scrape_and_the_alerts_are_raised_when_they_should_be(tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(part("alerts.yml"))
    shutil.copy(Path(__file__).with_name("alerts_test.yml"), tmp_path)

    def promtool(*words: str, given: bytes = b"") -> None:
        done = subprocess.run([str(PROMTOOL), *words], cwd=tmp_path, input=given, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    promtool("check", "rules", "alerts.yml")
    promtool("test", "rules", "alerts_test.yml")
    promtool("check", "metrics", given=shown(False))


def test_every_alert_has_a_test_of_its_rule() -> None:
    rules = [rule["alert"] for group in yaml.safe_load(part("alerts.yml"))["groups"] for rule in group["rules"]]
    (tests,) = yaml.safe_load(Path(__file__).with_name("alerts_test.yml").read_text())["tests"]
    raised = {each["alertname"] for each in tests["alert_rule_test"] if each["exp_alerts"]}
    assert raised == set(rules)


def part(name: str) -> str:
    """Return a file of the package, as `queuectl metrics --print` does."""
    return (Path(metrics.__file__).parent / name).read_text()


@contextmanager
def listening(home: Home, *words: str) -> Iterator[str]:
    """Run a command that listens; yield its address."""
    process = subprocess.Popen(
        [*program("queuectl"), "--home", home.path, *words, "--listen", "127.0.0.1:0"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        found = re.search(r"http://\S+", process.stderr.readline())
        assert found is not None
        yield found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_a_scraper_gets_the_format_that_it_takes_also_when_queue_send_stops(home: Home) -> None:
    # Executed: a fork takes no time of the processors that the kernel would count.
    with Suite(home, executed=True), listening(home, "metrics") as url:
        request = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text;version=1.0.0"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            found = samples(answer.read().decode())
            assert found["queue_up",] == 1
            assert found["queue_process_resident_bytes", "0", "queue-send"] > 10**6
            assert found["queue_process_cpu_seconds_total", "0", "queue-remote"] > 0
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
    with listening(home, "metrics") as url, urllib.request.urlopen(url, timeout=60) as answer:
        assert "\nqueue_up 0.0\n" in answer.read().decode()


@pytest.mark.parametrize("name", ["dashboard", "alerts"])
def test_print_gives_the_file_that_is_installed(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert Queue(tmp_path / "home").run("metrics", "--print", name) == 0
    assert capsys.readouterr().out == part({"dashboard": "grafana.json", "alerts": "alerts.yml"}[name])
