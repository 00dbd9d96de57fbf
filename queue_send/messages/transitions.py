"""The life of a message in queue-send, as a table: for each state and event the next state, and the actions.

A message is WAITING unless there is a record of it (records.py): only its number is in memory, and the schedulers know
whether recipients of it are queued or in flight. Messages (life_cycle.py) takes the events and carries out the actions.
docs/design/life-of-a-message.md has this table with a drawing; tests/support/send/life_page.py makes it.

Pure. A step that the table rules out is an error of queue-send.
"""

from enum import Enum


class MessageState(Enum):
    """The states. The value is the text for people."""

    WAITING = "waits for a delivery, or is in one"
    ANNOUNCED = "is delivered from queue-todo's notice, while it is still in todo/"
    CLASSIFYING = "waits for queue-todo to make its files; deliveries go on"
    HELD = "has a mark in hold/: nothing of it is started"
    PARKED = "has a mark in corrupt/: a file of it is malformed"
    RETURNING = "fails by an order: recipients of it are being failed"
    BOUNCING = "has no recipient left, and its bounce is not queued yet"
    ENDING = "is finished, and something of it is still being written"
    REMOVING = "has ended, and queue-clean removes its files"
    LOST = "has left todo/ while deliveries of it were in flight"

    # Enum's own hash is slow, and each step looks up two tables.
    __hash__ = object.__hash__


class MessageEvent(Enum):
    """The events. The value is the text for people: the reason for which a message is in a state."""

    ARRIVED = "queue-todo has classified it, or it was found on the disk"
    ANNOUNCED = "queue-todo has announced it"
    DEFERRED = "recipients of it are deferred"
    FAILED = "recipients of it have failed"
    WANTED = "its files are needed for an order, a mark, or after an error of the disk"
    OVERDUE = "its deliveries did not start, or did not end, within classifyafter seconds"
    UNMARKED = "a DONE mark of it could not be written"
    EXITING = "queue-send exits"
    CLASSIFIED = "queue-todo has made its files"
    GONE = "queue-todo has not found it in todo/ any more"
    MARKED = "queue-todo has found its mark in hold/"
    ORDERED = "it has a mark in hold/ by an order of the administrator"
    RELEASED = "its marks are removed"
    RELEASED_EARLY = "its marks are removed, and it is still in todo/"
    CORRUPT = "a file of it is malformed"
    WITHDRAWN = "nothing of it is in flight on a channel any more"
    CHANNEL_DONE = "no recipient of it is left on a channel"
    NONE_LEFT = "no recipient of it is left"
    BOUNCE = "it has failures"
    CANCELLED = "its bounce is cancelled, because it is to be deleted"
    BOUNCED = "its bounce is queued, or it needs none"
    RETURN = "the order to bounce it is carried out"
    RETURNED = "the recipients that were to be bounced have failed"
    NOT_RETURNED = "the order to bounce it could not be carried out"
    END = "nothing is left to do for it"
    WRITTEN = "something of it was written"
    FREE = "nothing of it is being written"
    REMOVED = "queue-clean has removed its files, or deliveries of it have ended"

    __hash__ = object.__hash__


class MessageAction(Enum):
    """What Messages does. The value is the text for people."""

    START = "add it to the schedulers of its channels"
    TRY_AGAIN = "have the channel try it again"
    TELL = "do what has waited for its files"
    STOP = "remove it from the schedulers"
    CARRY_OUT = "carry out the order of its mark, when nothing of it is in flight"
    PARK = "log the fault, and make its mark in corrupt/"
    FINISH_CHANNEL = "remove the channel's file; NONE_LEFT follows if the other channel is done"
    FINISH = "look for failures; BOUNCE or END follows"
    BOUNCE = "compose its bounce, and have it injected"
    RETURN = "fail its recipients"
    END_RETURN = "remove the order from its mark, and try the other recipients as before"
    SETTLE = "give up what is kept of it; FREE follows, or CLASSIFIED or WRITTEN first"
    REMOVE = "log `end msg`, and have queue-clean remove its files"
    LOSE = "log `end msg`, and withdraw it"
    LET_GO = "if nothing of it is in flight, REMOVED follows, or its removal if it was deleted"
    TAKE_KEPT = "take the notices that were kept for its number"

    __hash__ = object.__hash__


Actions = tuple[MessageAction, ...]
Row = dict[MessageEvent, tuple[MessageState, Actions] | None]

# Short names, so that a rule is one line.
S, E, A = MessageState, MessageEvent, MessageAction
W, N, C, H, P, R, B = S.WAITING, S.ANNOUNCED, S.CLASSIFYING, S.HELD, S.PARKED, S.RETURNING, S.BOUNCING
# A message in these states has a mark in hold/ or corrupt/.
MARKED = frozenset((H, P, R))
# Nothing of a message in these states is loaded.
NOT_TRIED = frozenset((H, P, R, B, S.ENDING, S.REMOVING, S.LOST))
# queue-todo is asked to classify an announced message, because of one of these.
_ASKING = (E.DEFERRED, E.FAILED, E.WANTED, E.OVERDUE, E.UNMARKED, E.EXITING)

