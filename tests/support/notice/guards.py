"""The guards of the protocol, each of which the model can leave out: then it must find a fault."""

GUARDS = {
    "again": "a name that comes while its number is announced is looked at when the message is gone",
    "announced": "a number that is announced is not read again before that",
    "in hand": "a name that comes while its number is read waits until the message is gone, if it is announced then",
    "rules": "classification on request uses the rules of the announcement",
    "leftovers": "a message of the first scan that has files of an interrupted classification is classified",
    "begun": "a message whose classification has begun and failed is classified, not announced",
    "backlog": "the backlog skips a message that was announced in this run",
    "clear": "queue-clean clears the record before it removes mess/",
    "identity": {"qmail takes over": 5, "kill": 0, "power cut": 0, "TERM": 0, "success": 3, "end": 0.2},
    "boot": "records of an earlier boot do not count",
    "start sync": "queue-clean syncs todo/ and info/ at its start, before it removes anything",
    "removal sync": "queue-clean syncs todo/ before it removes mess/",
    "repeated sync": "a removal that is repeated syncs again, though the name in todo/ is gone",
    "reserved": "the slot of a record that a killed run has left is not used before the record is settled",
    "notice waits": "a notice whose number is being removed waits for queue-clean's answer",
    "bits": "classification on request marks the recipients that are done",
    "late verdicts": "a verdict that comes before the answer `classified` is recorded after it",
    "files first": "info/, local/ and remote/ are synced before todo/ goes",
    "names first": "the name in todo/ is synced before info/ is written",
    "finished": "queue-clean's start removes only the very file that a killed one has left",
    "records": "records that a killed run has left are honoured",
    "limit": "no more messages are announced than there are slots",
    "slot": "a slot is free only after queue-clean's answer",
    "absent": "a record of a message that is not in todo/ is cleared at the start",
    "gone": "queue-todo is told when a message is gone",
    "one of both": "a message whose classification was asked for is not removed before the answer",
    "unlinked": "queue-todo does not announce a classified message before the removal from todo/ is safe",
}

# Moves that make the fault likely which a missing guard allows. A walk without it would find it, too, but late.
_NO_CRASH = {"kill": 0.0, "power cut": 0.0, "qmail takes over": 0.0, "TERM": 0.0}
FAVOURED: dict[str, dict[str, float]] = {
    "again": _NO_CRASH | {"inject": 3, "success": 3},
    "begun": {"the disk refuses todo": 6, "ask": 3, "todo classifies": 4, "qmail takes over": 0},
    "backlog": {"kill": 3, "ask": 6, "qmail takes over": 0, "power cut": 0, "send discovers": 0.3},
    "clear": {"qmail takes over": 0, "kill": 3, "send takes an answer": 0.3, "inject": 3},
    "identity": {"qmail takes over": 5, "kill": 0, "power cut": 0, "TERM": 0, "success": 3, "end": 0.2},
    "start sync": {"kill": 3, "power cut": 3, "qmail takes over": 0, "clean works": 0.5, "inject": 2},
    "repeated sync": {"the disk refuses clean": 6, "power cut": 3, "kill": 0, "qmail takes over": 0},
    "notice waits": _NO_CRASH | {"todo classifies": 20, "send takes an answer": 0.1, "inject": 3},
    "names first": {"power cut": 4, "todo classifies": 20, "kill": 0, "qmail takes over": 0, "inject on": 0.3},
    "finished": {"kill": 10, "power cut": 0, "qmail takes over": 0, "inject": 6, "inject on": 0.3, "sweep": 0},
    "unlinked": {"power cut": 2, "todo classifies": 20, "qmail takes over": 0, "kill": 0},
}
