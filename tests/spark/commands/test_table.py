"""Tables on a terminal: no line is wider than it may be, what is left out is named, and numbers stand to the right."""

import io
import sys
from collections import namedtuple
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_report.commands.forms import FORMATS, print_result, terminal_width
from queue_report.commands.table import cells, cut, format_single, format_table, pad

Result = namedtuple("Result", ["names", "kinds", "rows"])

REASON = "Connected to 192.0.2.25 but connection died. (#4.4.2)/ and the rest of a long reason that never ends"


def lines(names: str, kinds: str, *rows: Sequence[object], width: int | None, spaced: str = "") -> list[str]:
    return list(format_table(names.split(), kinds.split(), rows, width=width, spaced=spaced.split()))


def test_a_table_that_fits_is_the_same_with_and_without_a_width() -> None:
    row = (9007199254740993, datetime(2023, 11, 14, 22, 13, 20, 1), Decimal("-0.5"), None, date(2026, 1, 2))
    table = ("n at s why day", "bigint timestamp decimal text date")
    assert (
        lines(*table, row, width=80)
        == lines(*table, row, width=None)
        == [
            "               n  at                                   s  why  day",
            "9007199254740993  2023-11-14T22:13:20.000001Z  -0.500000  -    2026-01-02",
        ]
    )


def test_times_and_decimals_are_shortened_before_anything_is_cut() -> None:
    row = (datetime(2023, 11, 14, 22, 13, 20, 1), Decimal("1.234567"), "example.org")
    assert lines("at s domain", "timestamp decimal text", row, width=45) == [
        "at                        s  domain",
        "2023-11-14T22:13:20Z  1.235  example.org",
    ]


def test_long_texts_share_the_room_that_is_left() -> None:
    assert lines("n reason domain", "bigint text text", (7, REASON, "d.example"), width=60, spaced="reason") == [
        "n  reason                                          domain",
        "7  Connected to 192.0.2.25 but connection died. …  d.example",
    ]


def test_the_least_important_columns_are_left_out_and_named() -> None:
    shown = lines(
        "del xdelay code class reason example", "bigint decimal text text text text",
        (3, Decimal(180), "4.4.1", "network", REASON, REASON), (2, Decimal(4), "4.7.1", "rate", "x", "x"),
        width=80, spaced="reason example",
    )  # fmt: skip
    assert shown == [
        "del   xdelay  code   class    reason",
        "  3  180.000  4.4.1  network  Connected to 192.0.2.25 but connection died. (#4.…",
        "  2    4.000  4.7.1  rate     x",
        "(1 column does not fit, --wide shows all: example)",
    ]


def test_a_host_that_is_the_same_in_all_rows_goes_before_numbers() -> None:
    rows = [("mx1", "q", domain, 100, 200) for domain in ("a.example", "b.example")]
    assert lines("host queue domain messages recipients", "text text text bigint bigint", *rows, width=40)[-1] == (
        "(1 column does not fit, --wide shows al…"
    )
    assert lines("host queue domain messages recipients", "text text text bigint bigint", *rows, width=40)[0] == (
        "queue  domain     messages  recipients"
    )


def test_all_columns_are_shown_as_they_are_without_a_width() -> None:
    row = (REASON * 3, "a\x1b[31m", 1)
    assert lines("reason x n", "text text bigint", row, width=None)[1] == f"{REASON * 3}  a\\x1b[31m  1"


def test_what_a_terminal_would_obey_is_shown_as_text() -> None:
    assert lines("x", "text", ("a\x1b[31m\u202eb\udcff",), width=80)[1] == "a\\x1b[31m\\u202eb\\udcff"


def test_a_later_value_that_is_wider_is_cut_and_the_columns_stay() -> None:
    rows = [("a", 1)] * 1000 + [("b" * 200, 10**9)]
    assert lines("domain n", "text bigint", *rows, width=80)[-1] == "bbbbb…  …"
    assert lines("domain n", "text bigint", *rows, width=None)[-1] == f"{'b' * 200}  1000000000"


