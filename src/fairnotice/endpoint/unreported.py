"""What was served and is not reported yet: in memory, and on disk for the next life.

A line is written when it is served, before the VM has its answer (diary.py), and the file is
emptied when nothing is left to report. A worker has a file of its own, which is collected when it
is gone. Twice reported is once reported, so a file that says too much does no harm.
"""

import logging
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from fairnotice.endpoint.diary import Diary
from fairnotice.endpoint.front import Served
from fairnotice.metadata.board import FirstSeen

log = logging.getLogger(__name__)

# So much is kept while nobody can be told; beyond it the oldest is dropped, and counted.
SEEN_MAX = 100_000
SCOPES_MAX = 100_000
ABSENCES_MAX = 100
# So much goes into one report.
TOGETHER_MAX = 2_000
# The file is written anew where it has grown beyond what it needs to be.
FILE_BYTES_MAX = 32 * 1024 * 1024


class Unreported:
    """First-seen and heard, until the control plane has them. `path` None: in memory alone."""

    def __init__(self, path: Path | None) -> None:
        self._diary = None if path is None else Diary(path)
        self._seen: dict[tuple[str, str], str] = {}
        self._heard: dict[str, str] = {}
        # In which times nobody was served, and whose silence each explains.
        self._unserved: list[dict[str, Any]] = []
        self.dropped_count = 0
        for line in _read(self._diary) if self._diary is not None else ():
            self._take(line)

    def __len__(self) -> int:
        return len(self._seen) + len(self._heard) + len(self._unserved)

    # ---- What comes ----

    def add(self, served: Served) -> None:
        """Keep what was served."""
        self._keep(written(served))

    def add_unserved(self, scopes: Iterable[str], seconds: float, until: datetime) -> None:
        """Keep for how long these scopes were served by nobody, and when that was over."""
        names = list(scopes)
        for first in range(0, len(names), TOGETHER_MAX):
            some = names[first : first + TOGETHER_MAX]
            absence = {"scopes": some, "seconds": seconds, "until": until.isoformat()}
            self._keep({"unserved": [absence]})

    def _keep(self, line: dict[str, Any]) -> None:
        if self._take(line) and self._diary is not None:
            self._diary.write(line)
            if self._diary.bytes > FILE_BYTES_MAX:
                self._rewrite()

    def _take(self, line: dict[str, Any]) -> bool:
        """Take this in; False where it is no line of ours."""
        try:
            for event, vm, at in line.get("seen", ()):
                self._seen.setdefault((event, vm), at)
            for scope, at in line.get("heard", ()):
                self._heard[scope] = at
            for one in line.get("unserved", ()):
                self._unserved.append({key: one[key] for key in ("scopes", "seconds", "until")})
        except (ValueError, TypeError, KeyError):
            log.warning("a line of what an earlier life served makes no sense: %.100s", line)
            return False
        self.dropped_count += _drop(self._seen, SEEN_MAX) + _drop(self._heard, SCOPES_MAX)
        self.dropped_count += max(0, len(self._unserved) - ABSENCES_MAX)
        del self._unserved[:-ABSENCES_MAX]
        return True

    # ---- What goes ----

    def batch(self) -> dict[str, Any]:
        """Some of it, in the words of a report; empty where nothing is left."""
        found: dict[str, Any] = {}
        seen = [
            {"event": event, "vm": vm, "at": at}
            for ((event, vm), at), _ in zip(self._seen.items(), range(TOGETHER_MAX), strict=False)
        ]
        heard = [
            {"scope": scope, "at": at}
            for (scope, at), _ in zip(self._heard.items(), range(TOGETHER_MAX), strict=False)
        ]
        if seen:
            found["seen"] = seen
        if heard:
            found["heard"] = heard
        if self._unserved:
            found["unserved"] = self._unserved[0]
        return found

    def seen_by(self, vm: str) -> list[dict[str, str]]:
        """What this VM was first shown and nobody knows yet, in the words of an approval."""
        seen = [{"event": event, "at": at} for (event, who), at in self._seen.items() if who == vm]
        return seen[:TOGETHER_MAX]

    def reported(self, batch: dict[str, Any]) -> None:
        """This much is known where it has to be."""
        for one in batch.get("seen", ()):
            self._seen.pop((one["event"], one["vm"]), None)
        for one in batch.get("heard", ()):
            if self._heard.get(one["scope"]) == one["at"]:
                del self._heard[one["scope"]]
        if batch.get("unserved") in self._unserved:
            self._unserved.remove(batch["unserved"])
        if not len(self) and self._diary is not None and self._diary.bytes:
            self._rewrite()

    # ---- The file ----

    def collect(self, path: Path) -> bool:
        """Keep what a worker's file says, which need not say it any more; whether there was any."""
        diary = Diary(path)
        try:
            lines = _read(diary)
            for line in lines:
                self._keep(line)
            if diary.bytes:
                diary.empty()
        finally:
            diary.close()
        return bool(lines)

    def _rewrite(self) -> None:
        assert self._diary is not None
        if not len(self):
            self._diary.empty()
            return
        line: dict[str, Any] = {
            "seen": [[*key, at] for key, at in self._seen.items()],
            "heard": [list(one) for one in self._heard.items()],
            "unserved": self._unserved,
        }
        self._diary.replace([line])


def _read(diary: Diary) -> list[dict[str, Any]]:
    try:
        return diary.read()
    except OSError as error:
        log.warning("what an earlier life served cannot be read: %s", error)
        return []


def _drop(kept: dict[Any, str], most: int) -> int:
    """Drop the oldest of what is too much; how many."""
    too_many = max(0, len(kept) - most)
    for key in [key for key, _ in zip(kept, range(too_many), strict=False)]:
        del kept[key]
    return too_many


def written(served: Served) -> dict[str, Any]:
    """What was served, as it is written down and said."""
    return {
        "seen": [[one.event, one.vm, one.at.isoformat()] for one in served.seen],
        "heard": [[scope, at.isoformat()] for scope, at in served.heard],
    }


def parsed(seen: Iterable[list[str]], heard: Iterable[list[str]]) -> Served:
    """What a worker wrote, as it was."""
    return Served(
        [FirstSeen(event, vm, datetime.fromisoformat(at)) for event, vm, at in seen],
        [(scope, datetime.fromisoformat(at)) for scope, at in heard],
    )
