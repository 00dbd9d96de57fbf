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
Changes = dict[MessageEvent, tuple[MessageState, Actions]]
Row = dict[MessageEvent, tuple[MessageState, Actions] | None]

_WAITING, _ANNOUNCED, _CLASSIFYING, _HELD, _PARKED, *_LAST_STATES = MessageState
_RETURNING, _BOUNCING, _ENDING, _REMOVING, _LOST = _LAST_STATES
E, A = MessageEvent, MessageAction
# queue-todo is asked to classify an announced message, because of one of these.
ASKING = (E.DEFERRED, E.FAILED, E.WANTED, E.OVERDUE, E.UNMARKED, E.EXITING)
_ANSWERS = (E.CLASSIFIED, E.GONE)
_NOTICES = (E.ARRIVED, E.ANNOUNCED)
# A message in these states has a mark in hold/ or corrupt/.
MARKED = frozenset((_HELD, _PARKED, _RETURNING))
# Nothing of a message in these states is loaded.
NOT_TRIED = frozenset((_HELD, _PARKED, _RETURNING, _BOUNCING, _ENDING, _REMOVING, _LOST))


def _row(state: MessageState, changes: Changes, impossible: tuple[MessageEvent, ...]) -> Row:
    """Return the row of a state. An event that is in neither argument changes nothing."""
    stays: Row = dict.fromkeys(MessageEvent, (state, ()))
    return stays | changes | dict.fromkeys(impossible)


_END: Changes = {E.END: (_ENDING, (A.SETTLE,))}
# What happens to every message of which something may be tried.
_TRIED: Changes = _END | {
    E.MARKED: (_HELD, ()),
    E.ORDERED: (_HELD, (A.STOP, A.CARRY_OUT)),
    E.CORRUPT: (_PARKED, (A.STOP, A.PARK)),
}
# An announced message has its envelope in memory, and no failure is recorded of it: if none is left, it ends.
_IN_TODO: Changes = (
    _TRIED
    | dict.fromkeys(ASKING, (_CLASSIFYING, ()))
    | {E.MARKED: (_HELD, (A.CARRY_OUT,)), E.NONE_LEFT: (_ENDING, (A.SETTLE,))}
)
_GONE: Changes = {E.GONE: (_LOST, (A.TELL, A.LOSE))}
TRANSITIONS: dict[MessageState, Row] = {
    _WAITING: _row(
        _WAITING,
        _TRIED
        | {
            E.ARRIVED: (_WAITING, (A.START,)),
            E.ANNOUNCED: (_ANNOUNCED, (A.START,)),
            E.WITHDRAWN: (_WAITING, (A.TRY_AGAIN,)),
            E.CHANNEL_DONE: (_WAITING, (A.FINISH_CHANNEL,)),
            E.NONE_LEFT: (_WAITING, (A.FINISH,)),
            E.BOUNCE: (_BOUNCING, (A.BOUNCE,)),
        },
        (*ASKING, *_ANSWERS, E.RETURN, E.FREE),
    ),
    _ANNOUNCED: _row(
        _ANNOUNCED,
        _IN_TODO | {E.WITHDRAWN: (_ANNOUNCED, (A.TRY_AGAIN,)), E.CHANNEL_DONE: (_ANNOUNCED, (A.FINISH_CHANNEL,))},
        (*_ANSWERS, E.BOUNCE, E.RETURN, E.FREE),
    ),
    _CLASSIFYING: _row(
        _CLASSIFYING,
        _IN_TODO
        | _GONE
        | {
            E.CLASSIFIED: (_WAITING, (A.TELL,)),
            E.WITHDRAWN: (_CLASSIFYING, (A.TRY_AGAIN,)),
            E.CHANNEL_DONE: (_CLASSIFYING, (A.FINISH_CHANNEL,)),
        },
        (E.BOUNCE, E.RETURN, E.FREE),
    ),
    _HELD: _row(
        _HELD,
        _END
        | _GONE
        | {
            E.ARRIVED: (_HELD, (A.CARRY_OUT,)),
            E.ANNOUNCED: (_HELD, (A.CARRY_OUT,)),
            E.CLASSIFIED: (_HELD, (A.TELL, A.CARRY_OUT)),
            E.ORDERED: (_HELD, (A.STOP, A.CARRY_OUT)),
            E.RELEASED: (_WAITING, ()),
            E.CORRUPT: (_PARKED, (A.STOP, A.PARK)),
            E.WITHDRAWN: (_HELD, (A.CARRY_OUT,)),
            E.CHANNEL_DONE: (_HELD, (A.FINISH_CHANNEL,)),
            E.NONE_LEFT: (_HELD, (A.FINISH,)),
            E.BOUNCE: (_BOUNCING, (A.BOUNCE,)),
            E.RETURN: (_RETURNING, (A.RETURN,)),
        },
        (E.FREE,),
    ),
    _PARKED: _row(
        _PARKED,
        _END
        | _GONE
        | {
            E.ANNOUNCED: (_PARKED, (A.CARRY_OUT,)),
            E.CLASSIFIED: (_PARKED, (A.TELL, A.CARRY_OUT)),
            E.ORDERED: (_PARKED, (A.STOP, A.CARRY_OUT)),
            E.RELEASED: (_WAITING, ()),
            E.WITHDRAWN: (_PARKED, (A.CARRY_OUT,)),
            E.CHANNEL_DONE: (_PARKED, (A.FINISH_CHANNEL,)),
        },
        (E.FREE,),
    ),
    _RETURNING: _row(
        _RETURNING,
        _END
        | {
            E.ORDERED: (_RETURNING, (A.CARRY_OUT,)),
            E.RELEASED: (_WAITING, ()),
            E.CORRUPT: (_PARKED, (A.STOP, A.PARK)),
            E.NONE_LEFT: (_HELD, (A.FINISH,)),
            E.RETURN: (_RETURNING, (A.RETURN,)),
            E.RETURNED: (_HELD, (A.END_RETURN,)),
            E.NOT_RETURNED: (_HELD, ()),
        },
        (*ASKING, *_ANSWERS, E.BOUNCE, E.FREE),
    ),
    _BOUNCING: _row(
        _BOUNCING,
        _END
        | {
            E.ORDERED: (_BOUNCING, (A.CARRY_OUT,)),
            E.CORRUPT: (_PARKED, (A.STOP, A.PARK)),
            E.CANCELLED: (_WAITING, ()),
            E.BOUNCED: (_ENDING, (A.SETTLE,)),
        },
        (*ASKING, *_ANSWERS, E.FREE),
    ),
    _ENDING: _row(
        _ENDING,
        _GONE
        | {
            E.CLASSIFIED: (_ENDING, (A.SETTLE, A.TELL)),
            E.WRITTEN: (_ENDING, (A.SETTLE,)),
            E.FREE: (_REMOVING, (A.REMOVE,)),
        },
        (E.BOUNCE, E.RETURN),
    ),
    # A notice about a later message of its number is kept.
    _REMOVING: _row(
        _REMOVING, {E.REMOVED: (_WAITING, (A.TAKE_KEPT,))}, (*_NOTICES, *ASKING, *_ANSWERS, E.RETURN, E.BOUNCE, E.FREE)
    ),
    _LOST: _row(
        _LOST,
        {E.WITHDRAWN: (_LOST, (A.LET_GO,)), E.FREE: (_REMOVING, ()), E.REMOVED: (_WAITING, (A.TAKE_KEPT,))},
        (*_NOTICES, *ASKING, *_ANSWERS, E.RETURN, E.BOUNCE),
    ),
}
