"""The life of classified messages: found or announced, loaded, finished, bounced, handed to queue-clean.

What is known of a message that waits is its number and its next attempt; everything else is on the disk
and is read when its turn comes. Nothing here waits; what the disk refuses is tried again later.
"""

from collections import deque
from collections.abc import Iterator
from functools import partial

from queue_base.errors import reason
from queue_base.layout import Layout
from queue_base.marks import is_marked
from queue_send.attempt import Attempt
from queue_send.bouncer import Bouncer
from queue_send.cleaner import Cleaner
from queue_send.decisions import Decisions
from queue_send.delays import Delays
from queue_send.known import Known
from queue_send.nexthop import group_recipients
from queue_send.orders import Orders
from queue_send.retry import within_lifetime
from queue_send.run import Run
from queue_send.scheduler import Scheduler
from queue_send.slices import AT_ONCE, Loading, Slice, without
from queue_send.store import NO_PIECE, Piece, Store
from queue_wire import logline
from queue_wire.format_error import FormatError
from queue_wire.notice import Classified

AHEAD_MOST = 60  # Seconds that a birth may lie ahead of the clock, since others may have one that differs a little.
TROUBLE_AFTER = 123  # Seconds until something that the disk refused is tried again (qmail's SLEEP_SYSFAIL).
CHANNELS = ("local", "remote")
_OVER = object()


