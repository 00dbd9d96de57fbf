"""The real daemons in one process, where queue-todo has two workers: each turns by itself, and has a disk thread."""

import os
import select
import time
from functools import partial
from unittest.mock import patch

import queue_todo.main as todo
import queue_todo.todo_workers as todo_workers
from queue_base.daemon.pipes import PeerLost
from queue_todo.todo_worker import TodoWorker
from queue_todo.todo_workers import WorkerPipes
from support.notice.paced import StepDisk
from support.notice.real import RealWorld, can_read
from support.notice.world import Move

WORKERS = 2


class SeveralWorld(RealWorld):
    """`names` is the thread of the parent, which changes nothing on the disk."""

    todo_actors = ("todo 0", "todo 1", "names")
    split = 3  # So that both have some of the numbers.

    def _patch(self) -> None:
        super()._patch()
        self.stack.enter_context(patch("queue_todo.pipeline.DiskThread", self._next_disk))
        self.stack.enter_context(patch("queue_todo.todo_workers.DiskThread", partial(self._make_disk, "names")))

    def _next_disk(self) -> StepDisk:
        return self._make_disk(f"todo {len(self.workers)}")

    def _start_todo(self) -> todo.Classifier:
        self.workers: list[TodoWorker | None] = []
        self.ends: list[tuple[int, int]] = []  # The workers' descriptors.
        ours = []
        for _ in range(WORKERS):
            its_commands, commands = os.pipe2(os.O_CLOEXEC)
            notices, its_notices = os.pipe2(os.O_CLOEXEC)
            self.workers.append(TodoWorker(self.layout, its_commands, its_notices, WORKERS))
            self.ends.append((its_commands, its_notices))
            ours.append(WorkerPipes(0, commands, notices))
        self.pipelines = [worker._pipeline for worker in self.workers if worker is not None]
        return todo.Classifier(self.home, self.layout, ours)

    @property
    def links(self) -> list[todo_workers.WorkerLink]:
        assert self.classifier is not None
        pipeline = self.classifier._part
        assert isinstance(pipeline, todo_workers.Workers)
        return pipeline._links

    def _end_todo(self) -> None:
        if self.classifier is None:
            return
        for link in self.links:
            if not link.ended:
                link.close()
        super()._end_todo()
        for place in range(WORKERS):
            self._close_worker(place)

    def _close_worker(self, place: int, finished: bool = False) -> None:
        """Close the descriptors of a worker; one that has finished has closed the second one."""
        if self.workers[place] is not None:
            self.workers[place] = None
            for descriptor in self.ends[place][: 1 if finished else 2]:
                os.close(descriptor)

    def _heard(self) -> dict[int, int]:
        return {link.notices: select.POLLIN for link in self.links if not link.ended and can_read(link.notices)}

    def _todo_moves(self) -> list[Move]:
        found = super()._todo_moves()
        for place, worker in enumerate(self.workers):
            if self.classifier is not None and worker is not None:
                found.append(Move("a worker turns", 3, partial(self._turn_worker, place)))
                found.append(Move("lose a worker", 0.005, partial(self._lose_worker, place), False))
        return found

    def _turn_worker(self, place: int) -> None:
        worker = self.workers[place]
        if worker is None:
            return
        if worker.finished:
            worker.finish()
            self._close_worker(place, finished=True)
            return
        commands = self.ends[place][0]
        try:
            worker.run({commands: select.POLLIN} if can_read(commands) else {}, time.monotonic())
        except PeerLost:
            self._close_worker(place)

    def _lose_worker(self, place: int) -> None:
        """SIGKILL of one worker; the others go on until the parent has noticed it."""
        self.actors[f"todo {place}"].kill()
        self._close_worker(place)
        self.crashes += 1

    def _turn_todo(self) -> None:
        super()._turn_todo()
        if self.settling and self.classifier is not None:
            for place in range(WORKERS):
                self._turn_worker(place)
