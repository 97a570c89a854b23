"""Processes under measurement: each on one core, asked for its CPU time, ended by its id."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ENDING_SECONDS_MAX = 10.0
_PARENT_FIELD = 1


class Cores(NamedTuple):
    """Where whoever serves runs, and where the load comes from."""

    server: int
    load: int


def cores() -> Cores | None:
    """Two cores of this machine; None where it has only one for us."""
    usable = sorted(os.sched_getaffinity(0))
    return Cores(usable[0], usable[1]) if len(usable) > 1 else None


class Process:
    """A process on a core of its own, or on any. What it complains about is kept in a file."""

    def __init__(self, command: Sequence[str], core: int | None, complaints: Path) -> None:
        self._complaints = complaints
        pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
        with complaints.open("wb") as log:
            self._popen = subprocess.Popen(  # noqa: S603 - commands of this benchmark's own
                [*pinned, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def cpu_seconds(self) -> float:
        """The CPU time that it and its children have used so far."""
        return sum(map(_cpu_seconds, (self._popen.pid, *_children(self._popen.pid))))

    def resident_bytes_max(self) -> int:
        """The most memory that it has ever had, without its children."""
        return _counted(self._popen.pid, "status", "VmHWM") * 1024

    def written_bytes(self) -> int:
        """What it has caused to be written to disks so far, without its children."""
        return _counted(self._popen.pid, "io", "write_bytes")

    def still_runs(self, seconds: float) -> None:
        """Wait so long, and fail if it ends meanwhile."""
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        raise RuntimeError(self._what_it_said())

    def ask(self, **command: object) -> dict[str, Any]:
        """Tell it something, one line of JSON, and read the line it answers."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps(command).encode() + b"\n")
        self._popen.stdin.flush()
        return self.listen()

    def listen(self) -> dict[str, Any]:
        """The next line of JSON it says."""
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        if not line:
            raise RuntimeError(self._what_it_said())
        said: dict[str, Any] = json.loads(line)
        return said

    def _what_it_said(self) -> str:
        said = self._complaints.read_text("utf-8", errors="replace")[-2000:]
        return f"{self._popen.args!r} ended: {said}"

    def kill(self) -> None:
        """End it at once, as a machine that fails does."""
        self._popen.kill()

    def end(self) -> None:
        """End it, by its process id."""
        self._popen.terminate()
        try:
            self._popen.wait(ENDING_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()


def _cpu_seconds(pid: int) -> float:
    """What the scheduler has counted for all threads of a process, in nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text("ascii").split()[0]) for task in tasks) / 1e9


def _counted(pid: int, file: str, name: str) -> int:
    """The number that /proc has under this name."""
    for line in Path(f"/proc/{pid}/{file}").read_text("ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise RuntimeError(f"/proc/{pid}/{file} says nothing of {name}")


def _children(pid: int) -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text("utf-8", errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[_PARENT_FIELD]) == pid:
            yield int(stat.parent.name)
