"""The lines of queue-send: what each changes of what is open (messages, deliveries, bounces), and which rows it makes.

One life of a message number begins with `new`, `info` or a delivery's start while none is open, and ends with `end`. An
`info` with other facts than the open life's shows that this one's `end` is missing: it is lost, and the next began with
the last `new` before that `info`. A line about a number without an open life (such as a second `end`) has no effect.

A delivery is a start and the next result of its number. When a status says that nothing is in flight, or the queue
exits, those in flight are lost; so is one whose number is started again. A status that finds deliveries in flight, and
says that there are none, is the first of a run after a crash. (levels.py has the statuses: they are very many.)
"""

from typing import TypeAlias

from queue_report.match.found import Found, LineRow
from queue_report.match.state import NO_FACTS, Facts, Message, State

BOUNCE_SENDERS = (b"", b"#@[]")
LOST_DAEMON = b"oh no! lost "
# The reason of a hold as earlier versions logged a deletion.
DELETED_BEFORE = b"deleted by the administrator; it ends when nothing of it is in flight"

# Of the lines that are most, a number may come as its digits, which costs less (grammar.quick).
Number: TypeAlias = int | bytes


def new(state: State, found: Found, at: int, number: Number) -> None:
    number = int(number)
    message = state.messages.get(number)
    if message is None:
        _begin(state, number, at, (None, None, None, None, at, None))
    elif message.facts[0] is not None or message.facts[4] is None:
        message.again_ns = at


def _begin(state: State, number: int, at: int, facts: Facts) -> Message:
    """A life of a number begins: the first one with this stamp, or another one."""
    if at != state.begun_ns:
        state.begun_ns, state.begun = at, {}
    lives = state.begun[number] = state.begun.get(number, 0) + 1
    message = state.messages[number] = Message(number, at, facts)
    if lives > 1:
        message.key = f"{message.key}.{lives}"
    return message


def info(
    state: State, found: Found, at: int, number: Number, size: Number, sender: bytes, qp: Number, uid: Number
) -> None:
    number, size, qp, uid = int(number), int(size), int(qp), int(uid)
    message = state.messages.get(number)
    begin = at
    if message is not None:
        old_qp, old_uid, old_sender, old_size, birth, _ = message.facts
        again, message.again_ns = message.again_ns, None
        told = old_qp is not None
        if birth is None or (told and (old_qp, old_uid, old_sender, old_size) != (qp, uid, sender, size)):
            begin = at if again is None else again
            _close(state, found, message, begin, "lost")
            message = None
        else:
            message.facts = (qp, uid, sender, size, birth, at)
            if told:
                return
    if message is None:
        message = _begin(state, number, begin, (qp, uid, sender, size, begin, at))
    if sender in BOUNCE_SENDERS:
        # It may be a bounce: of the last `bounce msg` with its qp, unless another took that.
        bounced = state.bounces.pop(qp, None)
        message.bounce_of = None if bounced is None else bounced[0]


def start(state: State, found: Found, at: int, delivery: Number, number: Number, address: bytes) -> None:
    delivery, number = int(delivery), int(number)
    if delivery in state.deliveries:
        _drop(state, found, delivery)
    message = state.messages.get(number)
    if message is None:
        message = _begin(state, number, at, NO_FACTS)
    if not message.try_address(address):
        state.tries.append((message, address))
    state.deliveries[delivery] = (message, delivery, address, at, message.facts)


def done(state: State, found: Found, at: int, delivery: Number, result: bytes, reason: bytes | None) -> None:
    delivery = int(delivery)
    flight = state.deliveries.pop(delivery, None)
    if flight is None:
        return
    message, _, address, begun, facts = flight
    number = message.number
    if state.messages.get(number) is message:
        if result == b"success":
            message.successes += 1
        elif result == b"failure":
            message.failures += 1
        else:
            message.deferrals += 1
    found.deliveries.append((message.key, number, delivery, address, begun, at, result, reason, facts))


def mangled(state: State, found: Found, at: int, delivery: int) -> None:
    done(state, found, at, delivery, b"mangled", None)


def _drop(state: State, found: Found, delivery: int) -> None:
    """A delivery in flight is lost."""
    message, _, address, begun, facts = state.deliveries.pop(delivery)
    found.deliveries.append((message.key, message.number, delivery, address, begun, None, b"lost", None, facts))


def _drop_all(state: State, found: Found) -> None:
    for delivery in list(state.deliveries):
        _drop(state, found, delivery)


def bounce(state: State, found: Found, at: int, number: int, qp: int) -> None:
    message = state.messages.get(number)
    if message is not None:
        if message.bounce_qp is None:
            message.bounce_qp = qp
        state.bounces[qp] = (message.key, number, at)


