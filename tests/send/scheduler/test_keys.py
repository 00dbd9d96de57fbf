"""Finding a message among a million keys, in the heap and aside: the search by bytes finds what a plain one does."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from queue_base.limits import Limits
from queue_send.scheduler.admission import Admission
from queue_send.scheduler.destination import Destination
from queue_send.scheduler.fifo import find_number

# Numbers whose bytes occur across the border of two neighbours.
KEYS = st.one_of(
    st.integers(0, 3), st.sampled_from([1 << 8 * place for place in range(8)][:7]), st.integers(0, 2**63 - 1)
)


@given(st.lists(KEYS, max_size=30), KEYS)
def test_the_places_of_a_key_are_found_and_no_others(keys: list[int], key: int) -> None:
    assert list(find_number(array("q", keys), key)) == [place for place, one in enumerate(keys) if one == key]


@given(st.lists(st.one_of(st.integers(1, 9), st.none()), max_size=40), st.integers(0, 12))
def test_what_has_been_aside_for_longest_is_what_is_taken_next(steps: list[int | None], most: int) -> None:
    destination = Destination(b"a", Limits())
    waiting: list[int] = []
    for step in steps:
        if step is not None:
            destination.overflow.put(step, 100)
            if step not in waiting:  # One that waits keeps its place.
                waiting.append(step)
        else:
            assert destination.overflow.take() == (waiting.pop(0) if waiting else None)
        assert destination.overflow.oldest(most) == waiting[:most]
        assert all(destination.overflow.holds(key) == (key in waiting) for key in range(10))


def test_only_entries_that_count_tell_when_a_message_is_tried() -> None:
    admission = Admission()
    for due in (50, 70):
        admission.add_deferred(7, due, False)
    admission.add_deferred(8, 60, False)
    assert admission.dues_of(7, [70]) == [70]
    assert admission.dues_of(8, [70]) == []
    admission.add_due(7, 65)
    assert sorted(admission.dues_of(7, [70])) == [65, 70]
    admission.flush()
    assert max(admission.dues_of(7, [70])) < 0
