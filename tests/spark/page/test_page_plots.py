"""Scales and plots of queue-report's page: ticks where a person would put them, shapes where the values are."""

import re
from datetime import UTC, datetime
from xml.etree import ElementTree

from hypothesis import example, given
from hypothesis import strategies as st

from queue_report.page.plots import BOTTOM, HEIGHT, TOP, Plot, Row, Series, Stretch, bands, lines, timeline
from queue_report.page.scales import (
    MOST,
    Bins,
    count,
    delay_scale,
    duration,
    linear_scale,
    make_bins,
    number,
    plural,
    share,
    size,
    span,
    time_scale,
)

DAY = 86400
FIELD = HEIGHT - TOP - BOTTOM


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def labels(begin: str, end: str) -> list[str]:
    return [tick.label for tick in time_scale(at(begin), at(end)).ticks]


def test_time_axis_has_ticks_at_full_hours_days_mondays_months_and_years_in_utc() -> None:
    assert labels("2026-03-01 10:20", "2026-03-01 11:50") == ["10:30", "10:45", "11:00", "11:15", "11:30", "11:45"]
    assert labels("2026-03-01 22:30", "2026-03-02 04:00") == ["23:00", "2 Mar", "01:00", "02:00", "03:00", "04:00"]
    assert labels("2026-03-01", "2026-03-29 12:00") == ["2 Mar", "9 Mar", "16 Mar", "23 Mar"]
    assert labels("2025-11-15", "2026-07-15")[:4] == ["Dec 2025", "2026", "Feb 2026", "Mar 2026"]
    assert labels("2001-02-03", "2026-07-15") == ["2005", "2010", "2015", "2020", "2025"]


@given(st.floats(0, 4e9), st.floats(1, 4e9))
@example(5e-324, 1.0)
def test_time_axis_of_any_length_has_few_ticks_in_order_and_all_inside(begin: float, length: float) -> None:
    scale = time_scale(begin, begin + length)
    values = [tick.value for tick in scale.ticks]
    assert len(values) <= 14
    assert values == sorted(set(values))
    assert all(begin <= value <= begin + length for value in values)
    assert (scale.place(begin), scale.place(begin + length)) == (0, 1)


@given(st.floats(1e-6, 1e15))
def test_linear_axis_begins_at_0_and_ends_at_or_above_the_highest_value(highest: float) -> None:
    for scale in (linear_scale(highest), linear_scale(highest, size)):
        values = [tick.value for tick in scale.ticks]
        assert values[0] == 0
        assert 2 <= len(values) <= 6
        assert values[-1] >= highest * (1 - 1e-6)
        assert 0 <= scale.place(highest) <= 1


def test_axis_of_counts_has_no_halves() -> None:
    assert [tick.label for tick in linear_scale(2).ticks] == ["0", "1", "2"]
    assert [tick.label for tick in linear_scale(1900).ticks] == ["0", "500", "1k", "1.5k", "2k"]


def test_axis_of_delays_is_logarithmic_with_units_that_people_use() -> None:
    scale = delay_scale(0.02, 5000)
    assert [tick.label for tick in scale.ticks] == ["10 ms", "0.1 s", "1 s", "10 s", "1 min", "10 min", "1 h", "6 h"]
    assert scale.place(0.1) - scale.place(0.01) - (scale.place(10) - scale.place(1)) < 1e-9
    # A clock that was set back makes negative delays; they have a place too.
    assert scale.place(-3) == scale.place(0) == 0


def test_numbers_are_written_for_people() -> None:
    assert [duration(value) for value in (0, 0.00004, 0.034, 9.5, 125, 11_400, 356_400, -2)] == [
        "0 s", "< 1 ms", "0.034 s", "9.5 s", "2 min 5 s", "3 h 10 min", "4 d 3 h", "-2 s",
    ]  # fmt: skip
    assert [count(value) for value in (0, 999, 12_000, 2.5e6)] == ["0", "999", "12k", "2.5M"]
    assert [size(value) for value in (999, 1500, 2.5e9, 9.3e18)] == ["999 B", "1.5 kB", "2.5 GB", "9.3 EB"]
    assert [number(value) for value in (0, 1234, 2**63)] == ["0", "1,234", "9.223E"]
    assert (plural(1, "message"), plural(2000, "message")) == ("1 message", "2,000 messages")
    assert span(at("2026-03-01 10:00"), at("2026-03-01 11:30")) == "2026-03-01 10:00 \N{EN DASH} 11:30"
    assert [share(*pair) for pair in ((1, 3), (1, 10_000), (9_999, 10_000), (5, 5), (0, 0))] == [
        "33.3 %", "< 0.1 %", "> 99.9 %", "100.0 %", "\N{EN DASH}",
    ]  # fmt: skip