def triple(state: State, found: Found, at: int, number: int) -> None:
    message = state.messages.get(number)
    if message is not None:
        message.fate = "discarded"


def hold(state: State, found: Found, at: int, number: int, why: bytes) -> None:
    if why == DELETED_BEFORE:
        delete(state, found, at, number, why)


def delete(state: State, found: Found, at: int, number: int, why: bytes) -> None:
    message = state.messages.get(number)
    if message is not None:
        message.fate = "deleted"


def release(state: State, found: Found, at: int, number: int) -> None:
    message = state.messages.get(number)
    if message is not None and message.fate == "deleted":
        message.fate = None


def end(state: State, found: Found, at: int, number: Number) -> None:
    message = state.messages.get(int(number))
    if message is None:
        return
    # Where a failure was not read, a bounce still tells of it.
    if message.fate is not None:
        outcome = message.fate
    elif not message.failures and message.bounce_qp is None:
        outcome = "delivered"
    else:
        outcome = "partly" if message.successes else "bounced"
    _close(state, found, message, at, outcome)


def _close(state: State, found: Found, message: Message, at: int, outcome: str) -> None:
    del state.messages[message.number]
    found.messages.append((message, at, outcome))


def exiting(state: State, found: Found, at: int) -> None:
    """The run ends by itself; if it had lost a daemon, that is counted as what it is."""
    _drop_all(state, found)
    if state.dying:
        found.counts["died"] += 1
        found.counts["exiting"] -= 1
    state.dying = False


def crash(state: State, found: Found) -> None:
    """A status finds deliveries in flight, and says that there are none."""
    _drop_all(state, found)
    found.counts["crash"] += 1
    found.counts["status"] -= 1
    state.dying = False


def alert(state: State, found: Found, at: int, text: bytes) -> None:
    if text.startswith(LOST_DAEMON):
        state.dying = True
    found.add_alert(at, "alert", text)


def warning(state: State, found: Found, at: int, text: bytes) -> None:
    found.add_alert(at, "warning", text)


def alert_of_other(state: State, found: Found, at: int, program: bytes, text: bytes) -> None:
    found.add_alert(at, "alert", program + text)


def warning_of_other(state: State, found: Found, at: int, program: bytes, text: bytes) -> None:
    found.add_alert(at, "warning", program + text)


LINES: tuple[LineRow, ...] = (
    ("status", "status: local {local_now}/{local_limit} remote {remote_now}/{remote_limit}", None),
    ("status", "status: local {local_now}/{local_limit} remote {remote_now}/{remote_limit} exitasap", None),
    ("exiting", "status: exiting", exiting),
    ("new", "new msg {message}", new),
    ("info", "info msg {message}: bytes {bytes} from <{sender$$}> qp {qp} uid {uid}", info),
    ("start", "starting delivery {delivery}: msg {message} to {address=(?:local|remote) [^ ]*}", start),
    ("done", "delivery {delivery}: {result=success|failure|deferral}: {reason$}", done),
    ("done", "delivery {delivery}: report mangled, will defer", mangled),
    ("bounce", "bounce msg {message} qp {qp}", bounce),
    ("delay", "delay msg {message} qp {qp}", None),
    ("triple", "triple bounce: discarding bounce/{message}", triple),
    ("triple", "double bounce: discarding bounce/{message}", triple),  # netqmail's, where doublebounceto is empty.
    ("end", "end msg {message}", end),
    ("corrupt", "corrupt msg {message}: {why$$}", None),
    ("hold", "hold msg {message}: {why$$}", hold),
    ("delete", "delete msg {message}: {why$$}", delete),
    ("release", "release msg {message}", release),
    ("requeue", "requeue msg {message}: {why$$}", None),
    ("dest", "dest {nexthop$} dead: {text$$}", None),
    ("dest", "dest {nexthop$} alive: {text$$}", None),
    ("inflow", "inflow slow: {text$$}", None),
    ("inflow", "inflow refused: {text$$}", None),
    ("inflow", "inflow free: {text$$}", None),
    ("config", "config {text$$}", None),
    ("alert", "alert: {text$$}", alert),
    ("warning", "warning: {text$$}", warning),
)
# What other programs print on stderr, which goes to the same logger. Their alerts begin with the program's name.
LINES_OF_OTHERS: tuple[LineRow, ...] = (
    ("alert", "{program=[!-9;-~]+: }alert: {text$$}", alert_of_other),
    ("alert", "{program=[!-9;-~]+: }fatal: {text$$}", alert_of_other),
    ("warning", "{program=[!-9;-~]+: }warning: {text$$}", warning_of_other),
    ("config", "{program=[!-9;-~]+: }config {text$$}", None),
)