def test_a_single_row_is_a_line_a_column_and_is_cut_too() -> None:
    row = (12, REASON)
    assert list(format_single(["n", "reason"], ["bigint", "text"], [row], width=30)) == [
        "n       12",
        "reason  Connected to 192.0.2.…",
    ]


def test_wide_characters_take_two_cells_and_combining_ones_none() -> None:
    assert (cells("日本"), cells("e\u0301"), cells("ü"), cells("a")) == (4, 1, 1, 1)
    assert (cut("日本語", 4), cut("日本語", 5), pad("日本", 6) + "|") == ("日…", "日本…", "日本  |")
    assert lines("domain n", "text bigint", ("日本.example", 1), ("ascii.example", 2), width=80) == [
        "domain         n",
        "日本.example   1",
        "ascii.example  2",
    ]


TEXTS = st.text("ab _.日\u0301\x1b\udcff…", max_size=60)
KINDS = {
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "decimal": st.integers(-(10**18), 10**18).map(lambda digits: Decimal(digits).scaleb(-9)),
    "text": TEXTS,
    "timestamp": st.datetimes(min_value=datetime(1678, 1, 1)),
}


@given(st.data(), st.integers(20, 120), st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=9))
def test_no_line_is_wider_than_it_may_be_whatever_is_in_it(data: st.DataObject, width: int, kinds: list[str]) -> None:
    names = [f"column{number}" for number in range(len(kinds))]
    cell = [st.none() | KINDS[kind] for kind in kinds]
    rows = data.draw(st.lists(st.tuples(*cell), max_size=4))
    for line in format_table(names, kinds, rows, width=width, spaced=names[:1]):
        assert cells(line) <= width


@pytest.mark.parametrize("form", FORMATS)
def test_no_rows_are_a_heading_or_an_empty_array(form: str) -> None:
    out = io.StringIO()
    print_result(Result(("n", "at"), ("bigint", "timestamp"), iter(())), form, out, width=80)
    assert out.getvalue() == {"table": "n  at\n", "csv": "n,at\n", "json": "[]\n"}[form]


def test_csv_and_json_are_exact() -> None:
    row = (9007199254740993, datetime(2023, 11, 14, 22, 13, 20, 1), Decimal("1234567890123456789.000000001"), 'a_b,"c"',
           date(2026, 1, 2), True, None)  # fmt: skip
    kinds = ("bigint", "timestamp", "decimal", "text", "date", "boolean", "text")
    out = {}
    for form in ("csv", "json"):
        out[form] = io.StringIO()
        print_result(Result(tuple("abcdefg"), kinds, iter([row])), form, out[form])
    assert out["csv"].getvalue() == (
        "a,b,c,d,e,f,g\n"
        '9007199254740993,2023-11-14T22:13:20.000001Z,1234567890123456789.000000001,"a_b,""c""",2026-01-02,True,\n'
    )
    assert out["json"].getvalue() == (
        '[\n{"a": 9007199254740993, "b": "2023-11-14T22:13:20.000001Z", "c": 1234567890123456789.000000001, '
        '"d": "a_b,\\"c\\"", "e": "2026-01-02", "f": true, "g": null}\n]\n'
    )


def test_the_width_is_the_terminal_s_own_80_where_nobody_knows_and_none_off_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert terminal_width(wide=False) is None and terminal_width(wide=True) is None
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    assert terminal_width(wide=False) == 100
    assert terminal_width(wide=True) == sys.maxsize


@pytest.mark.parametrize(("width", "text"), [(None, "a\x1b[2J"), (80, "a\\x1b[2J")])
def test_csv_is_exact_but_on_a_terminal(width: int | None, text: str) -> None:
    out = io.StringIO()
    print_result(Result(("x", "n"), ("text", "bigint"), iter([("a\x1b[2J", 1)])), "csv", out, width=width)
    assert out.getvalue() == f"x,n\n{text},1\n"
