"""The statistics that bench/run shows, and its plots."""

import xml.etree.ElementTree as ElementTree

import pytest

from side_by_side.figures import (
    OURS,
    THEIRS,
    Figure,
    Summary,
    count_at,
    percentile,
    rates,
    ratios,
    shorten,
    summarize,
    table,
)
from side_by_side.plot import svg_plot, text_plot


def test_a_summary_has_the_middle_the_least_and_the_greatest_value() -> None:
    assert summarize([3.0, 1.0, 2.0]) == Summary(2.0, 1.0, 3.0)
    assert summarize([4.0, 1.0]).median == 2.5


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.01, 1), (0.5, 50), (0.99, 99), (0.991, 100), (1.0, 100)])
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(share: float, value: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], share) == value


def test_a_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 0.99) == 7.0


def test_ratios_are_those_of_the_rounds_and_not_of_the_medians() -> None:
    # The second round was slow for both: the machine did something else.
    assert ratios([40.0, 4.0, 44.0], [10.0, 1.0, 10.0]) == Summary(4.0, 4.0, 4.4)


def test_there_is_no_ratio_to_nothing() -> None:
    assert ratios([1.0], [0.0]) is None
    assert ratios([1.0, 6.0], [0.0, 2.0]) == Summary(3.0, 3.0, 3.0)


def test_rates_come_from_the_growth_of_a_count_between_its_samples() -> None:
    times, counts = [0.0, 1.0, 3.0], [0, 100, 100]
    assert rates(times, counts, 0.0, 2.0, 0.5) == pytest.approx([100.0, 100.0, 0.0, 0.0])


def test_a_count_is_that_of_the_ends_before_the_first_sample_and_after_the_last() -> None:
    assert count_at([1.0, 2.0], [5, 9], 0.0) == 5
    assert count_at([1.0, 2.0], [5, 9], 1.5) == 7
    assert count_at([1.0, 2.0], [5, 9], 7.0) == 9
    assert count_at([], [], 1.0) == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12345.6, "12,346"),
        (123.4, "123"),
        (12.345, "12.3"),
        (1.2345, "1.23"),
        (0.1234, "0.123"),
        (-2.5, "-2.50"),
    ],
)
def test_numbers_are_shown_with_three_digits(value: float, text: str) -> None:
    assert shorten(value) == text


def test_the_table_has_a_line_for_each_figure_that_somebody_has() -> None:
    figures = [Figure("rate", "a second", True), Figure("flushes", "a message"), Figure("syncs", "a message")]
    values = {OURS: {"rate": [4.0, 5.0], "syncs": [1.0]}, THEIRS: {"rate": [2.0, 2.0], "syncs": [0.0]}}
    head, rate, syncs = table(figures, values)
    assert head.split() == [OURS, THEIRS, "ratio", "better", "is"]
    assert " ".join(rate.split()) == "rate, a second 4.50 (4.00 to 5.00) 2.00 2.25 (2.00 to 2.50) more"
    assert " ".join(syncs.split()) == "syncs, a message 1.00 0 - less"


def test_a_plot_as_text_has_a_bar_for_each_value_until_they_are_too_many() -> None:
    assert text_plot([0.0, 50.0, 100.0], 100.0) == " ▄█"
    assert text_plot([0.0, 100.0] * 100, 100.0, width=100) == "▄" * 100
    assert text_plot([], 100.0) == text_plot([1.0], 0.0) == ""


def test_a_plot_as_svg_is_xml_with_a_line_for_each_series_and_each_mark() -> None:
    text = svg_plot("a < b", 0.1, {OURS: [1.0, 2.0], THEIRS: [3.0]}, {OURS: [0.0, 0.1]})
    root = ElementTree.fromstring(text)
    name = "{http://www.w3.org/2000/svg}"
    assert [len(line.attrib["points"].split()) for line in root.iter(f"{name}polyline")] == [2, 1]
    assert sum("stroke-dasharray" in line.attrib for line in root.iter(f"{name}path")) == 2
    assert "a < b" in [each.text for each in root.iter(f"{name}text")]


def test_a_plot_of_nothing_is_still_a_plot() -> None:
    assert ElementTree.fromstring(svg_plot("nothing", 0.1, {OURS: []}, {}))
