"""Lines that are nearly right: the grammar takes those that the reference takes, as it reads them, and no other."""

import random

import pytest

from queue_report.match import grammar
from queue_report.match.grammar import first_word, is_line
from queue_report.match.stamps import time_of as stamp_of
from support.spark.logs.log_files import GARBAGE, lines_of
from support.spark.logs.log_reference import parse_event, time_of
from support.spark.logs.log_world import World

# The kinds of the reference that are counted under another one.
COUNTED = {"mangled": "done"}
NOISE = [*" :/@<>_0123456789abcdefgxyz-\r\t\0ä", "  ", " 0", "+1", "99999999999999999999", "> qp 1 uid 2", "success:"]


def parse(text: bytes) -> tuple[str, tuple[grammar.Value, ...]] | None:
    event = grammar.parse_event(text)
    return None if event is None else (event[0].name, event[1])


def spoil(line: str, rng: random.Random) -> str:
    """Return a line with one place changed, doubled, lost or noisy; sometimes as it is."""
    place, other = rng.randrange(len(line) + 1), rng.randrange(len(line) + 1)
    words = line.split(" ")
    word = rng.randrange(len(words))
    spoiled: list[str] = [
        line,
        line[:place] + rng.choice(NOISE) + line[place:],
        line[:place] + rng.choice(NOISE) + line[place + 1 :],
        line[:place],
        line[:place] + line[max(place, other) :],
        " ".join(words[:word] + words[word + 1 :]),
        " ".join([*words[: word + 1], words[word], *words[word + 1 :]]),
        " ".join([*words[:word], words[word] + rng.choice(NOISE), *words[word + 1 :]]),
    ]
    return rng.choice(spoiled)


def some_lines(seed: int, count: int) -> list[str]:
    """Return lines of simulated logs, most of them spoiled, each once."""
    rng = random.Random(seed)
    whole = [line[:-1].decode() for line in lines_of(World(seed).run(400).lines)] + [
        line[:-1].decode() for line in GARBAGE
    ]
    return list(dict.fromkeys(spoil(rng.choice(whole), rng) for _ in range(count)))


def compare(lines: list[str]) -> None:
    """Fail where the grammar makes another event of a line than the reference."""
    for line in lines:
        data = line.encode()
        time_ns = time_of(data)
        assert stamp_of(data) == time_ns, line
        event = None if time_ns is None else parse_event(line[26:])
        found = None if time_ns is None else parse(data[26:])
        assert is_line(data) == (event is not None), line
        if event is None:
            assert found is None, line
            continue
        assert found is not None, line
        (kind, values), (found_kind, found_values) = event, found
        assert found_kind.replace("warning", "alert") == COUNTED.get(kind, kind), line
        if kind not in ("dest", "inflow", "alert", "config", "start"):
            assert list(found_values) == [value.encode() if isinstance(value, str) else value for value in values], line
        elif kind == "start":
            assert list(found_values) == [*values[:2], f"{values[2]} {values[3]}".encode()], line


def test_lines_that_are_nearly_right_are_read_or_refused_as_the_grammar_says() -> None:
    compare(some_lines(1, 4000))


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_lines_that_are_nearly_right(seed: int) -> None:
    compare(some_lines(seed, 20_000))


def test_a_number_of_very_many_digits_is_none() -> None:
    assert parse(b"end msg " + b"9" * 100_000) is None
    assert parse(b"end msg " + b"0" * 100_000 + b"7") == ("end", (7,))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"session 5: begins", "session"),
        (b"ondemand: x", "ondemand:"),
        (b"end nothing", None),  # Some kind of line has this word.
        (b"Nov 20", None),
        (b"\xffx y", None),
        (b"x" * 40, None),
        (b"", None),
    ],
)
def test_a_first_word_that_no_kind_has_is_told(text: bytes, word: str | None) -> None:
    assert first_word(text) == word


def test_a_change_of_a_control_file_is_an_event_also_where_another_daemon_says_so() -> None:
    assert parse(b"config concurrencyremote 40, was default") == (
        "config", (b"concurrencyremote 40, was default",)
    )  # fmt: skip
    assert parse(b"queue-remote: config tlspolicy 1 line, changed") == (
        "config", (b"queue-remote: ", b"tlspolicy 1 line, changed")
    )  # fmt: skip