class Messages:
    """All classified messages of the queue."""

    def __init__(self, run: Run, layout: Layout, bouncer: Bouncer, delays: Delays, cleaner: Cleaner) -> None:
        self._run = run
        self.store = Store(layout)
        self._split = layout.split
        self._bouncer = bouncer
        self.delays = delays
        self._cleaner = cleaner
        self._all_due = False
        self.all_read = False
        self.known = Known()
        # Ids that were announced while the backlog is being read, which must not take them on again.
        self._announced: set[int] | None = set()
        self.parked = self.store.parked()
        self.held = self.store.held()
        # (kind, message), for a message that has more recipients than are loaded at once.
        self.slices: dict[tuple[str, int], Slice] = {}
        # Messages that are loaded in steps, one after the other, and the steps of the first.
        self._long: dict[str, deque[Loading]] = {kind: deque() for kind in CHANNELS}
        self._steps: dict[str, Iterator[None] | None] = dict.fromkeys(CHANNELS)
        self.orders = Orders(run, self, bouncer, cleaner, self.held)
        bouncer.attach(self.store, self.end, self.park)
        delays.attach(self.store, self.may_be_tried, self.end)
        cleaner.attach(self.arrive)
        self.decisions = {kind: Decisions(run, self, kind) for kind in CHANNELS}
        self.schedulers = {kind: Scheduler(run.controls.settings(kind), self.decisions[kind]) for kind in CHANNELS}

    def apply_controls(self) -> None:
        """Take the limits from the controls, after HUP."""
        for kind, scheduler in self.schedulers.items():
            scheduler.change(self._run.controls.settings(kind))

    def flush(self, now: float) -> None:
        """ALRM: everything is due now, also what the backlog has yet to find."""
        self._all_due = self._announced is not None
        for scheduler in self.schedulers.values():
            scheduler.flush(now)

    def status(self) -> bytes:
        """Return the status line as of now."""
        local, remote = self.schedulers["local"], self.schedulers["remote"]
        limits = local.settings.concurrency, remote.settings.concurrency
        return logline.status(local.running, limits[0], remote.running, limits[1], self._run.leaving)

    def job_path(self, message: int) -> bytes:
        """Return mess/B/I, relative to queue/."""
        return b"mess/%d/%d" % (message % self._split, message)

    def arrive(self, notice: Classified, now: float) -> None:
        """Take on a message that was classified just now; where the disk cannot tell of it, later."""
        try:
            self._arrive(notice, now)
        except OSError as error:
            self._run.again.later(("arrive", notice.message), partial(self.arrive, notice), error)

    def _arrive(self, notice: Classified, now: float) -> None:
        """queue-todo has classified a message. A notice that is late, or about one that is known, changes nothing.

        What the notice says of channels is not believed: it may be about an earlier message of this number, which was
        found at start and is gone by now. The disk knows.
        """
        message = notice.message
        if self._cleaner.defer(notice):
            return  # The old message of this number is being removed; the notice comes back after that.
        if self.known.holds(message) or not self.store.is_classified(message):
            return  # Found at start already; gone; or a new message of this number, whose own notice will come.
        if self._announced is not None:
            self._announced.add(message)
        self._forget_old_marks(message)
        if self.orders.carry_out(message, now):
            return
        kinds = [kind for kind in CHANNELS if self.store.due(message, kind) is not None]
        for kind in kinds:
            self.schedulers[kind].arrived(message)
        if not kinds and message not in self.held:
            self.finish(message)

    def _forget_old_marks(self, message: int) -> None:
        """What we know of marks was about an earlier message of this number, if they are gone from the disk."""
        for kind, marked in (("hold", self.held), ("corrupt", self.parked)):
            if message in marked and not is_marked(self.store.layout, kind, message):
                marked.discard(message)
                self.orders.forget(message)

    def discover(self, message: int) -> bool:
        """Found at start, with its info file: take it on as the last run left it, if it is whole and classified.

        Return whether it is to be remembered. Raises OSError; it may be called again then.
        """
        announced = self._announced is not None and message in self._announced
        if announced or self._cleaner.holds(message) or message in self.parked:
            return False
        birth = self.store.birth(message)
        if birth is None:
            return False
        if self.orders.carry_out(message, self._run.clock.now()):
            return not self._cleaner.holds(message)
        dues = self._dues(message)
        last = self._last_attempt(birth, max(dues.values(), default=0))
        for kind, due in dues.items():
            self.schedulers[kind].found(message, due, self._all_due, last)
        if not dues and message not in self.held:
            self.finish(message)
        return bool(dues)

    def _dues(self, message: int) -> dict[str, int]:
        """Return the next attempt on each channel that has recipients left."""
        from_disk = self._run.clock.from_disk
        return {kind: from_disk(due) for kind in CHANNELS if (due := self.store.due(message, kind)) is not None}

    def _last_attempt(self, born: int, due: int) -> int:
        """Return `due`, or what is soon after the message's lifetime: qmail's curve goes on beyond that.

        Where the message will only be born, the clock was put back since: it waits from now on as long as from then.
        """
        now = int(self._run.clock.now())
        if due <= now:
            return due
        birth = self._run.clock.from_disk(born)
        if birth > now + AHEAD_MOST:
            due = max(now, due - (birth - now))
        return within_lifetime(due, now, birth + self._run.controls.longest)

    def all_found(self) -> None:
        """The backlog has been read."""
        self._announced = None
        self._all_due = False
        self.all_read = True

    def load(self, kind: str, now: float) -> bool:
        """Load the next message of a channel, if one may be; return whether there was one."""
        scheduler = self.schedulers[kind]
        found = scheduler.next_load(now)
        if found is None:
            return False
        message, stamp = found
        try:
            attempt, piece = self._read(message, kind, stamp)
            tried = scheduler.tried(message, stamp) if attempt is not None else ()
        except FormatError as error:
            scheduler.absent(message)
            self.park(message, str(error))
        except OSError as error:
            self._run.log.warning(f"unable to open {error.filename or message}: {reason(error)}; will try again later")
            scheduler.later(message, int(now) + TROUBLE_AFTER)
        else:
            if attempt is None:
                scheduler.absent(message)
            elif piece.next is None and len(piece.recipients) <= AT_ONCE:
                recipients = without(piece.recipients, tried, attempt)
                groups = group_recipients(
                    kind, attempt.sender, recipients, self._run.controls.routes, self._run.controls.lines
                )
                scheduler.open(attempt, groups, now)
            else:
                # Those that have to wait for their turn do not keep what was read.
                first, at = (None if self._long[kind] else piece), self._slice_of(attempt, kind)
                controls = self._run.controls
                loading = Loading(self.store, kind, attempt, at, first, tried, controls.routes, controls.lines)
                self._long[kind].append(loading)
                scheduler.begin(attempt, now)
        return True

    def load_on(self, kind: str, now: float) -> bool:
        """Do a step of loading the next message that has many recipients; return whether there is another one to do.

        So one user's mail with any number of recipients takes a share of the time, and nobody waits until it is loaded.
        """
        loading = self._long[kind][0] if self._long[kind] else None
        if loading is None:
            return False
        scheduler, attempt = self.schedulers[kind], loading.attempt
        steps = self._steps[kind]
        if steps is None:
            steps = self._steps[kind] = loading.steps(scheduler, now)
        try:
            if next(steps, _OVER) is not _OVER:
                return True
        except FormatError as error:
            self.park(attempt.message, str(error))
            attempt.withdrawn = True
        except OSError as error:
            path = error.filename or attempt.message
            self._run.log.warning(f"unable to read {path}: {reason(error)}; will try again later")
            scheduler.unread(attempt, int(now) + TROUBLE_AFTER)
        self._long[kind].popleft()
        self._steps[kind] = None
        scheduler.opened(attempt, now)
        return bool(self._long[kind])

    def is_loading(self, kind: str) -> bool:
        """Return whether `load_on` has something to do."""
        return bool(self._long[kind])

    def _slice_of(self, attempt: Attempt, kind: str) -> int:
        """Return where the recipients begin that are next; 0 where what is known is of an earlier message."""
        known = self.slices.get((kind, attempt.message))
        if known is None or (known.birth, known.size) != (attempt.born, attempt.size):
            self.slices.pop((kind, attempt.message), None)
            return 0
        return known.at

    def _read(self, message: int, kind: str, stamp: int | None) -> tuple[Attempt | None, Piece]:
        """Return an attempt, None where it is not to be tried, and the first piece of its recipients.

        Raises FormatError, OSError.
        """
        if message in self.parked or message in self.held:
            return None, NO_PIECE
        try:
            sender, born = self.store.load(message)
        except FileNotFoundError:
            return None, NO_PIECE  # It has ended: an entry of a message that had two.
        known, clock = self.slices.get((kind, message)) if stamp is None else None, self._run.clock
        piece = self.store.recipients(message, kind, known.at if known is not None and known.birth == born else 0)
        if known is not None and known.size != piece.size:
            piece = self.store.recipients(message, kind)  # What is known is of an earlier message of this number.
        left = piece.recipients or piece.next is not None
        if stamp is not None and left and stamp not in clock.all_from_disk(piece.due):
            return None, NO_PIECE  # It was tried in between; its next attempt has an entry of its own.
        if stamp is not None:
            self.slices.pop((kind, message), None)  # Its next attempt has come: all that are left are tried.
        birth = clock.from_disk(born)
        expires = birth + self._run.controls.lifetime(sender)
        attempt = Attempt(message, sender, birth, expires, piece.next, clock.from_disk(piece.due))
        attempt.born, attempt.size = born, piece.size
        return attempt, piece

    def park(self, message: int, why: str) -> None:
        """Leave a message that cannot be read to a person: a mark in corrupt/, and an alert."""
        self.parked.add(message)
        self._run.log.put(logline.corrupt_message(message, why))

        def then(trouble: str) -> None:
            more = f"; {trouble}" if trouble else ""
            self._run.log.alert(f"msg {message} cannot be read and is parked in corrupt: {why}{more}")

        self.orders.put_in_corrupt(message, why, then)

    def channel_finished(self, message: int, kind: str) -> None:
        """No recipient is left on a channel. If none is on the other either, the message is finished."""
        other = CHANNELS[kind == "local"]
        try:
            self.store.drop(self.store.layout.hashed(kind, message))
            last = self.store.due(message, other) is None
        except OSError as error:
            path = error.filename or message
            self._run.log.warning(f"unable to change {path}: {reason(error)}; will try again later")
            self.schedulers[kind].later(message, int(self._run.clock.now()) + TROUBLE_AFTER)
            return
        if last and message not in self.parked:
            self.finish(message)

    def finish(self, message: int) -> None:
        """No recipient is left: bounce what failed, then end."""
        try:
            stays = self._cleaner.holds(message) or self._bouncer.holds(message) or self._bouncer.wants(message)
        except OSError as error:
            self._run.again.later(("finish", message), partial(self._finish_again, message), error)
            return
        if not stays:
            self.end(message)

    def _finish_again(self, message: int, now: float) -> None:
        """Finish a message, if it is still one of which no recipient is left."""
        try:
            if self.is_loaded(message) or not self.may_be_tried(message) or not self.store.is_classified(message):
                return
            left = any(each is not None for kind in CHANNELS for each in self.store.left(message, kind))
        except FormatError as error:
            self.park(message, str(error))
        except OSError as error:
            self._run.again.later(("finish", message), partial(self._finish_again, message), error)
        else:
            if not left:
                self.finish(message)

    def may_be_tried(self, message: int) -> bool:
        """Return whether a message is classified, and neither held nor parked. Raises OSError."""
        return message not in self.held and message not in self.parked and not self.store.is_waiting_in_todo(message)

    def wake(self, message: int) -> bool:
        """Try a message that waits now; return whether that is anything new. One without recipients is finished.

        Where the disk cannot tell of it, that is done later.
        """
        try:
            dues = self._dues(message)
        except OSError as error:
            self._run.again.later(("wake", message), lambda now: self._wake_again(message), error)
            return False
        if not dues and message not in self.held:
            self.finish(message)
        waiting = [kind for kind in dues if not self.schedulers[kind].holds(message)]
        for kind in waiting:
            # It counts only until the message has been tried: who is woken twice before that is tried once.
            self.schedulers[kind].found(message, dues[kind], flushed=True)
        return bool(waiting)

    def _wake_again(self, message: int) -> None:
        try:
            if self.may_be_tried(message) and self.store.is_classified(message):
                self.wake(message)
        except OSError as error:
            self._run.again.later(("wake", message), lambda now: self._wake_again(message), error)

    def withdraw(self, message: int, now: float) -> bool:
        """Start nothing more of a message; return whether something of it is in flight. `withdrawn` follows then."""
        for scheduler in self.schedulers.values():
            scheduler.withdraw(message, now)
        return self.is_loaded(message)

    def is_loaded(self, message: int) -> bool:
        """Return whether something of a message is queued or in flight."""
        return any(scheduler.holds(message) for scheduler in self.schedulers.values())

    def withdrawn(self, message: int, kind: str) -> None:
        """Nothing of a message is in flight any more on one channel, after `withdraw`."""
        if message in self.held:
            self.orders.carry_out(message, self._run.clock.now())
        elif message not in self.parked:
            self.schedulers[kind].wake(message)  # Released meanwhile, or it has a new birth.

    def end(self, message: int) -> None:
        """Nothing is left to do: the files go to queue-clean."""
        if self.orders.puts_off(message) or not self.delays.lets_go(message):
            return
        self.held.discard(message)
        self.parked.discard(message)
        self.orders.forget(message)
        self.known.forget(message)
        for kind, scheduler in self.schedulers.items():
            self.slices.pop((kind, message), None)
            scheduler.forget_tried(message)
        self._run.log.put(logline.end_message(message))
        self._cleaner.remove(message)
