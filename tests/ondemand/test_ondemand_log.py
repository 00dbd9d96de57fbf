"""The log lines about on-demand domains: each is one event that the log pipeline knows, whatever an address has."""

from hypothesis import given
from hypothesis import strategies as st

from queue_report.match.grammar import parse_event
from queue_wire import logline
from queue_wire.logline import LINE_MAX
from queue_wire.pipes.report import LogLine, unpack_report

D = b"customer.example"
addresses = st.one_of(st.binary(max_size=1002), st.sampled_from([b"a b@c", b"a\nalert: x", b"%\xff", b"x" * 1002]))


def lines(sender: bytes, recipient: bytes, text: bytes) -> list[bytes]:
    return [
        logline.stored_on_demand(D, "457-gk2x9w", 2310, sender, recipient),
        logline.run_started(D, b"etrn"),
        *[logline.on_demand_result(D, "457-gk2x9w", letter, recipient, text) for letter in (b"K", b"Z", b"D", b"")],
        logline.run_ended(D, 1, 2, 3),
        logline.on_demand_bounce(D, "457-gk2x9w", 8123),
        logline.on_demand_bounce(D, "457-gk2x9w", 0),
        logline.on_demand_requeue(D, "457-gk2x9w", 8124, recipient),
    ]


@given(addresses, addresses, addresses)
def test_each_line_is_one_event_that_the_log_pipeline_knows_and_queue_send_takes(
    sender: bytes, recipient: bytes, text: bytes
) -> None:
    for line in lines(sender, recipient, text):
        assert len(line) <= LINE_MAX
        event = parse_event(line)
        assert event is not None and event[0].name == "ondemand", line
        assert unpack_report(b"log\0" + line) == LogLine(line)


def test_the_lines_read_as_docs_logs_says() -> None:
    assert lines(b"a@example.org", b"b@customer.example", b"ok\n") == [
        b"ondemand customer.example stored 457-gk2x9w: bytes 2310 from <a@example.org> to b@customer.example",
        b"ondemand customer.example started: etrn",
        b"ondemand customer.example done 457-gk2x9w: to b@customer.example success: ok/",
        b"ondemand customer.example stays 457-gk2x9w: to b@customer.example deferral: ok/",
        b"ondemand customer.example done 457-gk2x9w: to b@customer.example failure: ok/",
        b"ondemand customer.example stays 457-gk2x9w: to b@customer.example deferral: ok/",
        b"ondemand customer.example ended: delivered 1 failed 2 deferred 3",
        b"ondemand customer.example bounced 457-gk2x9w: qp 8123",
        b"ondemand customer.example discarded 457-gk2x9w: triple bounce",
        b"ondemand customer.example requeued 457-gk2x9w: qp 8124 to b@customer.example",
    ]
