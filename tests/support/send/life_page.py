"""The table and the drawing of docs/design/life-of-a-message.md, made of the table of queue-send.

    cd tests; python -m support.send.life_page

writes the page anew.
"""

from collections.abc import Iterator
from pathlib import Path

from queue_send.messages.transitions import TRANSITIONS, MessageAction, MessageEvent, MessageState

PAGE = Path(__file__).parents[3] / "docs/design/life-of-a-message.md"
BEGIN = "<!-- made by tests/support/send/life_page.py -->\n"
WIDTH = 120


def drawing() -> Iterator[str]:
    """Yield the lines of the drawing: for each two states the events that lead from one to the other."""
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield "    [*] --> WAITING"
    for state, row in TRANSITIONS.items():
        for new in MessageState:
            events = [event.name for event, move in row.items() if move is not None and move[0] is new is not state]
            if events:
                yield f"    {state.name} --> {new.name}: {', '.join(events)}"
    yield "```"


def _wrapped(words: list[str]) -> Iterator[str]:
    line = ""
    for word in words:
        if len(line) + len(word) >= WIDTH:
            yield line
            line = ""
        line += f"{' ' if line else ''}{word}"
    yield line


def _names(text: str, events: list[MessageEvent]) -> Iterator[str]:
    if events:
        yield from _wrapped([text, *[f"{event.name}," for event in events[:-1]], f"{events[-1].name}."])
        yield ""


def tables() -> Iterator[str]:
    """Yield a section for each state: what its events lead to."""
    for state, row in TRANSITIONS.items():
        yield f"### {state.name}"
        yield ""
        yield f"The message {state.value}."
        yield ""
        moves = {event: move for event, move in row.items() if move is not None and move != (state, ())}
        yield "| event | next state | actions |"
        yield "|---|---|---|"
        for event, (new, actions) in moves.items():
            names = ", ".join(action.name for action in actions)
            yield f"| {event.name} | {new.name if new is not state else ''} | {names} |"
        yield ""
        yield from _names("These change nothing:", [event for event, move in row.items() if move == (state, ())])
        yield from _names("These cannot come:", [event for event, move in row.items() if move is None])


def lists() -> Iterator[str]:
    """Yield the lists of events and actions."""
    for title, members in (("Events", list(MessageEvent)), ("Actions", list(MessageAction))):
        yield f"## {title}"
        yield ""
        yield "| name | meaning |"
        yield "|---|---|"
        for member in members:
            yield f"| {member.name} | {member.value} |"
        yield ""


def made() -> str:
    """Return the part of the page that is made."""
    return "\n".join([*drawing(), "", *lists(), "## States", "", *tables()]).rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().split(BEGIN)[0] + BEGIN + "\n" + made())