# Event, states, the next state (None: the same one), actions. Whatever is not named here changes nothing. An announced
# message has its envelope in memory, and no failure is recorded of it: if no recipient is left, it ends.
_RULES: list[tuple[MessageEvent, tuple[MessageState, ...], MessageState | None, Actions]] = [
    (E.ARRIVED, (W,), None, (A.START,)),
    (E.ARRIVED, (H,), None, (A.CARRY_OUT,)),
    (E.ANNOUNCED, (W,), N, (A.START,)),
    (E.ANNOUNCED, (H, P), None, (A.CARRY_OUT,)),
    *((event, (N, C), C, ()) for event in _ASKING),
    (E.CLASSIFIED, (C,), W, (A.TELL,)),
    (E.CLASSIFIED, (H, P), None, (A.TELL, A.CARRY_OUT)),
    (E.CLASSIFIED, (S.ENDING,), None, (A.SETTLE, A.TELL)),
    (E.GONE, (C, H, P, S.ENDING), S.LOST, (A.TELL, A.LOSE)),
    (E.MARKED, (W,), H, ()),
    (E.MARKED, (N, C), H, (A.CARRY_OUT,)),
    (E.ORDERED, (W, N, C, H), H, (A.STOP, A.CARRY_OUT)),
    (E.ORDERED, (P,), None, (A.STOP, A.CARRY_OUT)),
    (E.ORDERED, (R, B), None, (A.CARRY_OUT,)),
    (E.RELEASED, (H, P, R), W, ()),
    (E.RELEASED_EARLY, (H, P), C, (A.START,)),
    (E.CORRUPT, (W, N, C, H, R, B), P, (A.STOP, A.PARK)),
    (E.WITHDRAWN, (W, N, C), None, (A.TRY_AGAIN,)),
    (E.WITHDRAWN, (H, P), None, (A.CARRY_OUT,)),
    (E.WITHDRAWN, (S.LOST,), None, (A.LET_GO,)),
    (E.CHANNEL_DONE, (W, N, C, H, P), None, (A.FINISH_CHANNEL,)),
    (E.NONE_LEFT, (W, H), None, (A.FINISH,)),
    (E.NONE_LEFT, (N, C), S.ENDING, (A.SETTLE,)),
    (E.NONE_LEFT, (R,), H, (A.FINISH,)),
    (E.BOUNCE, (W, H), B, (A.BOUNCE,)),
    (E.CANCELLED, (B,), W, ()),
    (E.BOUNCED, (B,), S.ENDING, (A.SETTLE,)),
    (E.RETURN, (H, R), R, (A.RETURN,)),
    (E.RETURNED, (R,), H, (A.END_RETURN,)),
    (E.NOT_RETURNED, (R,), H, ()),
    (E.END, (W, N, C, H, P, R, B), S.ENDING, (A.SETTLE,)),
    (E.WRITTEN, (S.ENDING,), None, (A.SETTLE,)),
    (E.FREE, (S.ENDING,), S.REMOVING, (A.REMOVE,)),
    (E.FREE, (S.LOST,), S.REMOVING, ()),
    (E.REMOVED, (S.REMOVING, S.LOST), W, (A.TAKE_KEPT,)),
]
# Steps that would be an error of queue-send. A notice about the next message of a number is kept until it is free.
_IMPOSSIBLE: list[tuple[tuple[MessageEvent, ...], tuple[MessageState, ...]]] = [
    ((E.ARRIVED, E.ANNOUNCED), (S.REMOVING, S.LOST)),
    (_ASKING, (W, R, B, S.REMOVING, S.LOST)),
    ((E.CLASSIFIED, E.GONE), (W, N, R, B, S.REMOVING, S.LOST)),
    ((E.BOUNCE,), (N, C, R, S.ENDING, S.REMOVING, S.LOST)),
    ((E.RETURN,), (W, N, C, S.ENDING, S.REMOVING, S.LOST)),
    ((E.FREE,), (W, N, C, H, P, R, B, S.REMOVING)),
]
TRANSITIONS: dict[MessageState, Row] = {state: dict.fromkeys(E, (state, ())) for state in S}
for _event, _states, _new, _actions in _RULES:
    for _state in _states:
        TRANSITIONS[_state][_event] = (_new or _state, _actions)
for _events, _states in _IMPOSSIBLE:
    for _state in _states:
        TRANSITIONS[_state].update(dict.fromkeys(_events))
