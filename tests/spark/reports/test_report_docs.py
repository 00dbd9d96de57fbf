"""docs/reports.md describes every report as the registry does, and shows an example with its columns."""

import pytest

from queue_report.reports import REPORTS
from support.spark.report_docs import REPORTS_MD, document, written_examples

pytestmark = pytest.mark.together

# Nothing is wrong in the example.
EMPTY = {"conservation-messages"}


def test_the_page_of_reports_is_what_the_registry_says() -> None:
    assert REPORTS_MD.read_text() == document(written_examples()), "generate it again: support/spark/report_docs.py"


@pytest.mark.parametrize("name", REPORTS)
def test_each_report_has_an_example_with_its_columns_and_a_row(name: str) -> None:
    report, lines = REPORTS[name], written_examples()[name].splitlines()
    if report.single:
        assert [line.split()[0] for line in lines] == list(report.columns)
    else:
        assert lines[0].split() == list(report.columns)
        assert (len(lines) > 1) != (name in EMPTY)
