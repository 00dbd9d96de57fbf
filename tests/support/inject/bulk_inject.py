"""Injects many letters from one process, as a daemon that takes mail does.

`python -m support.inject.bulk_inject HOME GROUP PACE [QUEUE PRIORITY]`: letters come on stdin, one a line
(support.queues.letters); GROUP letters share a commit; PACE is how many are injected in a second, 0 for as many as can
be; QUEUE is one of several queues, PRIORITY the class. Once a letter is queued, its line goes to stdout: token, message
id, and the monotonic time in seconds.
"""

import os
import select
import sys
import time

from queue_base.home import Home
from queue_base.queue.writer import QueueDraft
from queue_inject.writers import open_writer
from support.queues.letters import letter_text, unpack_letter


def main() -> None:
    """Inject the letters on stdin."""
    os.umask(0o027)
    home, group, pace = Home(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    letters = [unpack_letter(line) for line in sys.stdin]
    queue, priority = sys.argv[4:] or ("", "")
    writer = open_writer(home.choose(queue) if queue else home)
    writer.priority = priority or writer.priority
    begin = time.monotonic()
    for start in range(0, len(letters), group):
        if pace:
            wait_until_due(begin + start / pace)
        drafts = []
        for letter in letters[start : start + group]:
            draft = writer.begin()
            assert isinstance(draft, QueueDraft)
            draft.write(letter_text(letter.token))
            draft.finish(letter.sender.encode(), [recipient.encode() for recipient in letter.recipients])
            drafts.append((letter, draft))
        writer.commit([draft for _, draft in drafts])
        now = time.monotonic()
        lines = [f"{letter.token} {draft.message} {now}\n" for letter, draft in drafts]
        os.write(1, "".join(lines).encode())


def wait_until_due(due: float) -> None:
    """Wait until the time of the next injection."""
    select.select([], [], [], max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main()
