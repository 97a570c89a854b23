"""Everything that waits for an instant, in one heap."""

import heapq
from collections.abc import Iterable
from datetime import datetime
from itertools import count

from fairnotice.engine.effects import Subject


class Timers:
    """What the law wants to look at again, and when."""

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, int, Subject]] = []
        self._sequence = count()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next(self) -> datetime | None:
        """When the earliest is due; None where nothing waits."""
        return self._heap[0][0] if self._heap else None

    def add(self, at: datetime, subject: Subject) -> bool:
        """Wake this subject then; whether it is the earliest of all now."""
        heapq.heappush(self._heap, (at, next(self._sequence), subject))
        return self._heap[0][2] is subject

    def due(self, now: datetime) -> tuple[Subject, ...]:
        """Take out what is due, each subject once, in the order of its time."""
        due: dict[Subject, None] = {}
        while self._heap and self._heap[0][0] <= now:
            due[heapq.heappop(self._heap)[2]] = None
        return tuple(due)

    def put_back(self, subjects: Iterable[Subject], at: datetime) -> None:
        """What was taken out could not be looked at: try again."""
        for subject in subjects:
            self.add(at, subject)

    def clear(self) -> None:
        """Forget everything."""
        self._heap.clear()
