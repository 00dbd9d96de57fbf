"""What the tables say of a run, held against what was injected, what receivers saw, and what is left in the queue.

Each function yields what does not agree, a line each, so that a failed test shows all of it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from support.site import LOCAL
from support.spark.logs.log_rows import MessageRow, Truth
from support.spark.logs.log_traffic import BOUNCES
from support.spark.logs.logged_run import LoggedRun

NOBODY = ("", "#@[]")
POSTMASTER = f"postmaster@{LOCAL}"
DEAD = "@dead.example"


class Account:
    """A run and the tables of its log. `results`: by recipient, how many of its deliveries had each result."""

    def __init__(self, run: LoggedRun, truth: Truth) -> None:
        self._run = run
        self._truth = truth
        self._lives = {row.key: row for row in (*truth.messages, *truth.waiting)}
        # No two letters share a recipient, so a message is the letter whose recipient it has.
        letters = {recipient: letter for letter in run.letters.values() for recipient in letter.recipients}
        self._letters = {row.key: letters[row.recipient] for row in truth.deliveries if row.recipient in letters}
        self.results: dict[str, Counter[str | None]] = defaultdict(Counter)
        self._recipients: dict[str, set[str]] = defaultdict(set)
        for row in truth.deliveries:
            self.results[row.recipient][row.result] += 1
            self._recipients[row.key].add(row.recipient)

    def wrong(self) -> list[str]:
        """Return all that does not agree."""
        return [*self._receivers(), *self._fates(), *self._facts(), *self._bounces(), *self._rest()]

    def _receivers(self) -> Iterator[str]:
        """What receivers saw: each delivery with a result they saw just so, one that a crash cut off perhaps."""
        seen = self._run.seen
        for recipient in sorted({*self.results, *seen.times, *seen.asked}):
            found, times, asked = self.results[recipient], seen.times[recipient], seen.asked[recipient]
            if not found["success"] <= times <= found["success"] + found["lost"]:
                yield f"{recipient}: received {times} times, log: {dict(found)}"
            answered = found["success"] + found["failure"] + found["deferral"]
            # More often if an envelope that waited behind another message was withdrawn, and sent again.
            if asked and asked < answered:
                yield f"{recipient}: its server was asked {asked} times, log: {dict(found)}"

    def _fates(self) -> Iterator[str]:
        """What the recipients of letters had to come to."""
        for letter in self._run.letters.values():
            for recipient in letter.recipients:
                found = self.results[recipient]
                if recipient.startswith(("refused-", "fail-")):
                    good = found["failure"] and not found["success"]
                elif recipient.startswith("never-") or recipient.endswith(DEAD):
                    # What waits for a dead host is deferred without an attempt, which makes no delivery.
                    tried = found["deferral"] or recipient.endswith(DEAD)
                    good = tried and not found["success"] and not found["failure"]
                else:
                    good = found["success"] and not found["failure"]
                if not good:
                    yield f"{recipient} of {letter}: log: {dict(found)}"
                if recipient.startswith(("soon-", "slow-")) and not found["deferral"] and not found["lost"]:
                    yield f"{recipient}: it was deferred, log: {dict(found)}"

    def _facts(self) -> Iterator[str]:
        """What was injected: number, sender, bytes, the injector's pid; no kill leaves a message without its lines."""
        for untold in self._lives.values():
            if untold.sender is None:
                yield f"{untold}: it left todo/ and the log has no word of that"
        for key, letter in self._letters.items():
            row = self._lives[key]
            number, pid = self._run.queued.get(letter.token, (row.id, row.qp))
            facts = (letter.sender, self._run.seen.sizes.get(letter.token, row.bytes), pid)
            if row.id != number or (row.sender, row.bytes, row.qp) != facts:
                yield f"{row}: should be {number} with sender, bytes and pid {facts}"
        found = {letter.token for letter in self._letters.values()}
        for token, letter in self._run.letters.items():
            if token not in found and not letter.recipients[0].endswith(DEAD):
                yield f"{token} is no message"

    def tell(self) -> str:
        """Return what happened, for a person."""
        lost = sum(found["lost"] for found in self.results.values())
        return (
            f"{self._run.starts} starts; {len(self._lives)} messages; "
            f"{len(self._truth.deliveries)} deliveries, of which {lost} were cut off by a kill"
        )

    def _bounces(self) -> Iterator[str]:
        """Who is told of a failure: its sender once, or again after a crash; and of which message a bounce is."""
        told: dict[str, list[str]] = defaultdict(list)
        for row in self._lives.values():
            if row.bounce_of is not None:
                told[row.bounce_of].append(row.key)
                yield from self._report(row)
            elif row.sender in NOBODY and not (row.key in self._letters or self._is_repeated(row)):
                yield f"{row}: no letter, and of which message is it a bounce?"
        for key, row in self._lives.items():
            if row.failures and row.sender != "#@[]" and not told[key] and row.done_ns is not None:
                yield f"{row}: has failures, and no bounce tells of them"

    def _is_repeated(self, bounce: MessageRow) -> bool:
        """Return whether another bounce says the same: queue-send was killed before it knew that this one was queued.

        What goes to postmaster may say anything.
        """
        to = self._to(bounce)
        return to == {POSTMASTER} or any(
            row.bounce_of is not None and self._to(row) == to for row in self._lives.values()
        )

    def _to(self, row: MessageRow) -> set[str]:
        return self._recipients.get(row.key, set())

    def _report(self, bounce: MessageRow) -> Iterator[str]:
        """A bounce goes to the sender of what it reports, and names its failed recipients."""
        assert bounce.bounce_of is not None
        reported = self._lives[bounce.bounce_of]
        wanted = reported.sender or POSTMASTER
        if self._to(bounce) != {wanted}:
            yield f"{bounce}: it went to {self._to(bounce)}, not to {wanted}"
        if wanted.startswith(BOUNCES):
            texts = self._run.seen.reports.get(wanted, [])
            rows = self._truth.deliveries
            failed = {row.recipient for row in rows if row.key == reported.key and row.result == "failure"}
            for recipient in failed:
                if not any(f"<{recipient}>".encode() in text for text in texts):
                    yield f"{bounce}: {wanted} was not told of {recipient}"

    def _rest(self) -> Iterator[str]:
        """What is left: the messages in the queue, and no delivery in flight."""
        waiting = {row.id for row in self._truth.waiting}
        if waiting != self._run.left:
            yield f"pending: {sorted(waiting)}, in the queue: {sorted(self._run.left)}"
        yield from (f"in flight after the end: {row}" for row in self._truth.flying)
