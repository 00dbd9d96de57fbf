"""The table of a message's life in queue-send: it is complete, its page shows it, and no walk leaves it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.home import Home
from queue_send.messages.records import LIFE_MAX, MessageRecords
from queue_send.messages.transitions import TRANSITIONS, MessageAction, MessageEvent, MessageState
from support.queues.queued import classified_message
from support.send.control import long_id, order
from support.send.life_page import BEGIN, PAGE, made
from support.send.loop import Loop
from support.send.scripted_send import ScriptedSend


def test_the_table_has_each_event_in_each_state() -> None:
    assert set(TRANSITIONS) == set(MessageState)
    assert all(set(row) == set(MessageEvent) for row in TRANSITIONS.values())


def test_the_page_shows_the_table() -> None:
    assert PAGE.read_text().partition(BEGIN)[2].strip() == made().strip()


def test_each_action_follows_from_an_event() -> None:
    moves = [move for row in TRANSITIONS.values() for move in row.values() if move is not None]
    assert {action for _, actions in moves for action in actions} == set(MessageAction)


def test_each_action_can_be_carried_out(home: Home) -> None:
    loop = Loop(home)
    assert set(loop.messages._actions) == set(MessageAction)
    loop.close()


def test_from_each_state_a_message_may_end() -> None:
    reached = {MessageState.REMOVING}
    for _ in MessageState:
        reached |= {
            state
            for state, row in TRANSITIONS.items()
            if any(move is not None and move[0] in reached for move in row.values())
        }
    assert reached == set(MessageState)


@given(st.data())
def test_a_record_has_the_last_states_in_their_order_and_a_message_that_waits_has_none(data: st.DataObject) -> None:
    records = MessageRecords()
    for _ in range(20):
        state = records.state(1)
        events = [event for event, move in TRANSITIONS[state].items() if move is not None]
        event = data.draw(st.sampled_from(events))
        records.step(event, 1)
        record, new = records.get(1), records.state(1)
        assert all(count == (marked is new) for marked, count in records.marked.items())
        if record is None:
            assert new is MessageState.WAITING
            continue
        life = record.life
        assert life[-1][0] is new and len(life) <= LIFE_MAX
        assert all(before[0] is not after[0] and before[2] <= after[2] for before, after in pairwise(life))
        assert new is state or life[-1][1] is event


def test_a_step_that_the_table_rules_out_is_an_error() -> None:
    with pytest.raises(AssertionError, match="FREE in WAITING"):
        MessageRecords().step(MessageEvent.FREE, 1)


def test_queuectl_shows_the_last_states_of_a_message_with_what_led_to_them(home: Home) -> None:
    message = classified_message(home, remote=[b"b@c.example"])
    with ScriptedSend(home) as send:
        send.fence()
        name = long_id(home, message)
        order(home, "hold", "--reason", "why", name)
        shown = [line for line in order(home, "show", name).splitlines() if line.startswith("life: ")]
    (line,) = shown
    assert line.endswith("Z held: it has a mark in hold/ by an order of the administrator")