def test_bins_are_as_many_as_there_is_room_for_from_minutes_of_an_hour_to_weeks_of_a_century() -> None:
    begin = at("2026-03-01")
    for days, length in ((1 / 24, 60), (2, 900), (31, 3 * 3600), (365, 2 * DAY)):
        bins = make_bins(begin, begin + days * DAY)
        assert bins.length == length
        assert bins.start <= begin
        assert bins.end >= begin + days * DAY
    assert make_bins(0, 7e9).number <= MOST + 1
    assert make_bins(begin, begin) == Bins(int(begin), 60, 1)


def shapes(markup: str, kind: str) -> list[str]:
    root = ElementTree.fromstring(markup)
    return [path.get("d", "") for path in root.iter("path") if (path.get("class") or "").startswith(kind)]


def plot(number: int) -> Plot:
    return Plot("T", "D", Bins(0, 3600, number), str)


def test_few_bands_are_bars_with_room_between_them() -> None:
    first, second = shapes(bands(plot(2), [Series("a", [1, 2], "c1"), Series("b", [1, None], "c2")]), "area")
    half = FIELD / 2
    # The highest sum is 2, and so the axis ends at 2.
    assert first == f"M0.1 {FIELD}V{half:g}H0.9V{FIELD}ZM1.1 {FIELD}V0H1.9V{FIELD}Z"
    assert second == f"M0.1 {half:g}V0H0.9V{half:g}Z"


def test_many_bands_lie_on_each_other_as_steps_from_edge_to_edge() -> None:
    ones: list[float | None] = [1.0] * 200
    twos: list[float | None] = [2.0] * 100 + [None] * 100
    first, second = shapes(bands(plot(200), [Series("a", ones, "c1"), Series("b", twos, "c2")]), "area")
    low, high = round(FIELD * 2 / 3, 1), 0
    assert first == f"M0 {low}H200L200 {FIELD}H0Z"
    assert second == f"M0 {high}H100L100 {low}H0Z"


def test_line_breaks_at_a_gap_and_a_value_alone_is_a_dash() -> None:
    values: list[float | None] = [1, 2, None, 3, None, 4]
    (path,) = shapes(lines(plot(6), linear_scale(4), (), [Series("a", values, "c1")]), "line")
    assert len(re.findall("M", path)) == 3
    assert len(re.findall("L", path)) == 1
    assert path.count("h.4") == 2


def test_few_delays_are_points_joined_by_a_bar_and_many_are_lines() -> None:
    def drawn(known: int) -> tuple[int, list[str]]:
        values: list[float | None] = [1.0] * known + [None] * (200 - known)
        high: list[float | None] = [4.0] * known + [None] * (200 - known)
        series = [Series("max", high, "c2"), Series("p50", values, "c1")]
        made = lines(plot(200), linear_scale(4), (), series, spread=True)
        return made.count("<circle"), shapes(made, "line")

    points, paths = drawn(5)
    assert (points, len(paths)) == (10, 1)
    assert paths[0].count("V") == 5
    points, paths = drawn(150)
    assert (points, len(paths)) == (0, 2)


def test_plot_tells_its_numbers_its_title_and_its_description_without_a_script() -> None:
    root = ElementTree.fromstring(bands(plot(3), [Series("a", [1, 2, None], "c1"), Series("b", [3, None, None], "c2")]))
    field = next(svg for svg in root.iter("svg") if svg.get("class") == "field")
    assert field.get("role") == "img"
    assert [field[0].tag, field[0].text, field[1].tag, field[1].text] == ["title", "T", "desc", "D"]
    hits = next(svg for svg in root.iter("svg") if svg.get("class") == "hits")
    # A bin with nothing in it has nothing to tell.
    assert [rect[0].text for rect in hits] == [
        "1970-01-01 00:00 \N{EN DASH} 01:00\nb: 3\na: 1", "1970-01-01 01:00 \N{EN DASH} 02:00\na: 2",
    ]  # fmt: skip


def test_time_line_draws_what_reaches_over_its_ends_inside_and_what_is_short_wide_enough_to_see() -> None:
    long, late = Stretch(-500, 200, "dead", "a"), Stretch(900, 5000, "dead", "c")
    short = Stretch(400, 400.001, "slow", "b")
    root = ElementTree.fromstring(timeline("T", 0, 1000, [Row("d1", [long, short, late])]))
    found = [tuple(float(rect.get(name, "").rstrip("%")) for name in ("x", "width")) for rect in root.iter("rect")]
    assert all(x >= 0 and x + width <= 100.001 for x, width in found)
    assert min(width for _, width in found) == 0.3
    assert (90.0, 10.0) in found
